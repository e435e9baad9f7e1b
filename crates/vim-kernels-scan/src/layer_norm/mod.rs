//! Layer normalization with ReLU and a result of another type, in one pass: arguments, checks,
//! reference, and which implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;

use burn::backend::Dispatch;
use burn::tensor::activation::relu as max_with_zero;
use burn::tensor::{DType, FloatDType, Tensor};

use vim_kernels_core::check::{MAX_ELEMENTS, check_dtypes, check_limit, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerNormSpec {
    epsilon: f32,
    relu: bool,
    /// Type of the result.
    to: DType,
}

tensors! {
    /// The arguments on a backend, shapes as in [`layer_norm`].
    LayerNormArguments, 3: { x, weight, bias }
}

fused_op! {
    Flex and Cube:
    LayerNormBackend::layer_norm(LayerNormSpec, LayerNormArguments, 3) -> Single { y }
}

/// `(x − mean) / sqrt(var + epsilon) · weight + bias` of every row, with the biased variance, and
/// with `relu` the larger of that and 0; all in f32, rounded to `to` at the end.
///
/// Differentiable in all three inputs, in one pass over memory each way: rows are normalized once
/// more in the backward pass.
///
/// # Shapes
///
/// - `x`, and the result: `[.., C]`, each f32, or bf16 where the device has it
/// - `weight`, `bias`: `[C]`, f32
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees, [`KernelError::Dtype`] one of
/// another type; [`KernelError::TooLarge`]; [`KernelError::NoKernel`] if `choice` forces a kernel
/// that the device does not have.
///
/// # Source
///
/// Ba et al. 2016, eq. 3 and 4.
pub fn layer_norm<const R: usize>(
    x: Tensor<R>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    epsilon: f64,
    relu: bool,
    to: FloatDType,
    choice: KernelChoice,
) -> Result<Tensor<R>, KernelError> {
    const OPERATION: &str = "layer_norm";
    let device = x.device();
    let weights = [("weight", Some(weight.dtype())), ("bias", Some(bias.dtype()))];
    check_dtypes(OPERATION, &device, &[("x", x.dtype())], &weights)?;
    check_dtypes(OPERATION, &device, &[("the result", to.into())], &[])?;
    let dims = x.dims();
    let expected = "[.., C], none of them 0".to_string();
    expect(OPERATION, "x", &dims, !dims.contains(&0), expected)?;
    check_limit(OPERATION, "a tensor", dims.iter().product(), MAX_ELEMENTS)?;
    for (name, tensor) in [("weight", &weight), ("bias", &bias)] {
        let (got, expected) = (tensor.dims(), format!("[C] = [{}]", dims[R - 1]));
        expect(OPERATION, name, &got, got == [dims[R - 1]], expected)?;
    }
    let implementation = choice.resolve(&device)?;
    record_run(OPERATION, implementation);
    Ok(match implementation {
        Implementation::Reference => {
            let x = x.cast(FloatDType::F32);
            let centered = x.clone() - x.mean_dim(R - 1);
            let deviation = (centered.clone().square().mean_dim(R - 1) + epsilon).sqrt();
            let y = centered / deviation * weight.unsqueeze() + bias.unsqueeze();
            (if relu { max_with_zero(y) } else { y }).cast(to)
        }
        Implementation::Kernel => {
            let spec = LayerNormSpec { epsilon: epsilon as f32, relu, to: to.into() };
            let arguments = LayerNormArguments {
                x: x.into_dispatch(),
                weight: weight.into_dispatch(),
                bias: bias.into_dispatch(),
            };
            Tensor::from_dispatch(Dispatch::layer_norm(arguments, spec).y)
        }
    })
}
