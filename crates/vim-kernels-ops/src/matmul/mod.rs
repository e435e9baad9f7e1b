//! A linear map of tokens, in the precision of the run.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
pub(crate) mod cube;
mod native;

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use vim_kernels_core::check::{check_dtypes, check_precision, check_rows, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{KernelError, Precision, has_kernel, runs_cubecl};

const OPERATION: &str = "linear";

/// `x · weight + bias`.
///
/// On a GPU by our own products (see [`Precision`]), with the gradients of weight and bias in f32
/// whatever the activations are; on a CPU in f32.
///
/// NVIDIA tensor cores multiply f32 as the sum of two numbers, and the second part of an infinite
/// factor is none: in [`Precision::F32`] a sum with an infinite factor is NaN there, where a CPU
/// has an infinity. A mask in `x` or `weight` is a large finite number, not −∞.
///
/// # Shapes
///
/// - `x`: `[B, L, K]`, f32, or the activations' type of `precision`
/// - `weight`: `[K, N]`, f32
/// - `bias`: `[N]`, f32
/// - result: `[B, L, N]`, of the activations' type
///
/// # Errors
///
/// [`KernelError::Shape`] and [`KernelError::Dtype`] name the argument whose shape or type
/// disagrees; [`KernelError::NoPrecision`] if the device does not multiply in `precision`;
/// [`KernelError::TooLarge`] on a GPU.
pub fn linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    precision: Precision,
) -> Result<Tensor<3>, KernelError> {
    product(x, weight, bias, precision, false)
}

/// Half of [`linear`] without a bias, with the same bits as half of its result or of its weight: a
/// power of two is exact.
///
/// # Errors
///
/// Those of [`linear`].
pub fn halved_linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    precision: Precision,
) -> Result<Tensor<3>, KernelError> {
    if runs_cubecl(&x.device()) {
        product(x, weight, None, precision, true)
    } else {
        // The weight is the smallest factor.
        product(x, weight * 0.5, None, precision, false)
    }
}

fn product(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    precision: Precision,
    halved: bool,
) -> Result<Tensor<3>, KernelError> {
    let [batch, len, width] = x.dims();
    let [rows, columns] = weight.dims();
    let expected = "[B, L, K], none of them 0".to_string();
    expect(OPERATION, "x", &x.dims(), !x.dims().contains(&0), expected)?;
    let expected = format!("[K, N] with K = {width}, neither of them 0");
    let good = rows == width && rows > 0 && columns > 0;
    expect(OPERATION, "weight", &[rows, columns], good, expected)?;
    if let Some(bias) = &bias {
        let dims = bias.dims();
        expect(OPERATION, "bias", &dims, dims == [columns], format!("[N] = [{columns}]"))?;
    }
    precision.check(&x.device())?;
    let of_weights = [("weight", Some(weight.dtype())), ("bias", bias.as_ref().map(Tensor::dtype))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &of_weights)?;
    check_precision(OPERATION, "x", x.dtype(), precision)?;
    if !has_kernel(&x.device()) {
        return Ok(burn::tensor::module::linear(x, weight, bias));
    }
    if runs_cubecl(&x.device()) {
        check_rows(OPERATION, batch * len, width.max(columns))?;
    }
    let spec = LinearSpec { has_bias: bias.is_some(), halved, precision };
    // A backend extension has no optional tensors: an absent bias is passed as one number that
    // nothing reads.
    let bias = bias.unwrap_or_else(|| Tensor::empty([1], (&x.device(), DType::F32)));
    let arguments = LinearArguments {
        x: x.into_dispatch(),
        weight: weight.into_dispatch(),
        bias: bias.into_dispatch(),
    };
    Ok(Tensor::from_dispatch(Dispatch::linear_map(arguments, spec).y))
}

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinearSpec {
    has_bias: bool,
    /// Whether the product is halved, by kernels in CubeCL.
    halved: bool,
    precision: Precision,
}

tensors! {
    /// The arguments on a backend, shapes as in [`linear`].
    LinearArguments, 3: { x, weight, bias }
}

fused_op! {
    Flex and Cube:
    LinearBackend::linear_map(LinearSpec, LinearArguments, 3) -> Single { y }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn_cubecl::CubeBackend;

    use super::*;
    use vim_kernels_core::op::{computed_for_the_first, ones};

    #[test]
    fn a_frozen_map_computes_no_gradient_of_its_weight_or_bias() {
        let spec = LinearSpec { has_bias: true, halved: false, precision: Precision::F32 };
        let inputs = [ones([2, 3, 4]), ones([4, 5]), ones([5])];
        let computed = computed_for_the_first::<CubeBackend, LinearSpec, 3, 0>(spec, inputs);
        assert_eq!(computed, [true, false, false]);
    }
}
