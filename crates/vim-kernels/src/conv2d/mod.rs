//! The convolution of images by 3×3 taps: one product for all taps, and the sum of its shifted
//! parts.
//!
//! A product of every pixel's channels with the weights of all nine taps comes first; then each
//! pixel adds, over its neighbours, the part of the tap that looks at it. So every explicit array
//! is as wide as nine outputs, never as nine inputs, no image is unfolded, and the backward pass
//! keeps the input alone. Which product runs is [`linear`]'s choice: nothing is tuned.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, FloatDType, Tensor};

use crate::check::{MAX_ELEMENTS, check_dtypes, check_limit, expect};
use crate::dispatch::has_kernel;
use crate::error::KernelError;
use crate::matmul::linear;
use crate::op::{Single, fused_op, tensors};
use crate::precision::Precision;

const OPERATION: &str = "conv3x3";
/// Taps along a side.
const SIDE: usize = 3;
/// All taps.
pub(crate) const TAPS: usize = SIDE * SIDE;

/// The convolution of `x` by 3×3 taps, with stride 1, padding 1 and no bias, channels last.
///
/// # Shapes
///
/// - `x`: `[B, H, W, K]`, f32, or the activations' type of `precision`
/// - `weight`: `[N, K, 3, 3]`, f32, as PyTorch has it: a cross-correlation
/// - result: `[B, H, W, N]`, of the activations' type. In bf16 the part of every tap is rounded
///   before they are added in f32.
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees; as [`linear`] otherwise.
pub fn conv3x3(
    x: Tensor<4>,
    weight: Tensor<4>,
    precision: Precision,
) -> Result<Tensor<4>, KernelError> {
    let [batch, height, width, channels] = x.dims();
    let dims = weight.dims();
    let [outputs, inputs, ..] = dims;
    let fits = dims == [outputs, channels, SIDE, SIDE];
    expect(OPERATION, "weight", &dims, fits, format!("[N, K, 3, 3] with K = {channels}"))?;
    let weight = weight.permute([1, 2, 3, 0]).reshape([inputs, TAPS * outputs]);
    let parts = linear(x.reshape([batch, height * width, channels]), weight, None, precision)?;
    shifted_sum(parts.reshape([batch, height, width, TAPS * outputs]))
}

/// `y[h, w] = Σ parts[h + i − 1, w + j − 1]` of tap (i, j), over neighbours inside the image.
///
/// # Shapes
///
/// - `parts`: `[B, H, W, 9·N]`, tap after tap
/// - result: `[B, H, W, N]`
fn shifted_sum(parts: Tensor<4>) -> Result<Tensor<4>, KernelError> {
    let device = parts.device();
    let dims = parts.dims();
    check_dtypes(OPERATION, &device, &[("x", parts.dtype())], &[])?;
    check_limit(OPERATION, "a buffer", dims.iter().product(), MAX_ELEMENTS)?;
    if !has_kernel(&device) {
        return Ok(reference(parts, &device));
    }
    let [batch, height, width, all] = dims;
    let spec = ShiftedSum { batch, height, width, channels: all / TAPS };
    let inputs = Parts { parts: parts.into_dispatch() };
    Ok(Tensor::from_dispatch(Dispatch::shifted_sum(inputs, spec).y))
}

/// The sum in tensor operations, in f32.
fn reference(parts: Tensor<4>, device: &Device) -> Tensor<4> {
    let [batch, height, width, all] = parts.dims();
    let (channels, dtype) = (all / TAPS, FloatDType::from(parts.dtype()));
    let parts = parts.cast(FloatDType::F32);
    let mut sum = Tensor::<4>::zeros([batch, height, width, channels], (device, DType::F32));
    for tap in 0..TAPS {
        let part = parts.clone().narrow(3, tap * channels, channels);
        sum = sum + shifted(shifted(part, 1, tap / SIDE), 2, tap % SIDE);
    }
    sum.cast(dtype)
}

/// `part` along an axis as a tap sees it: place `n` has the value of `n + tap − 1`, or 0.
fn shifted(part: Tensor<4>, axis: usize, tap: usize) -> Tensor<4> {
    let length = part.dims()[axis];
    let mut edge = part.dims();
    edge[axis] = 1;
    let zero = Tensor::zeros(edge, (&part.device(), DType::F32));
    let inside = |first| (length > 1).then(|| part.clone().narrow(axis, first, length - 1));
    let pieces = match tap {
        0 => [Some(zero), inside(0)],
        1 => return part,
        _ => [inside(1), Some(zero)],
    };
    Tensor::cat(pieces.into_iter().flatten().collect(), axis)
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShiftedSum {
    batch: usize,
    height: usize,
    width: usize,
    channels: usize,
}

tensors! {
    /// The argument on a backend, shape as in [`shifted_sum`].
    Parts, 1: { parts }
}

fused_op! {
    Flex and Cube:
    ShiftedSumBackend::shifted_sum(ShiftedSum, Parts, 1) -> Single { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suite checks the kernels; the reference is for devices without one.
    #[test]
    fn the_reference_is_the_kernel_forward_and_backward() {
        let device = Device::flex().autodiff();
        for [batch, height, width, channels] in [[1, 1, 1, 1], [2, 1, 3, 2], [1, 4, 3, 5]] {
            let shape = [batch, height, width, TAPS * channels];
            let numbers = |count: usize, step: f32| -> Vec<f32> {
                (0..count).map(|i| (i as f32 * step).sin()).collect()
            };
            let run = |by: &dyn Fn(Tensor<4>) -> Tensor<4>| -> [Vec<f32>; 2] {
                let values = numbers(shape.iter().product(), 0.7);
                let parts = Tensor::<1>::from_floats(&values[..], &device).reshape(shape);
                let parts = parts.detach().require_grad();
                let y = by(parts.clone());
                let weight = numbers(y.dims().iter().product(), 1.3);
                let weight = Tensor::<1>::from_floats(&weight[..], &device).reshape(y.dims());
                let grads = (y.clone() * weight).sum().backward();
                let grad = parts.grad(&grads).unwrap();
                [y.inner(), grad].map(|tensor| tensor.into_data().iter().collect())
            };
            let kernel = run(&|parts| shifted_sum(parts).unwrap());
            let reference = run(&|parts| reference(parts, &device));
            for (kernel, reference) in kernel.into_iter().zip(reference) {
                assert_eq!(kernel.len(), reference.len());
                let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
                assert!(kernel.iter().zip(&reference).all(close), "{kernel:?} {reference:?}");
            }
        }
    }
}
