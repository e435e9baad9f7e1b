//! What can be wrong with a call.

use crate::precision::Precision;

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
    /// Matrices are to be multiplied in numbers that the device has not.
    #[error(
        "{device} does not multiply in {precision}: use f32 (train.precision), or an NVIDIA GPU"
    )]
    NoPrecision {
        /// The device.
        device: String,
        /// What was asked for.
        precision: Precision,
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
    /// A call beyond what the kernel can count or launch.
    #[error(
        "{operation}: {what} of {got} is beyond the kernel's limit of {limit}: use a smaller batch"
    )]
    TooLarge {
        /// The operation called.
        operation: &'static str,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        got: usize,
        /// How large it may be.
        limit: usize,
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
    /// A tensor of a type that the operation does not take there.
    #[error(
        "{operation}: `{tensor}` is {got}: f32 is supported, and bf16 for activations where the device has it"
    )]
    Dtype {
        /// The operation called.
        operation: &'static str,
        /// The argument at fault.
        tensor: &'static str,
        /// Its type.
        got: String,
    },
}
