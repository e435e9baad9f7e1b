//! The short depthwise convolution before the scan: arguments, checks, and which implementation
//! runs.

mod autodiff;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;
mod reference;

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use crate::check::check_dtypes;
use crate::dispatch::{Implementation, KernelChoice, record_run};
use crate::error::KernelError;
use autodiff::{BidirectionalConvArguments, BidirectionalConvBackend, ConvArguments, ConvBackend};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use cube::bidirectional::{Taps, conv_bidirectional, conv_bidirectional_backward};

/// How a convolution runs; see [`causal_conv1d`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConvOptions {
    /// Whether silu follows.
    pub silu: bool,
    /// Convolves with the tokens after the current one instead of those before it: nothing is
    /// flipped.
    pub reverse: bool,
    /// Which implementation runs.
    pub choice: KernelChoice,
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvSpec {
    pub(crate) silu: bool,
    pub(crate) reverse: bool,
    pub(crate) has_bias: bool,
}

impl ConvSpec {
    /// The same call in the other direction.
    pub(crate) fn reversed(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }
}

/// The checked call for both directions: the first as specified, the second reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BidirectionalConvSpec(pub(crate) ConvSpec);

/// Convolves every channel with its own taps along the tokens, causally.
///
/// `y[t] = f(bias + Σₖ weight[k]·x[t − (W−1) + k])`, zeros outside the sequence, f = silu or the
/// identity; with `reverse`, `x[t + (W−1) − k]`. Differentiable in all three inputs.
///
/// # Shapes
///
/// - `x`, and the result: `[B, L, D]`
/// - `weight`: `[D, 1, W]` with W = 2, 3 or 4, as PyTorch stores a depthwise kernel; the last tap
///   multiplies the current token
/// - `bias`: `[D]`
///
/// `x` is f32, or bf16 where the device has it, and the result is as `x`; `weight` and `bias` are
/// f32, and so is every sum.
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees, [`KernelError::Dtype`] one of
/// another type; [`KernelError::NoKernel`] if
/// `options.choice` forces a kernel that the device does not have.
///
/// # Source
///
/// `causal_conv1d_fn` of the original, channels last.
pub fn causal_conv1d(
    x: Tensor<3>,
    weight: Tensor<3>,
    bias: Option<Tensor<1>>,
    options: ConvOptions,
) -> Result<Tensor<3>, KernelError> {
    check(&x, &weight, bias.as_ref())?;
    let device = x.device();
    let implementation = options.choice.resolve(&device)?;
    record_run("causal_conv1d", implementation);
    let spec = ConvSpec { silu: options.silu, reverse: options.reverse, has_bias: bias.is_some() };
    // A backend extension has no optional tensors: an absent bias is passed as one zero.
    let bias = bias.unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32)));
    Ok(match implementation {
        Implementation::Reference => reference::conv(x, weight, bias, spec),
        Implementation::Kernel => {
            let arguments = ConvArguments {
                x: x.into_dispatch(),
                weight: weight.into_dispatch(),
                bias: bias.into_dispatch(),
            };
            Tensor::from_dispatch(Dispatch::causal_conv1d(arguments, spec).y)
        }
    })
}

/// Two convolutions of the same `x`, the second in the other direction and with weights of its own.
///
/// `[causal_conv1d(x, weights[0], …), causal_conv1d(x, weights[1], …)]`, `[2, B, L, D]`, the second
/// with `reverse` flipped: the input of both directions' projections and of
/// [`selective_scan_bidirectional`](crate::selective_scan_bidirectional). On a GPU both are written
/// in place.
///
/// # Errors
///
/// As [`causal_conv1d`].
pub fn causal_conv1d_bidirectional(
    x: Tensor<3>,
    weights: [Tensor<3>; 2],
    biases: [Tensor<1>; 2],
    options: ConvOptions,
) -> Result<Tensor<4>, KernelError> {
    for (weight, bias) in weights.iter().zip(&biases) {
        check(&x, weight, Some(bias))?;
    }
    let implementation = options.choice.resolve(&x.device())?;
    record_run("causal_conv1d", implementation);
    let spec = ConvSpec { silu: options.silu, reverse: options.reverse, has_bias: true };
    let [batch, len, d_inner] = x.dims();
    let ([weight_fwd, weight_rev], [bias_fwd, bias_rev]) = (weights, biases);
    Ok(match implementation {
        Implementation::Reference => {
            let rev = reference::conv(x.clone(), weight_rev, bias_rev, spec.reversed());
            Tensor::stack(vec![reference::conv(x, weight_fwd, bias_fwd, spec), rev], 0)
        }
        Implementation::Kernel => {
            let arguments = BidirectionalConvArguments {
                x: x.into_dispatch(),
                weight_fwd: weight_fwd.into_dispatch(),
                bias_fwd: bias_fwd.into_dispatch(),
                weight_rev: weight_rev.into_dispatch(),
                bias_rev: bias_rev.into_dispatch(),
            };
            let spec = BidirectionalConvSpec(spec);
            Tensor::<3>::from_dispatch(Dispatch::causal_conv1d_bidirectional(arguments, spec).y)
                .reshape([2, batch, len, d_inner])
        }
    })
}

fn check(x: &Tensor<3>, weight: &Tensor<3>, bias: Option<&Tensor<1>>) -> Result<(), KernelError> {
    let weights = [("weight", Some(weight.dtype())), ("bias", bias.map(Tensor::dtype))];
    check_dtypes("causal_conv1d", &x.device(), &[("x", x.dtype())], &weights)?;
    let [batch, len, d_inner] = x.dims();
    let fail = |tensor, got: &[usize], expected| {
        Err(KernelError::Shape { operation: "causal_conv1d", tensor, got: got.to_vec(), expected })
    };
    if batch == 0 || len == 0 || d_inner == 0 {
        return fail("x", &x.dims(), "[B, L, D], none of them 0".to_string());
    }
    let [channels, one, width] = weight.dims();
    if channels != d_inner || one != 1 || !(2..=4).contains(&width) {
        let expected = format!("[D, 1, W] with D = {d_inner} and W = 2, 3 or 4");
        return fail("weight", &weight.dims(), expected);
    }
    match bias {
        Some(bias) if bias.dims() != [d_inner] => {
            fail("bias", &bias.dims(), format!("[D] = [{d_inner}]"))
        }
        Some(_) | None => Ok(()),
    }
}
