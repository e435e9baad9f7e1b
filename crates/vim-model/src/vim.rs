//! The classifier.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;

use crate::block::Block;
use crate::config::VimConfig;
use crate::drop_path::{Drops, rates};
use crate::norm::RmsNorm;
use crate::patch_embed::PatchEmbed;

/// Vision Mamba: patches and a class token → positions → blocks → norm → head on the class token.
///
/// Built by [`VimConfig::init`] or [`import_pytorch`](crate::import_pytorch).
///
/// # Source
///
/// Zhu et al. 2024; the original's `…_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2`.
#[derive(Module, Debug)]
pub struct Vim {
    /// Image → patches.
    pub patch_embed: PatchEmbed,
    /// The token that the head reads, `[1, 1, M]`.
    pub cls_token: Param<Tensor<3>>,
    /// Added to the tokens by their place in the sequence, the class token's in the middle: `[1, L, M]`.
    pub pos_embed: Param<Tensor<3>>,
    /// One after the other.
    pub layers: Vec<Block>,
    /// After the last block.
    pub norm_f: RmsNorm,
    /// `M` → `K`.
    pub head: Linear,
    /// What the model was built from.
    #[module(skip)]
    pub(crate) config: VimConfig,
}

impl Vim {
    /// What the model was built from.
    #[must_use]
    pub fn config(&self) -> &VimConfig {
        &self.config
    }

    /// Logits of evaluation: nothing is dropped.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]` with `H = W = image_size`, normalized
    /// - result: `[B, K]`
    ///
    /// # Panics
    ///
    /// If the images have another size than the model.
    #[must_use]
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.logits(images, None)
    }

    /// Logits of training: block outputs are dropped at random (stochastic depth).
    ///
    /// What is dropped is a pure function of `drop_seed`, the block and the image's place in the
    /// batch, so a step can be repeated; give every step and every worker its own seed.
    ///
    /// # Shapes
    ///
    /// As [`Vim::forward`].
    ///
    /// # Panics
    ///
    /// As [`Vim::forward`].
    #[must_use]
    pub fn forward_train(&self, images: Tensor<4>, drop_seed: u64) -> Tensor<2> {
        self.logits(images, Some(drop_seed))
    }

    fn logits(&self, images: Tensor<4>, drop_seed: Option<u64>) -> Tensor<2> {
        let tokens = self.tokens(images);
        let [batch, _, d_model] = tokens.dims();
        let depth = self.layers.len();
        let drops = drop_seed.map(|seed| {
            Drops::draw(rates(depth, self.config.drop_path), seed, batch, &tokens.device())
        });
        let drop = |place, hidden| match &drops {
            Some(drops) => drops.apply(place, hidden),
            None => hidden,
        };

        let (mut hidden, mut residual) = (tokens, None);
        for (place, block) in self.layers.iter().enumerate() {
            let (mixed, sum) = block.forward(drop(place, hidden), residual);
            (hidden, residual) = (mixed, Some(sum));
        }

        // Only the class token is read, so only it is added up and normalized.
        let class = |tokens: Tensor<3>| {
            let position = self.config.class_token_position();
            tokens.slice([0..batch, position..position + 1]) // [B, 1, M]
        };
        let hidden = drop(depth, class(hidden));
        let (last, _) = self.norm_f.forward(hidden, residual.map(class), self.config.ssm.scan);
        self.head.forward(last.reshape([batch, d_model]))
    }

    /// Patches with the class token in their middle and positions added: `[B, L, M]`.
    fn tokens(&self, images: Tensor<4>) -> Tensor<3> {
        let [batch, channels, height, width] = images.dims();
        let side = self.config.image_size;
        assert_eq!(
            [channels, height, width],
            [3, side, side],
            "images are [B, 3, H, W] with H = W = image_size"
        );
        let patches = self.patch_embed.forward(images);
        let [_, num_patches, d_model] = patches.dims();
        let middle = self.config.class_token_position();
        let class = self.cls_token.val().expand([batch, 1, d_model]);
        let tokens = if middle == 0 {
            vec![class, patches] // a single patch: there is none before the class token
        } else {
            let before = patches.clone().slice([0..batch, 0..middle]);
            vec![before, class, patches.slice([0..batch, middle..num_patches])]
        };
        Tensor::cat(tokens, 1) + self.pos_embed.val()
    }
}
