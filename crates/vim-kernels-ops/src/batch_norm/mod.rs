//! Batch norm in two parts, between which statistics can be joined over devices: the sums over all
//! pixels, and scale, shift and ReLU. Arguments, checks, reference, and which implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;

use burn::backend::Dispatch;
use burn::tensor::activation::relu as max_with_zero;
use burn::tensor::{FloatDType, Tensor};

use vim_kernels_core::check::{MAX_ELEMENTS, check_dtypes, check_limit, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

/// The checked call of [`channel_sums`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelSumsSpec;

/// The checked call of [`scale_shift`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScaleShiftSpec {
    relu: bool,
}

tensors! {
    /// The argument of [`channel_sums`] on a backend, `[.., C]`.
    ChannelSumsArguments, 1: { x }
}

tensors! {
    /// The arguments of [`scale_shift`] on a backend: x as `[.., C]`.
    ScaleShiftArguments, 3: { x, scale, shift }
}

fused_op! {
    Flex and Cube:
    ChannelSumsBackend::channel_sums(ChannelSumsSpec, ChannelSumsArguments, 1) -> Single { y }
}

fused_op! {
    Flex and Cube:
    ScaleShiftBackend::scale_shift(ScaleShiftSpec, ScaleShiftArguments, 3) -> Single { y }
}

/// The sums over everything but channels, of `x` and of its square: `[Σ x, Σ x²]`.
///
/// Differentiable. Sums of shards add up to those of the batch, from which mean and variance
/// follow.
///
/// # Shapes
///
/// - `x`: `[.., C]`, f32, or bf16 where the device has it
/// - result: `[2, C]`, f32
///
/// # Errors
///
/// [`KernelError::Shape`] if there are no elements, [`KernelError::Dtype`] for another type;
/// [`KernelError::TooLarge`]; [`KernelError::NoKernel`] if `choice` forces a kernel that the device
/// does not have.
pub fn channel_sums<const R: usize>(
    x: Tensor<R>,
    choice: KernelChoice,
) -> Result<Tensor<2>, KernelError> {
    const OPERATION: &str = "channel_sums";
    let [rows, channels] = check_rows(OPERATION, &x)?;
    let implementation = choice.resolve(&x.device())?;
    record_run(OPERATION, implementation);
    Ok(match implementation {
        Implementation::Reference => {
            let x = x.cast(FloatDType::F32).reshape([rows, channels]);
            let sums = [x.clone().sum_dim(0), x.square().sum_dim(0)];
            Tensor::cat(sums.to_vec(), 0).reshape([2, channels])
        }
        Implementation::Kernel => {
            let arguments = ChannelSumsArguments { x: x.into_dispatch() };
            Tensor::from_dispatch(Dispatch::channel_sums(arguments, ChannelSumsSpec).y)
        }
    })
}

/// `x·scale + shift`, and with `relu` the larger of that and 0.
///
/// Batch norm is this with `scale = γ/√(σ² + ε)` and `shift = β − μ·scale`. Differentiable in all
/// three inputs, in one pass over memory each way.
///
/// # Shapes
///
/// - `x`, and the result: `[.., C]`, f32, or bf16 where the device has it
/// - `scale`, `shift`: `[C]`, f32
///
/// # Errors
///
/// As [`channel_sums`]; [`KernelError::Shape`] and [`KernelError::Dtype`] for scale and shift too.
///
/// # Source
///
/// Ioffe and Szegedy 2015, eq. of algorithm 1.
pub fn scale_shift<const R: usize>(
    x: Tensor<R>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    relu: bool,
    choice: KernelChoice,
) -> Result<Tensor<R>, KernelError> {
    const OPERATION: &str = "scale_shift";
    let weights = [("scale", Some(scale.dtype())), ("shift", Some(shift.dtype()))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &weights)?;
    let [_, channels] = check_rows(OPERATION, &x)?;
    for (name, tensor) in [("scale", &scale), ("shift", &shift)] {
        let (dims, expected) = (tensor.dims(), format!("[C] = [{channels}]"));
        expect(OPERATION, name, &dims, dims == [channels], expected)?;
    }
    let implementation = choice.resolve(&x.device())?;
    record_run(OPERATION, implementation);
    Ok(match implementation {
        Implementation::Reference => {
            let dtype = FloatDType::from(x.dtype());
            let y = x.cast(FloatDType::F32) * scale.unsqueeze() + shift.unsqueeze();
            (if relu { max_with_zero(y) } else { y }).cast(dtype)
        }
        Implementation::Kernel => {
            let arguments = ScaleShiftArguments {
                x: x.into_dispatch(),
                scale: scale.into_dispatch(),
                shift: shift.into_dispatch(),
            };
            Tensor::from_dispatch(Dispatch::scale_shift(arguments, ScaleShiftSpec { relu }).y)
        }
    })
}

/// Checks x; returns its rows and channels. It keeps its shape: Burn pads the rows of what it
/// makes, so that a tensor of another shape would be a copy.
fn check_rows<const R: usize>(
    operation: &'static str,
    x: &Tensor<R>,
) -> Result<[usize; 2], KernelError> {
    check_dtypes(operation, &x.device(), &[("x", x.dtype())], &[])?;
    let dims = x.dims();
    let expected = "[.., C], none of them 0".to_string();
    expect(operation, "x", &dims, !dims.contains(&0), expected)?;
    let count: usize = dims.iter().product();
    check_limit(operation, "a tensor", count, MAX_ELEMENTS)?;
    let channels = dims[R - 1];
    Ok([count / channels, channels])
}
