//! A linear map of tokens, in the precision of the run.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod autodiff;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) mod cube;
mod precision;

use burn::tensor::Tensor;

use crate::check::{check_rows, expect};
use crate::dispatch::runs_cubecl;
use crate::error::KernelError;
use crate::precision::Precision;

const OPERATION: &str = "linear";

/// `x · weight + bias`.
///
/// On a GPU by our own products (see [`Precision`]), with the gradients of weight and bias in f32
/// whatever the activations are; on a CPU by Burn's, in f32.
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
/// [`KernelError::Shape`] names the argument whose shape disagrees; [`KernelError::NoPrecision`] if
/// the device does not multiply in `precision`; [`KernelError::TooLarge`] on a GPU.
pub fn linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    precision: Precision,
) -> Result<Tensor<3>, KernelError> {
    let [batch, len, width] = x.dims();
    let [rows, columns] = weight.dims();
    expect(
        OPERATION,
        "weight",
        &[rows, columns],
        rows == width,
        format!("[K, N] with K = {width}"),
    )?;
    if let Some(bias) = &bias {
        let dims = bias.dims();
        expect(OPERATION, "bias", &dims, dims == [columns], format!("[N] = [{columns}]"))?;
    }
    precision.check(&x.device())?;
    if !runs_cubecl(&x.device()) {
        return Ok(burn::tensor::module::linear(x, weight, bias));
    }
    check_rows(OPERATION, batch * len, width.max(columns))?;
    Ok(on_cubecl(x, weight, bias, precision))
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn on_cubecl(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    precision: Precision,
) -> Tensor<3> {
    use autodiff::{LinearArguments, LinearBackend, LinearSpec};
    use burn::backend::Dispatch;
    use burn::tensor::DType;
    let spec = LinearSpec { has_bias: bias.is_some(), precision };
    // A backend extension has no optional tensors: an absent bias is passed as one number that
    // nothing reads.
    let bias = bias.unwrap_or_else(|| Tensor::empty([1], (&x.device(), DType::F32)));
    let arguments = LinearArguments {
        x: x.into_dispatch(),
        weight: weight.into_dispatch(),
        bias: bias.into_dispatch(),
    };
    Tensor::from_dispatch(Dispatch::linear_map(arguments, spec).y)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn on_cubecl(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, _: Precision) -> Tensor<3> {
    burn::tensor::module::linear(x, weight, bias)
}
