//! The rotation of rotary positions, of pairs of neighbouring channels: arguments, checks,
//! reference, and which implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;

use burn::backend::Dispatch;
use burn::tensor::{FloatDType, Tensor};

use vim_kernels_core::check::{MAX_ELEMENTS, check_dtypes, check_limit, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{Implementation, KernelChoice, KernelError, record_run};

const OPERATION: &str = "rotate_pairs";

/// The checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RotatePairsSpec;

tensors! {
    /// The arguments on a backend, shapes as in [`rotate_pairs`].
    RotatePairsArguments, 3: { x, cos, sin }
}

fused_op! {
    Flex and Cube:
    RotatePairsBackend::rotate_pairs(RotatePairsSpec, RotatePairsArguments, 3) -> Single { y }
}

/// `x·cos + partner·sin`, where the partner of channel `2k` is channel `2k + 1` of the same token,
/// and the other way round.
///
/// A pair turns by an angle where its cosines are the angle's and its sines are `−sin, sin`.
/// Differentiable in x, in one pass over memory each way; cos and sin are constants. Computed in
/// f32, in this order of operations.
///
/// # Shapes
///
/// - `x`, and the result: `[B, L, M]`, M even, f32, or bf16 where the device has it
/// - `cos`, `sin`: `[1, L, M]`, f32
///
/// # Errors
///
/// [`KernelError::Shape`] and [`KernelError::Dtype`] name the argument at fault;
/// [`KernelError::TooLarge`]; [`KernelError::NoKernel`] if `choice` forces a kernel that the device
/// does not have.
///
/// # Source
///
/// Su et al. 2021, eq. 34.
pub fn rotate_pairs(
    x: Tensor<3>,
    cos: Tensor<3>,
    sin: Tensor<3>,
    choice: KernelChoice,
) -> Result<Tensor<3>, KernelError> {
    let constants = [("cos", Some(cos.dtype())), ("sin", Some(sin.dtype()))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &constants)?;
    let dims @ [_, len, d_model] = x.dims();
    let good = !dims.contains(&0) && d_model.is_multiple_of(2);
    expect(OPERATION, "x", &dims, good, "[B, L, M], none of them 0 and M even".to_owned())?;
    for (name, dims) in [("cos", cos.dims()), ("sin", sin.dims())] {
        let expected = format!("[1, L, M] = [1, {len}, {d_model}]");
        expect(OPERATION, name, &dims, dims == [1, len, d_model], expected)?;
    }
    check_limit(OPERATION, "a tensor", x.shape().num_elements(), MAX_ELEMENTS)?;
    let implementation = choice.resolve(&x.device())?;
    record_run(OPERATION, implementation);
    let (cos, sin) = (cos.detach(), sin.detach());
    Ok(match implementation {
        Implementation::Reference => reference(x, cos, sin),
        Implementation::Kernel => {
            let arguments = RotatePairsArguments {
                x: x.into_dispatch(),
                cos: cos.into_dispatch(),
                sin: sin.into_dispatch(),
            };
            Tensor::from_dispatch(Dispatch::rotate_pairs(arguments, RotatePairsSpec).y)
        }
    })
}

fn reference(x: Tensor<3>, cos: Tensor<3>, sin: Tensor<3>) -> Tensor<3> {
    let [batch, len, d_model] = x.dims();
    let dtype = FloatDType::from(x.dtype());
    let x = x.cast(FloatDType::F32);
    let partner = x.clone().reshape([batch, len, d_model / 2, 2]).flip([3]);
    (x * cos + partner.reshape([batch, len, d_model]) * sin).cast(dtype)
}
