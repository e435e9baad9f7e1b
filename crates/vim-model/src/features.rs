//! Outputs of blocks, for heads of other tasks.

use burn::tensor::Tensor;
use vim_kernels::KernelError;

use crate::vim::Vim;

/// Why there are no features.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// A block that has no output of its own.
    #[error("block {block} has no features: {why}")]
    Block {
        /// Its number.
        block: usize,
        /// Why, and which blocks have.
        why: String,
    },
    /// The model cannot run.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl Vim {
    /// The outputs of `blocks` (counted from 0) for the patches: without class tokens, and in the
    /// order of the image, whatever order the blocks see. In evaluation: nothing is drawn.
    ///
    /// The output is what a block adds to the residual stream, as in the original's segmentation
    /// backbone. No block after the last of `blocks` is computed.
    ///
    /// # Shapes
    ///
    /// - `images`: as [`Vim::forward`]
    /// - results, one for each of `blocks`, in their order: `[B, G_h·G_w, M]`, row by row
    ///
    /// # Errors
    ///
    /// [`FeatureError::Block`] if there is no such block, or if blocks come in pairs and the block
    /// is the first of a pair, whose output is half of a sum; [`FeatureError::Kernel`] as
    /// [`Vim::forward`].
    pub fn features(
        &self,
        images: Tensor<4>,
        blocks: &[usize],
    ) -> Result<Vec<Tensor<3>>, FeatureError> {
        self.check_blocks(blocks)?;
        let Some(last) = blocks.iter().max() else { return Ok(Vec::new()) };
        let tokens = self.tokens(images, None)?;
        let mut found = vec![None; blocks.len()];
        self.through_blocks(&tokens, last + 1, None, |number, stream| {
            for (feature, _) in found.iter_mut().zip(blocks).filter(|(_, block)| **block == number)
            {
                let hidden = stream.hidden.clone();
                let hidden = if tokens.flipped { hidden.flip([1]) } else { hidden };
                *feature = Some(without(hidden, &tokens.class));
            }
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// What the head would read if the model ended after each of `blocks`: the sum of all outputs
    /// so far, through the model's last norm; of the tokens the one that the head reads, and the
    /// mean where it reads several. With `pool = "max"`, where the head reads every token, their
    /// mean.
    ///
    /// After the last block, the head's weights times this are the logits of [`Vim::forward`] (but
    /// with `pool = "max"`).
    ///
    /// # Shapes
    ///
    /// - `images`: as [`Vim::forward`]
    /// - results, one for each of `blocks`, in their order: `[B, M]`
    ///
    /// # Errors
    ///
    /// As [`Vim::features`].
    pub fn pooled_features(
        &self,
        images: Tensor<4>,
        blocks: &[usize],
    ) -> Result<Vec<Tensor<2>>, FeatureError> {
        self.check_blocks(blocks)?;
        let Some(last) = blocks.iter().max() else { return Ok(Vec::new()) };
        let tokens = self.tokens(images, None)?;
        let mut found: Vec<Option<Result<Tensor<3>, KernelError>>> = vec![None; blocks.len()];
        self.through_blocks(&tokens, last + 1, None, |number, stream| {
            for (read, _) in found.iter_mut().zip(blocks).filter(|(_, block)| **block == number) {
                *read = Some(self.read_by_head(stream.clone(), &tokens.class, None));
            }
        })?;
        let pooled = found.into_iter().flatten();
        pooled.map(|read| Ok(self.pooled(read?, &tokens.class).squeeze_dim(1))).collect()
    }

    /// [`Vim::features`] as maps, channels first.
    ///
    /// # Shapes
    ///
    /// - results: `[B, M, G_h, G_w]`
    ///
    /// # Errors
    ///
    /// As [`Vim::features`].
    pub fn feature_maps(
        &self,
        images: Tensor<4>,
        blocks: &[usize],
    ) -> Result<Vec<Tensor<4>>, FeatureError> {
        let [rows, columns] = self.config.grid();
        let map = |feature: Tensor<3>| {
            let [batch, _, d_model] = feature.dims();
            feature.swap_dims(1, 2).reshape([batch, d_model, rows, columns])
        };
        Ok(self.features(images, blocks)?.into_iter().map(map).collect())
    }

    /// Checks that `blocks` have features.
    ///
    /// # Errors
    ///
    /// [`FeatureError::Block`], as [`Vim::features`].
    pub fn check_blocks(&self, blocks: &[usize]) -> Result<(), FeatureError> {
        let depth = self.layers.len();
        for &block in blocks {
            let why = if block >= depth {
                format!("the model has {depth}, counted from 0")
            } else if self.config.layer_pairs && block % 2 == 0 {
                format!("it is the first of a pair, ask for {}", block + 1)
            } else {
                continue;
            };
            return Err(FeatureError::Block { block, why });
        }
        Ok(())
    }
}

/// Tokens, `[B, L, M]`, without those at `positions`, which ascend.
pub(crate) fn without(tokens: Tensor<3>, positions: &[usize]) -> Tensor<3> {
    let [_, len, _] = tokens.dims();
    let mut parts = Vec::new();
    let mut start = 0;
    for &end in positions.iter().chain([&len]) {
        if end > start {
            parts.push(tokens.clone().narrow(1, start, end - start));
        }
        start = end + 1;
    }
    Tensor::cat(parts, 1)
}
