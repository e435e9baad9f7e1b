//! What a block puts out, for heads of other tasks.

use burn::tensor::Tensor;

use crate::vim::Vim;

impl Vim {
    /// What the blocks numbered `blocks` (from 0) put out for the patches: without class tokens, and in the
    /// order of the image whatever the order in which the blocks saw them. Evaluation: nothing is drawn.
    ///
    /// It is what a block adds to the residual stream, which the original's segmentation backbone takes.
    /// Nothing is computed behind the last block asked for.
    ///
    /// # Shapes
    ///
    /// - `images`: as [`Vim::forward`]
    /// - results, one for each of `blocks`, in their order: `[B, G_h·G_w, M]`, row by row
    ///
    /// # Panics
    ///
    /// If there is no such block; if blocks come in pairs and a number is that of the first of one, whose
    /// output is half of a sum; or as [`Vim::forward`].
    #[must_use]
    pub fn features(&self, images: Tensor<4>, blocks: &[usize]) -> Vec<Tensor<3>> {
        let depth = self.layers.len();
        for &block in blocks {
            assert!(block < depth, "block {block} is not there: the model has {depth}");
            let whole = !self.config.layer_pairs || block % 2 == 1;
            assert!(whole, "block {block} is the first of a pair: ask for {}", block + 1);
        }
        let Some(last) = blocks.iter().max() else { return Vec::new() };
        let tokens = self.tokens(images, None);
        let mut found = vec![None; blocks.len()];
        self.through_blocks(&tokens, last + 1, None, |number, hidden| {
            for (feature, _) in found.iter_mut().zip(blocks).filter(|(_, block)| **block == number)
            {
                let hidden = hidden.clone();
                let hidden = if tokens.flipped { hidden.flip([1]) } else { hidden };
                *feature = Some(without(hidden, &tokens.class));
            }
        });
        found.into_iter().flatten().collect()
    }

    /// [`Vim::features`] as maps, channels first.
    ///
    /// # Shapes
    ///
    /// - results: `[B, M, G_h, G_w]`
    ///
    /// # Panics
    ///
    /// As [`Vim::features`].
    #[must_use]
    pub fn feature_maps(&self, images: Tensor<4>, blocks: &[usize]) -> Vec<Tensor<4>> {
        let [rows, columns] = self.config.grid();
        let features = self.features(images, blocks).into_iter();
        features
            .map(|feature| {
                let [batch, _, d_model] = feature.dims();
                feature.swap_dims(1, 2).reshape([batch, d_model, rows, columns])
            })
            .collect()
    }
}

/// Tokens, `[B, L, M]`, but for those at `positions`, which ascend.
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
