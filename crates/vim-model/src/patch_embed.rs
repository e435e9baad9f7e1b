//! Images to tokens.

use burn::module::{Module, Param};
use burn::tensor::{FloatDType, Tensor};
use vim_kernels::{Precision, linear};

/// One linear map of all pixels of a patch to `M` channels.
///
/// It is kept in the shape of the original's convolution kernel, so that a checkpoint, an initializer
/// and a weight decay that go by rank see what they see there.
#[derive(Module, Debug)]
pub struct PatchProjection {
    /// `[M, 3, P, P]`.
    pub weight: Param<Tensor<4>>,
    /// `[M]`.
    pub bias: Param<Tensor<1>>,
}

/// Cuts an image into square patches, overlapping if the stride is less than their side, and projects each.
#[derive(Module, Debug)]
pub struct PatchEmbed {
    /// What is applied to every patch.
    pub proj: PatchProjection,
    /// Distance between the corners of neighbouring patches, in pixels.
    #[module(skip)]
    pub(crate) stride: usize,
    /// In what numbers it multiplies.
    #[module(skip)]
    pub(crate) precision: Precision,
}

impl PatchEmbed {
    /// Embeds every whole patch, row by row; what is left over at the right and at the bottom is unseen.
    ///
    /// A convolution in the original. As a matrix product it takes the path that every device does
    /// best, in its gradient as well.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`
    /// - result: `[B, G_h·G_w, M]` with `G = (side − P)/stride + 1`
    #[must_use]
    pub fn forward(&self, images: Tensor<4>) -> Tensor<3> {
        let weight = self.proj.weight.val();
        let [d_model, channels, patch, _] = weight.dims();
        let weight = weight.reshape([d_model, channels * patch * patch]).transpose();
        let bias = Some(self.proj.bias.val());
        // In the type in which they are multiplied, and kept for the weight's gradient.
        let images = images.cast(self.precision.activations());
        linear(self.patches(images, patch), weight, bias, self.precision)
            .expect(
                "invariant: the model's sizes agree, and its device multiplies in its precision",
            )
            .cast(FloatDType::F32)
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
