//! The short depthwise convolution before the scan: arguments, checks, reference, and which
//! implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
mod cube;
#[doc(hidden)]
pub(crate) mod native;
pub(crate) mod oracle;

use burn::backend::{Backend, Dispatch};
use burn::tensor::activation::silu;
use burn::tensor::{DType, FloatDType, Tensor};

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use cube::bidirectional::{
    TapParts, Taps, conv_bidirectional, conv_bidirectional_backward, tap_gradients,
};
use vim_kernels_core::check::{check_dtypes, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

/// How a convolution runs; see [`causal_conv1d`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConvOptions {
    /// Whether silu follows.
    /// Whether silu follows.
    pub silu: bool,
    /// Convolves with the tokens after the current one instead of those before it: nothing is
    /// flipped.
    pub reverse: bool,
    /// Which implementation runs.
    pub choice: KernelChoice,
}

/// The checked call; for both directions, of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvSpec {
    /// Whether silu follows.
    pub silu: bool,
    /// Whether it runs from the last token to the first.
    pub reverse: bool,
    /// Whether there is a bias.
    pub has_bias: bool,
}

impl ConvSpec {
    /// The same call in the other direction.
    pub(crate) fn reversed(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }
}

tensors! {
    /// The arguments of a convolution on a backend, shapes as in [`causal_conv1d`].
    ConvArguments, 3: { x, weight, bias }
}

fused_op! {
    Flex and Cube:
    ConvBackend::causal_conv1d(ConvSpec, ConvArguments, 3) -> Single { y }
}

tensors! {
    /// The arguments of both directions, shapes as in [`causal_conv1d_bidirectional`].
    BidirectionalConvArguments, 5: { x, weight_fwd, bias_fwd, weight_rev, bias_rev }
}

fused_op! {
    Flex and Cube:
    BidirectionalConvBackend::causal_conv1d_bidirectional(
        ConvSpec, BidirectionalConvArguments, 5) -> Single { y }
}

impl<B: Backend> BidirectionalConvArguments<B> {
    /// The arguments of each direction.
    fn directions(self) -> [ConvArguments<B>; 2] {
        let Self { x, weight_fwd, bias_fwd, weight_rev, bias_rev } = self;
        [
            ConvArguments { x: x.clone(), weight: weight_fwd, bias: bias_fwd },
            ConvArguments { x, weight: weight_rev, bias: bias_rev },
        ]
    }
}

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
        Implementation::Reference => reference(x, weight, bias, spec),
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
/// `selective_scan_bidirectional`. On a GPU both are written
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
            let rev = reference(x.clone(), weight_rev, bias_rev, spec.reversed());
            Tensor::stack(vec![reference(x, weight_fwd, bias_fwd, spec), rev], 0)
        }
        Implementation::Kernel => {
            let arguments = BidirectionalConvArguments {
                x: x.into_dispatch(),
                weight_fwd: weight_fwd.into_dispatch(),
                bias_fwd: bias_fwd.into_dispatch(),
                weight_rev: weight_rev.into_dispatch(),
                bias_rev: bias_rev.into_dispatch(),
            };
            Tensor::<3>::from_dispatch(Dispatch::causal_conv1d_bidirectional(arguments, spec).y)
                .reshape([2, batch, len, d_inner])
        }
    })
}

fn check(x: &Tensor<3>, weight: &Tensor<3>, bias: Option<&Tensor<1>>) -> Result<(), KernelError> {
    const OPERATION: &str = "causal_conv1d";
    let weights = [("weight", Some(weight.dtype())), ("bias", bias.map(Tensor::dtype))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &weights)?;
    let [_, _, d_inner] = x.dims();
    let expected = "[B, L, D], none of them 0".to_string();
    expect(OPERATION, "x", &x.dims(), !x.dims().contains(&0), expected)?;
    let [channels, one, width] = weight.dims();
    let good = channels == d_inner && one == 1 && (2..=4).contains(&width);
    let expected = format!("[D, 1, W] with D = {d_inner} and W = 2, 3 or 4");
    expect(OPERATION, "weight", &weight.dims(), good, expected)?;
    let Some(bias) = bias else { return Ok(()) };
    let good = bias.dims() == [d_inner];
    expect(OPERATION, "bias", &bias.dims(), good, format!("[D] = [{d_inner}]"))
}

/// The convolution in tensor operations, in f32: one shifted product per tap.
fn reference(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, spec: ConvSpec) -> Tensor<3> {
    let [batch, len, d_inner] = x.dims();
    let [_, _, width] = weight.dims();
    let dtype = FloatDType::from(x.dtype());
    let x = x.cast(FloatDType::F32);
    let zeros = Tensor::zeros([batch, width - 1, d_inner], (&x.device(), DType::F32));
    let padded = Tensor::cat(if spec.reverse { vec![x, zeros] } else { vec![zeros, x] }, 1);
    let term = |tap: usize| {
        let start = if spec.reverse { width - 1 - tap } else { tap };
        let gain = weight.clone().narrow(2, tap, 1).reshape([1, 1, d_inner]);
        padded.clone().narrow(1, start, len) * gain
    };
    let y = (1..width).fold(term(0), |y, tap| y + term(tap));
    let y = if spec.has_bias { y + bias.unsqueeze() } else { y };
    let y = if spec.silu { silu(y) } else { y };
    y.cast(dtype)
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn_cubecl::CubeBackend;

    use super::*;
    use vim_kernels_core::op::{computed_for_the_first, ones};

    #[test]
    fn a_frozen_convolution_computes_no_gradient_of_its_weights() {
        let spec = ConvSpec { silu: true, reverse: false, has_bias: true };
        let inputs = [ones([2, 5, 8]), ones([8, 1, 4]), ones([8])];
        let computed = computed_for_the_first::<CubeBackend, ConvSpec, 3, 0>(spec, inputs);
        assert_eq!(computed, [true, false, false]);
    }
}
