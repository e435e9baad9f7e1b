//! Images to tokens.

use burn::module::{Module, Param};
use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{KernelError, Precision, linear};

use crate::config::{ModelError, Preset, VimConfig};
use crate::init::{CUT_NORMAL_STD, Rule, Scope};

/// What a [`PatchEmbed`] is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchEmbedConfig {
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Distance between the corners of neighbouring patches, in pixels.
    pub stride: usize,
    /// Channels of a token, `M`.
    pub d_model: usize,
}

impl PatchEmbedConfig {
    /// Builds the layer. Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] if a size is out of range.
    pub fn init(&self, device: &Device, seed: u64) -> Result<PatchEmbed, ModelError> {
        let &Self { patch_size, stride, d_model } = self;
        let image_size = patch_size.into();
        let tiny = VimConfig::preset(Preset::Tiny);
        VimConfig { image_size, patch_size, stride: Some(stride), d_model, ..tiny }.check()?;
        Ok(self.init_in(&Scope::root(device, seed)))
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> PatchEmbed {
        let &Self { patch_size: patch, stride, d_model } = self;
        let std = ((3 * patch * patch) as f64).sqrt().recip() / CUT_NORMAL_STD;
        let (scope, weight) = (scope.child("proj"), Rule::Normal { std, cut: 2.0 * std });
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
