//! The operation as dispatched to a backend. It has no gradient: images are not parameters.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, backend_extension};

/// Numbers of an area.
pub(crate) const AREA: usize = 4;
/// Numbers of a box: its area, its kind and its seed.
pub(crate) const BOX: usize = AREA + 2;
/// Means and deviations.
pub(crate) const STATISTICS: usize = 6;
/// Kinds of a box; 0 is none.
pub(crate) const COLOUR: i32 = 1;
pub(crate) const NOISE: i32 = 2;

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ImageSpec {
    /// `[B, H, W]`.
    pub(crate) size: [usize; 3],
    /// Boxes of an image, 1 or more.
    pub(crate) boxes: usize,
    /// Whether any image is mixed with its partner.
    pub(crate) mixes: bool,
}

/// Backends with the operation.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait ImageBackend: Backend {
    /// `pixels`: four bytes per word, the first one lowest; `places` and `values` as in
    /// [`super::Plan`].
    fn image_batch(
        pixels: IntTensor<Self>,
        places: IntTensor<Self>,
        values: FloatTensor<Self>,
        spec: ImageSpec,
    ) -> FloatTensor<Self>;
}

impl<B: ImageBackend, C: CheckpointStrategy> ImageBackend for Autodiff<B, C> {
    fn image_batch(
        pixels: IntTensor<Self>,
        places: IntTensor<Self>,
        values: FloatTensor<Self>,
        spec: ImageSpec,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::image_batch(pixels, places, values.into_primitive(), spec))
    }
}
