//! Addition to the residual stream and normalization of the sum, in one pass: arguments and checks.

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
use autodiff::{NormBackend, NormPrimitives};

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NormSpec {
    pub(crate) epsilon: f32,
    pub(crate) has_residual: bool,
}

/// Adds `x` to the residual stream and normalizes the sum: `(normed, sum)` with
/// `sum = x + residual` and `normed = sum / sqrt(mean(sum²) + epsilon) · weight`, the mean over
/// `D`.
///
/// Differentiable in `x`, `residual` and `weight` through both results, and one pass over memory
/// each way: the backward kernel adds the gradient that reaches the sum directly.
///
/// # Shapes
///
/// - `x`, `residual`, and both results: `[.., D]`
/// - `weight`: `[D]`
///
/// `x` is f32, or bf16 where the device has it, and `normed` is as `x`; the residual stream
/// (`residual` and `sum`), `weight` and every statistic are f32.
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees, [`KernelError::Dtype`] one of
/// another type; [`KernelError::NoKernel`] if `choice` forces a kernel that the device does not
/// have.
///
/// # Source
///
/// Zhang and Sennrich 2019, eq. 4, weight only; `rms_norm_fn` of the original with `prenorm` and
/// `residual_in_fp32`, which its blocks call `fused_add_norm`.
pub fn add_rms_norm<const R: usize>(
    x: Tensor<R>,
    residual: Option<Tensor<R>>,
    weight: Tensor<1>,
    epsilon: f64,
    choice: KernelChoice,
) -> Result<(Tensor<R>, Tensor<R>), KernelError> {
    check(&x, residual.as_ref(), &weight)?;
    let device = x.device();
    let implementation = choice.resolve(&device)?;
    record_run("add_rms_norm", implementation);
    if implementation == Implementation::Reference {
        return Ok(reference::add_rms_norm(x, residual, weight, epsilon));
    }
    let spec = NormSpec { epsilon: epsilon as f32, has_residual: residual.is_some() };
    // A backend extension has no optional tensors: an absent residual is passed as one zero.
    let residual = match residual {
        Some(residual) => residual.into_dispatch(),
        None => Tensor::<1>::zeros([1], (&device, DType::F32)).into_dispatch(),
    };
    let NormPrimitives { normed, sum } =
        Dispatch::add_rms_norm(x.into_dispatch(), residual, weight.into_dispatch(), spec);
    Ok((Tensor::from_dispatch(normed), Tensor::from_dispatch(sum)))
}

fn check<const R: usize>(
    x: &Tensor<R>,
    residual: Option<&Tensor<R>>,
    weight: &Tensor<1>,
) -> Result<(), KernelError> {
    const OPERATION: &str = "add_rms_norm";
    let float32 = [("residual", residual.map(Tensor::dtype)), ("weight", Some(weight.dtype()))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &float32)?;
    let fail = |tensor, got: &[usize], expected| {
        Err(KernelError::Shape { operation: OPERATION, tensor, got: got.to_vec(), expected })
    };
    let dims = x.dims();
    let d_model = dims[R - 1];
    if dims.contains(&0) {
        return fail("x", &dims, "[.., D], none of them 0".to_string());
    }
    if weight.dims() != [d_model] {
        return fail("weight", &weight.dims(), format!("[D] = [{d_model}]"));
    }
    match residual {
        Some(residual) if residual.dims() != dims => {
            fail("residual", &residual.dims(), format!("that of x, {dims:?}"))
        }
        Some(_) | None => Ok(()),
    }
}
