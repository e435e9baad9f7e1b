//! Images to the sequence that the blocks see: patches, class tokens, positions, and its order.

use burn::module::{Module, Param};
use burn::tensor::{Device, FloatDType, Tensor};
use rand_chacha::rand_core::Rng;
use vim_kernels::{KernelError, Precision, drawn, linear};

use crate::config::{ClassToken, MOST_CHANNELS, ModelError, PatchInit, VimConfig, check_sizes};
use crate::init::{CUT_NORMAL_STD, Rule, Scope};
use crate::rng::{Draw, keyed, unit};
use crate::vim::Vim;

/// What a [`PatchEmbed`] is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchEmbedConfig {
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Distance between the corners of neighbouring patches, in pixels.
    pub stride: usize,
    /// Channels of a token, `M`.
    pub d_model: usize,
    /// Where the weights start.
    pub patch_init: PatchInit,
}

impl PatchEmbedConfig {
    /// Patches that touch and do not overlap: the stride is their side.
    #[must_use]
    pub fn new(patch_size: usize, d_model: usize) -> Self {
        Self { patch_size, stride: patch_size, d_model, patch_init: PatchInit::default() }
    }

    /// Builds the layer. Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] if a size is out of range.
    pub fn init(&self, device: &Device, seed: u64) -> Result<PatchEmbed, ModelError> {
        self.check()?;
        Ok(self.init_in(&Scope::root(device, seed)))
    }

    pub(crate) fn check(&self) -> Result<(), ModelError> {
        check_sizes([
            ("patch_size", self.patch_size, 65_536),
            ("stride", self.stride, usize::MAX),
            ("d_model", self.d_model, MOST_CHANNELS),
        ])
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> PatchEmbed {
        let &Self { patch_size: patch, stride, d_model, patch_init } = self;
        let std = ((3 * patch * patch) as f64).sqrt().recip() / CUT_NORMAL_STD;
        let cut = match patch_init {
            // timm 0.4.12 cuts at 2 whatever the deviation: it cuts nothing.
            PatchInit::Timm => 2.0,
            PatchInit::Truncated => 2.0 * std,
        };
        let (scope, weight) = (scope.child("proj"), Rule::Normal { std, cut });
        PatchEmbed {
            proj: PatchProjection {
                weight: scope.param("weight", [d_model, 3, patch, patch], weight),
                bias: scope.param("bias", [d_model], Rule::Constant(0.0)),
            },
            stride,
            precision: Precision::default(),
        }
    }
}

impl VimConfig {
    /// The layer that makes patches of an image.
    #[must_use]
    pub fn patch_embed(&self) -> PatchEmbedConfig {
        let &Self { patch_size, d_model, patch_init, .. } = self;
        PatchEmbedConfig { patch_size, stride: self.stride(), d_model, patch_init }
    }
}

/// One linear map of all pixels of a patch to `M` channels.
///
/// The weight has the shape of the original's convolution kernel, so that checkpoints, initializers
/// and weight decay, which depend on the rank, treat it as there.
#[derive(Module, Debug)]
pub struct PatchProjection {
    /// `[M, 3, P, P]`.
    pub weight: Param<Tensor<4>>,
    /// `[M]`.
    pub bias: Param<Tensor<1>>,
}

/// Cuts an image into square patches, which overlap if the stride is less than their side, and
/// projects each.
#[derive(Module, Debug)]
pub struct PatchEmbed {
    /// The projection of every patch.
    pub proj: PatchProjection,
    /// Distance between the corners of neighbouring patches, in pixels.
    #[module(skip)]
    pub stride: usize,
    /// Precision of the product.
    #[module(skip)]
    pub precision: Precision,
}

impl PatchEmbed {
    /// Embeds every whole patch, row by row; pixels left over at the right and at the bottom are
    /// unused.
    ///
    /// A convolution in the original. A matrix product is faster on every device, also backward.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`
    /// - result: `[B, G_h·G_w, M]` with `G = (side − P)/stride + 1`
    ///
    /// # Errors
    ///
    /// [`KernelError::Shape`] if an image is smaller than a patch or has other channels,
    /// [`KernelError::NoPrecision`] if the device does not multiply in the layer's precision, and
    /// [`KernelError::TooLarge`].
    pub fn forward(&self, images: Tensor<4>) -> Result<Tensor<3>, KernelError> {
        self.precision.check(&images.device())?;
        let weight = self.proj.weight.val();
        let [d_model, channels, patch, _] = weight.dims();
        let [_, image_channels, height, width] = images.dims();
        if image_channels != channels || height.min(width) < patch {
            return Err(KernelError::Shape {
                operation: "PatchEmbed",
                tensor: "images",
                got: images.dims().to_vec(),
                expected: format!("[B, {channels}, H, W] with H and W at least {patch}"),
            });
        }
        let weight = weight.reshape([d_model, channels * patch * patch]).transpose();
        let bias = Some(self.proj.bias.val());
        // The weight's gradient keeps the images in the type of the product.
        let images = images.cast(self.precision.activations());
        let tokens = linear(self.patches(images, patch), weight, bias, self.precision)?;
        Ok(tokens.cast(FloatDType::F32))
    }

