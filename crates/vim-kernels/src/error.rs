//! What can be wrong with a call.

use burn::tensor::DType;

/// A call that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel was asked for by name where there is none.
    #[error(
        "no fused kernel for {device} in this build: use `auto` or `reference` (ssm.scan, or unset VIM_USE_CUDA_KERNEL)"
    )]
    NoKernel {
        /// The device.
        device: String,
    },
    /// Two shapes that must agree do not.
    #[error("{operation}: `{tensor}` has shape {got:?}, expected {expected}")]
    Shape {
        /// The operation called.
        operation: &'static str,
        /// The argument at fault.
        tensor: &'static str,
        /// Its shape.
        got: Vec<usize>,
        /// The shape that would do.
        expected: String,
    },
    /// Of A, B and C, one is complex and another is not.
    #[error(
        "{operation}: `{tensor}` is {got} where `a` is not: a, b and c are all real or all complex"
    )]
    Complex {
        /// The operation called.
        operation: &'static str,
        /// The argument at fault.
        tensor: &'static str,
        /// What it is: "real" or "complex".
        got: &'static str,
    },
    /// A tensor of another type than f32.
    #[error("{operation}: `{tensor}` is {got}, only f32 is supported")]
    Dtype {
        /// The operation called.
        operation: &'static str,
        /// The argument at fault.
        tensor: &'static str,
        /// Its type.
        got: String,
    },
}

/// All tensors of a call must be f32.
pub(crate) fn check_dtype<const N: usize>(
    operation: &'static str,
    tensors: [(&'static str, Option<DType>); N],
) -> Result<(), KernelError> {
    for (tensor, dtype) in tensors {
        if let Some(dtype) = dtype.filter(|&dtype| dtype != DType::F32) {
            return Err(KernelError::Dtype { operation, tensor, got: dtype.name().to_string() });
        }
    }
    Ok(())
}
