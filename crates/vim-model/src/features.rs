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
        let Some(last) = blocks.iter().max() else { return Ok(Vec::new()) };
        let tokens = self.tokens(images, None)?;
        let mut found = vec![None; blocks.len()];
        self.through_blocks(&tokens, last + 1, None, |number, hidden| {
            for (feature, _) in found.iter_mut().zip(blocks).filter(|(_, block)| **block == number)
            {
                let hidden = hidden.clone();
                let hidden = if tokens.flipped { hidden.flip([1]) } else { hidden };
                *feature = Some(without(hidden, &tokens.class));
            }
        })?;
        Ok(found.into_iter().flatten().collect())
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
}

/// Tokens, `[B, L, M]`, without those at `positions`, which ascend.
fn without(tokens: Tensor<3>, positions: &[usize]) -> Tensor<3> {
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
