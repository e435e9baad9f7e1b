//! Errors of a call.

use crate::precision::Precision;

/// A call that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel was requested on a device that has none.
    #[error(
        "no fused kernel for {device} in this build: use `auto` or `reference` (ssm.scan, or unset \
         VIM_USE_CUDA_KERNEL)"
    )]
    NoKernel {
        /// The device.
        device: String,
    },
    /// The device does not multiply in the requested precision.
    #[error(
        "{device} does not multiply in {precision}: use f32 (train.precision), or an NVIDIA GPU"
    )]
    NoPrecision {
        /// The device.
        device: String,
        /// The precision requested.
        precision: Precision,
    },
    /// The launches of a computation are not recorded, or not replayed.
    #[error("{device} replays no graph: {why}")]
    NoGraph {
        /// The device.
        device: String,
        /// What is in the way, in one line.
        why: String,
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
        /// The expected shape.
        expected: String,
    },
    /// A call larger than the kernel can index or launch.
    #[error(
        "{operation}: {what} of {got} is beyond the kernel's limit of {limit}: use a smaller batch"
    )]
    TooLarge {
        /// The operation called.
        operation: &'static str,
        /// What is too large.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// A size, of an image or a model, beyond a kernel's limit whatever the batch.
    #[error("{operation}: {what} of {got} is beyond the kernel's limit of {limit}")]
    Beyond {
        /// The operation called.
        operation: &'static str,
        /// What is too large.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// A number that is infinite or none.
    #[error("{operation}: entry {at} of `{tensor}` is not finite")]
    NotFinite {
        /// The operation called.
        operation: &'static str,
        /// The argument at fault.
        tensor: &'static str,
        /// Which of its entries, from 0.
        at: usize,
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
        /// Its kind: "real" or "complex".
        got: &'static str,
    },
    /// A method without what was asked of it.
    #[error("{operation}: the discretization `{method}` does not run with {what}: use another")]
    Method {
        /// The operation called.
        operation: &'static str,
        /// The method.
        method: &'static str,
        /// What it does not run with.
        what: &'static str,
    },
    /// An argument of a type that the operation does not accept there.
    #[error(
        "{operation}: `{tensor}` is {got}: f32 is supported, and bf16 for activations where the \
         device has it"
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
