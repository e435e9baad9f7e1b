//! The loss of segmentation: logits interpolated to the labels' size, and their negative
//! log-likelihood, without the interpolated logits in memory. Arguments, checks, reference, and
//! which implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;

use burn::backend::Dispatch;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor};

use crate::resize::{check as check_resize, interpolated};
use vim_kernels_core::check::{MAX_ELEMENTS, check_limit, check_size, expect};
use vim_kernels_core::op::{fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run, sum_in_order};

const OPERATION: &str = "resize_nll";

/// The label of a pixel that counts in no sum.
pub const IGNORED_LABEL: i32 = 255;

/// The most classes: labels are compared as f32, and 255 is none of them.
const MAX_CLASSES: usize = 255;

/// Counts beside the loss: pixels that are correct, and labelled.
pub(crate) const COUNTS: usize = 2;

/// What [`resize_nll`] returns, each of shape `[1]`, in f32.
#[derive(Clone, Debug)]
pub struct ResizeNll {
    /// The sum of the negative log-likelihood over labelled pixels.
    pub loss: Tensor<1>,
    /// Labelled pixels whose class has the largest logit, the first of equal ones. No gradient;
    /// counts are exact up to 2²⁴.
    pub correct: Tensor<1>,
    /// Pixels whose label is a class.
    pub labelled: Tensor<1>,
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResizeNllSpec {
    /// Rows and columns of the labels.
    to: [usize; 2],
}

tensors! {
    /// The arguments on a backend: the logits, and the labels as f32.
    ResizeNllArguments, 2: { logits, labels }
}

tensors! {
    /// The results on a backend: the loss `[1]` and the counts `[2]`.
    ResizeNllResults, 2: { loss, counts }
}

fused_op! {
    Flex and Cube:
    ResizeNllBackend::resize_nll(ResizeNllSpec, ResizeNllArguments, 2)
        -> ResizeNllResults { loss, counts }
}

/// Interpolates `logits` to the size of `labels` as [`resize`](crate::resize()) does, and sums
/// `−log softmax(logits)[label]` over all labelled pixels.
///
/// The interpolated logits, `[B, H, W, K]`, are never in memory: the forward pass leaves the
/// logarithm of each pixel's denominator, and the backward pass gathers for each logit the pixels
/// that read it, in a fixed order.
///
/// # Shapes
///
/// - `logits`: `[B, h, w, K]`, f32, or bf16 where the device has it; computed in f32
/// - `labels`: `[B, H, W]`, classes `0..K`, or [`IGNORED_LABEL`]. Any other number counts in no sum
///   either: whoever reads labels checks them
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees, [`KernelError::Dtype`] one of
/// another type; [`KernelError::TooLarge`]; [`KernelError::Beyond`]; [`KernelError::NoKernel`] if
/// `choice` forces a kernel that the device does not have.
///
/// # Source
///
/// `losses` of mmsegmentation's `BaseDecodeHead`, before the division by the number of pixels.
pub fn resize_nll(
    logits: Tensor<4>,
    labels: Tensor<3, Int>,
    choice: KernelChoice,
) -> Result<ResizeNll, KernelError> {
    check(&logits, &labels)?;
    let implementation = choice.resolve(&logits.device())?;
    record_run(OPERATION, implementation);
    if implementation == Implementation::Reference {
        return Ok(reference(logits, labels));
    }
    let [_, rows, columns] = labels.dims();
    let arguments = ResizeNllArguments {
        logits: logits.into_dispatch(),
        labels: labels.float().cast(FloatDType::F32).into_dispatch(),
    };
    let spec = ResizeNllSpec { to: [rows, columns] };
    let ResizeNllResults { loss, counts } = Dispatch::resize_nll(arguments, spec);
    let counts = Tensor::<1>::from_dispatch(counts);
    let count = |which| counts.clone().narrow(0, which, 1);
    Ok(ResizeNll { loss: Tensor::from_dispatch(loss), correct: count(0), labelled: count(1) })
}

fn check(logits: &Tensor<4>, labels: &Tensor<3, Int>) -> Result<(), KernelError> {
    let [batch, .., classes] = logits.dims();
    let [images, rows, columns] = labels.dims();
    let good = images == batch && rows * columns > 0;
    let expected = format!("[B, H, W] with B = {batch}, none of them 0");
    expect(OPERATION, "labels", &labels.dims(), good, expected)?;
    check_resize(OPERATION, "logits", logits, [rows, columns])?;
    check_size(OPERATION, "a number of classes", classes, MAX_CLASSES)?;
    check_limit(OPERATION, "a number of pixels", images * rows * columns, MAX_ELEMENTS)
}

/// The loss in tensor operations, in f32, of interpolated logits in memory.
fn reference(logits: Tensor<4>, labels: Tensor<3, Int>) -> ResizeNll {
    let [batch, .., classes] = logits.dims();
    let [_, rows, columns] = labels.dims();
    let logits = interpolated(logits.cast(FloatDType::F32), [rows, columns]);
    let best = logits.clone().detach().argmax(3);
    // The type that the device indexes by: LibTorch gathers by i64 alone.
    let labels = labels.cast(IntDType::from(best.dtype())).reshape([batch, rows, columns, 1]);
    let is_class =
        labels.clone().greater_equal_elem(0).bool_and(labels.clone().lower_elem(classes as i32));
    let index = labels.mask_fill(is_class.clone().bool_not(), 0);
    let likelihood = log_softmax(logits, 3).gather(3, index.clone());
    let correct = best.equal(index).bool_and(is_class.clone());
    let count = |of: Tensor<4, burn::tensor::Bool>| sum_in_order(of.float().cast(FloatDType::F32));
    let loss = sum_in_order(likelihood.mask_fill(is_class.clone().bool_not(), 0.0)).neg();
    debug_assert_eq!(loss.dtype(), DType::F32, "computed in f32");
    ResizeNll { loss, correct: count(correct), labelled: count(is_class) }
}
