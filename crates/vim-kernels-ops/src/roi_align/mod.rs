//! Features of boxes, averaged over a grid of bins each: arguments, checks, reference, and which
//! implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;
mod table;

use burn::backend::Dispatch;
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};

use table::{Layout, Table, table};
use vim_kernels_core::check::{MAX_ELEMENTS, check_dtypes, check_limit, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

const OPERATION: &str = "roi_align";

/// The most bins along a side of a box.
const MOST_BINS: usize = 256;

/// A box of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roi {
    /// Number of the image in the batch.
    pub image: usize,
    /// Left, top, right and bottom edge, in pixels of the image.
    pub corners: [f32; 4],
}

/// Where the samples of a part of a box lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoiSampling {
    /// Samples of a part along each axis; 0 takes `⌈size/bins⌉`, where size is that of the box on
    /// the features.
    pub ratio: usize,
    /// Whether a pixel's centre is half a pixel from its edge. Else it is on it, and a box has a
    /// pixel of the features along each axis at least.
    pub aligned: bool,
}

impl Default for RoiSampling {
    /// As Mask R-CNN's successors: as many as there are pixels, aligned.
    fn default() -> Self {
        Self { ratio: 0, aligned: true }
    }
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoiAlignSpec(Layout);

tensors! {
    /// The arguments on a backend: the features, and the numbers of a [`Table`].
    RoiAlignArguments, 2: { x, table }
}

fused_op! {
    Flex and Cube:
    RoiAlignBackend::roi_align(RoiAlignSpec, RoiAlignArguments, 2) -> Single { y }
}

/// The means of the features of each box over `bins · bins` equal parts: bilinear samples at the
/// centres of a grid, which `sampling` describes.
///
/// A sample more than a pixel outside counts as 0, and one that is nearer takes the number at the
/// edge. A part without samples is 0: of a box without area, with [`RoiSampling::default`].
///
/// Differentiable in `x`: the gradient of a pixel is gathered from the boxes that read it, in their
/// order.
///
/// # Shapes
///
/// - `x`: `[B, H, W, C]`, f32, or bf16 where the device has it; computed in f32
/// - `rois`: `R` boxes, at least one
/// - `scale`: pixels of the features to one of the image
/// - result: `[R, bins, bins, C]`, of the type of `x`
///
/// # Errors
///
/// [`KernelError::Shape`] if there are no boxes, or one is of no image of `x`;
/// [`KernelError::NotFinite`] names the first box with an edge that is none;
/// [`KernelError::Dtype`];
/// [`KernelError::TooLarge`]; [`KernelError::Beyond`] of more than 4096 samples to a bin;
/// [`KernelError::NoKernel`] if `choice` forces a kernel that the device does not have.
///
/// # Source
///
/// He et al. 2017, section 3; `roi_align` of torchvision.
pub fn roi_align(
    x: Tensor<4>,
    rois: &[Roi],
    scale: f32,
    bins: usize,
    sampling: RoiSampling,
    choice: KernelChoice,
) -> Result<Tensor<4>, KernelError> {
    check(&x, rois, scale, bins)?;
    let implementation = choice.resolve(&x.device())?;
    let (numbers, layout) = table(x.dims(), rois, scale, (bins, sampling))?;
    record_run(OPERATION, implementation);
    if implementation == Implementation::Reference {
        return Ok(reference(x, &Table { numbers: &numbers, layout }));
    }
    let len = numbers.len();
    let table = Tensor::<1>::from_data(TensorData::new(numbers, [len]), (&x.device(), DType::F32));
    let arguments = RoiAlignArguments { x: x.into_dispatch(), table: table.into_dispatch() };
    Ok(Tensor::from_dispatch(Dispatch::roi_align(arguments, RoiAlignSpec(layout)).y))
}

/// The weights of `bins` parts of an interval from `low` to `high` of an axis of `pixels`, as
/// [`roi_align`] reads them by [`RoiSampling::default`]: of each part the first pixel, and the
/// weights from there on.
///
/// # Errors
///
/// [`KernelError::Beyond`] if a part has more than 4096 samples; [`KernelError::NotFinite`].
pub fn roi_axis(
    [low, high]: [f32; 2],
    bins: usize,
    pixels: usize,
) -> Result<Vec<(usize, Vec<f32>)>, KernelError> {
    if !(low.is_finite() && high.is_finite()) {
        return Err(KernelError::NotFinite { operation: OPERATION, tensor: "rois", at: 0 });
    }
    let expected = "one pixel and one part at least".to_owned();
    expect(OPERATION, "x", &[pixels, bins], pixels > 0 && bins > 0, expected)?;
    table::axis_bins([low, high], 1.0, (bins, RoiSampling::default()), pixels)
}

fn check(x: &Tensor<4>, rois: &[Roi], scale: f32, bins: usize) -> Result<(), KernelError> {
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &[])?;
    let dims @ [batch, .., channels] = x.dims();
    let expected = "[B, H, W, C], none of them 0".to_owned();
    expect(OPERATION, "x", &dims, !dims.contains(&0), expected)?;
    expect(OPERATION, "rois", &[rois.len(), 4], !rois.is_empty(), "one box at least".to_owned())?;
    let outside = rois.iter().position(|roi| roi.image >= batch);
    let got = outside.map_or(0, |at| rois[at].image);
    let expected = format!("boxes of images below {batch}");
    expect(OPERATION, "rois", &[got], outside.is_none(), expected)?;
    let is_finite = |roi: &Roi| roi.corners.iter().all(|edge| (edge * scale).is_finite());
    if let Some(at) = rois.iter().position(|roi| !is_finite(roi)) {
        return Err(KernelError::NotFinite { operation: OPERATION, tensor: "rois", at });
    }
    let expected = format!("1 to {MOST_BINS} bins");
    expect(OPERATION, "bins", &[bins], (1..=MOST_BINS).contains(&bins), expected)?;
    check_limit(OPERATION, "a tensor", x.shape().num_elements(), MAX_ELEMENTS)?;
    check_limit(OPERATION, "a result", rois.len() * bins * bins * channels, MAX_ELEMENTS)
}

/// Two products with the weights of both axes, for each box, in f32.
fn reference(x: Tensor<4>, table: &Table<'_>) -> Tensor<4> {
    let Layout { features: [_, height, width, channels], rois, bins, .. } = table.layout;
    let (device, dtype) = (x.device(), FloatDType::from(x.dtype()));
    let weights = |axis: usize, pixels: usize| {
        let mut weights = vec![0.0; rois * bins * pixels];
        for (at, row) in weights.chunks_mut(pixels).enumerate() {
            let (first, own) = table.bin(at / bins, axis, at % bins);
            row[first..first + own.len()].copy_from_slice(own);
        }
        let data = TensorData::new(weights, [rois, bins, pixels]);
        Tensor::<3>::from_data(data, (&device, DType::F32))
    };
    let images: Vec<i32> = (0..rois).map(|roi| table.image(roi) as i32).collect();
    let images = TensorData::new(images, [rois]);
    let images = Tensor::<1, Int>::from_data(images, &device);
    let x = x.cast(FloatDType::F32).select(0, images);
    let rows = weights(0, height).matmul(x.reshape([rois, height, width * channels]));
    let rows = rows.reshape([rois, bins, width, channels]).swap_dims(1, 2);
    let y = weights(1, width).matmul(rows.reshape([rois, width, bins * channels]));
    y.reshape([rois, bins, bins, channels]).swap_dims(1, 2).cast(dtype)
}