    /// The pixels of every patch in the order of the projection: `[B, G_h·G_w, 3·P·P]`.
    fn patches(&self, images: Tensor<4>, patch: usize) -> Tensor<3> {
        let [batch, channels, height, width] = images.dims();
        let grid = |side: usize| (side - patch) / self.stride + 1;
        let (rows, columns) = (grid(height), grid(width));
        let patches = if self.stride == patch {
            images
                .slice([0..batch, 0..channels, 0..rows * patch, 0..columns * patch])
                .reshape([batch, channels, rows, patch, columns, patch])
                .permute([0, 2, 4, 1, 3, 5])
        } else {
            images
                .unfold::<5, _>(2, patch, self.stride) // [B, 3, G_h, W, P]
                .unfold::<6, _>(3, patch, self.stride) // [B, 3, G_h, G_w, P, P]
                .permute([0, 2, 3, 1, 4, 5])
        };
        patches.reshape([batch, rows * columns, channels * patch * patch])
    }
}

/// Added to a draw before the original compares it with `flip_ratio`: at a ratio of 1 all but one
/// draw in 10⁵ flip.
const FLIP_MARGIN: f64 = 1e-5;

/// A batch of sequences.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// `[B, L, M]`, in the order in which the blocks see them.
    pub(crate) embedded: Tensor<3>,
    /// Positions of the class tokens before the order was reversed.
    pub(crate) class: Vec<usize>,
    /// Whether the order was reversed.
    pub(crate) flipped: bool,
}

impl Vim {
    /// Embeds `images`, `[B, 3, H, W]`; `draw` draws what training draws.
    pub(crate) fn tokens(
        &self,
        images: Tensor<4>,
        draw: Option<Draw>,
    ) -> Result<Tokens, KernelError> {
        let [batch, channels, height, width] = images.dims();
        let size = self.config.image_size;
        if [channels, height, width] != [3, size.height, size.width] {
            return Err(KernelError::Shape {
                operation: "Vim",
                tensor: "images",
                got: images.dims().to_vec(),
                expected: format!("[B, 3, {}, {}]: image_size", size.height, size.width),
            });
        }
        let patches = self.patch_embed.forward(images)?;
        let [_, _, d_model] = patches.dims();
        let class = self.class_positions(draw);
        let mut tokens = self.with_class_tokens(patches, &class);
        if let Some(positions) = &self.pos_embed {
            tokens = tokens + positions.val();
        }
        if let Some(draw) = draw
            && self.config.dropout > 0.0
        {
            let shape = [batch, self.config.num_tokens(), d_model];
            let device = tokens.device();
            tokens = tokens * dropout_factors(draw, self.config.dropout, shape, &device);
        }
        let flipped = self.flips(draw);
        let embedded = if flipped { tokens.flip([1]) } else { tokens };
        Ok(Tokens { embedded, class, flipped })
    }

