//! Bilinear interpolation of images that are stored channels last: arguments, checks, reference,
//! and which implementation runs.

pub(crate) mod axis;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) mod cube;
pub(crate) mod native;
pub(crate) mod oracle;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};

use vim_kernels_core::check::{MAX_ELEMENTS, check_dtypes, check_limit, check_size, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

/// The checked call: rows and columns of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResizeSpec {
    to: [usize; 2],
}

tensors! {
    /// The argument on a backend, shape as in [`resize`].
    ResizeArguments, 1: { x }
}

fused_op! {
    Flex and Cube:
    ResizeBackend::resize(ResizeSpec, ResizeArguments, 1) -> Single { y }
}

/// Interpolates images between the four nearest pixels, whose centres are at half numbers
/// (`align_corners = false`). Larger or smaller; a smaller image is not smoothed before.
///
/// Differentiable: the gradient of a pixel is gathered from those that read it, in a fixed order.
///
/// # Shapes
///
/// - `x`: `[B, h, w, C]`, f32, or bf16 where the device has it
/// - `to`: rows and columns `[H, W]` of the result
/// - result: `[B, H, W, C]`, of the type of `x`
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument at fault, [`KernelError::Dtype`] that of another type;
/// [`KernelError::TooLarge`]; [`KernelError::Beyond`]; [`KernelError::NoKernel`] if `choice` forces
/// a kernel that the device does not have.
///
/// # Source
///
/// `interpolate` of PyTorch with `mode="bilinear"`, `align_corners=False`.
pub fn resize(
    x: Tensor<4>,
    to: [usize; 2],
    choice: KernelChoice,
) -> Result<Tensor<4>, KernelError> {
    const OPERATION: &str = "resize";
    check(OPERATION, "x", &x, to)?;
    let [batch, .., channels] = x.dims();
    check_limit(OPERATION, "a result", batch * to[0] * to[1] * channels, MAX_ELEMENTS)?;
    let implementation = choice.resolve(&x.device())?;
    record_run(OPERATION, implementation);
    Ok(match implementation {
        Implementation::Reference => {
            let dtype = FloatDType::from(x.dtype());
            interpolated(x.cast(FloatDType::F32), to).cast(dtype)
        }
        Implementation::Kernel => {
            let arguments = ResizeArguments { x: x.into_dispatch() };
            Tensor::from_dispatch(Dispatch::resize(arguments, ResizeSpec { to }).y)
        }
    })
}

/// Checks that `x [B, h, w, C]` can be interpolated to `to`.
pub(crate) fn check(
    operation: &'static str,
    name: &'static str,
    x: &Tensor<4>,
    to: [usize; 2],
) -> Result<(), KernelError> {
    check_dtypes(operation, &x.device(), &[(name, x.dtype())], &[])?;
    let expected = "[B, h, w, C], none of them 0".to_string();
    expect(operation, name, &x.dims(), !x.dims().contains(&0), expected)?;
    let expected = "[H, W], neither of them 0".to_string();
    expect(operation, "to", &to, !to.contains(&0), expected)?;
    let [_, height, width, _] = x.dims();
    let longest = [height, width].into_iter().chain(to).max().unwrap_or(0);
    check_size(operation, "a side", longest, axis::LONGEST_SIDE)?;
    check_limit(operation, "a tensor", x.shape().num_elements(), MAX_ELEMENTS)
}

/// The interpolation in tensor operations, of f32.
pub(crate) fn interpolated(x: Tensor<4>, to: [usize; 2]) -> Tensor<4> {
    let device = x.device();
    (0..2).fold(x, |x, side| {
        let (lower, upper, share) = readings(x.dims()[1 + side], to[side], side, &device);
        let [lower, upper] = [lower, upper].map(|pixels| x.clone().select(1 + side, pixels));
        lower.clone() + (upper - lower) * share
    })
}

/// Where each of `to` pixels reads: the pixels below and above, and the share of the one above,
/// shaped to be multiplied along rows (`side` 0) or columns (1) of images.
fn readings(
    from: usize,
    to: usize,
    side: usize,
    device: &Device,
) -> (Tensor<1, Int>, Tensor<1, Int>, Tensor<4>) {
    let (from, count) = (from as u32, to as u32);
    let (mut lower, mut upper, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..count {
        let (pixel, share) = axis::lower_and_share(at, from, count);
        lower.push(pixel.cast_signed());
        upper.push((pixel + 1).min(from - 1).cast_signed());
        shares.push(share);
    }
    let pixels = |of: Vec<i32>| Tensor::<1, Int>::from_data(TensorData::new(of, [to]), device);
    let mut shape = [1; 4];
    shape[1 + side] = to;
    let shares = Tensor::from_data(TensorData::new(shares, shape), (device, DType::F32));
    (pixels(lower), pixels(upper), shares)
}
