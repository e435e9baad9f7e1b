//! What can be wrong with a call.

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
}