    /// Positions of the class tokens in this pass.
    fn class_positions(&self, draw: Option<Draw>) -> Vec<usize> {
        match (self.config.class_token, draw) {
            (ClassToken::Random, Some(Draw { seed, .. })) => {
                let places = self.config.num_patches() + 1;
                let draw = unit(&mut keyed(b"vim-model: place", seed, 0));
                vec![((draw * places as f64) as usize).min(places - 1)]
            }
            _ => self.config.class_token_positions(),
        }
    }

    /// Whether this pass sees the tokens reversed. In training it is drawn; in evaluation, which
    /// draws nothing, it is so if training (almost) always does.
    pub(crate) fn flips(&self, draw: Option<Draw>) -> bool {
        let ratio = self.config.flip_ratio;
        match draw {
            Some(Draw { seed, .. }) => {
                ratio - unit(&mut keyed(b"vim-model: flips", seed, 0)) > FLIP_MARGIN
            }
            None => ratio >= 1.0,
        }
    }

    /// The patches, `[B, P, M]`, with the class tokens among them.
    fn with_class_tokens(&self, patches: Tensor<3>, class: &[usize]) -> Tensor<3> {
        let [batch, num_patches, d_model] = patches.dims();
        let expand = |token: Tensor<3>| token.expand([batch, 1, d_model]);
        if let (Some(head), Some(tail)) = (&self.cls_token_head, &self.cls_token_tail) {
            return Tensor::cat(vec![expand(head.val()), patches, expand(tail.val())], 1);
        }
        let (Some(token), &[position]) = (&self.cls_token, class) else { return patches };
        let token = expand(token.val());
        let mut parts = Vec::with_capacity(3);
        if position > 0 {
            parts.push(patches.clone().slice([0..batch, 0..position]));
        }
        parts.push(token);
        if position < num_patches {
            parts.push(patches.slice([0..batch, position..num_patches]));
        }
        Tensor::cat(parts, 1)
    }
}

/// The factor of dropout for every number of a batch of tokens, `[B, L, M]`: 0, or 1/(1 − rate).
///
/// A pure function of the seed and the image's position in the batch.
///
/// # Source
///
/// Srivastava et al. 2014; `pos_drop` of the original.
fn dropout_factors(draw: Draw, rate: f64, shape: [usize; 3], device: &Device) -> Tensor<3> {
    let ([batch, len, d_model], Draw { seed, first }) = (shape, draw);
    drawn(seed, shape, device, move |seed| {
        let images = first..first + batch;
        images.flat_map(|image| dropout_factors_of(seed, image, rate, len * d_model)).collect()
    })
}

fn dropout_factors_of(seed: u64, image: usize, rate: f64, count: usize) -> Vec<f32> {
    let mut rng = keyed(b"vim-model: elems", seed, image as u64);
    let (keep, below) = (1.0 - rate, (rate * 2_f64.powi(32)) as u32);
    let kept = (1.0 / keep) as f32;
    (0..count).map(|_| if rng.next_u32() < below { 0.0 } else { kept }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_keep_the_mean_and_have_their_key() {
        let (rate, count) = (0.2, 50_000);
        let factors = dropout_factors_of(3, 1, rate, count);
        let dropped = factors.iter().filter(|&&factor| factor == 0.0).count();
        // Five standard deviations of the binomial are 447.
        assert!(dropped.abs_diff(10_000) < 447, "{dropped}");
        assert!(factors.iter().all(|&factor| factor == 0.0 || factor == 1.25));
        assert_ne!(factors, dropout_factors_of(3, 2, rate, count));
        assert_ne!(factors, dropout_factors_of(4, 1, rate, count));
    }
}
