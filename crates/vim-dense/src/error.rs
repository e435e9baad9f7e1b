//! Errors.

use vim_comm::CommError;
use vim_kernels::KernelError;
use vim_model::FeatureError;

/// Why a dense model cannot compute.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DenseError {
    /// An operation refused its arguments.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The backbone has no such features, or refused its images.
    #[error(transparent)]
    Feature(#[from] FeatureError),
    /// The ranks could not add up the sums of a batch normalization.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A batch normalization that sees one number for each channel: it has no variance.
    #[error(
        "{layer} normalizes over a single number per channel, which has no variance: train with at \
         least two images in a micro-batch over all shards and GPUs (train.batch_size, \
         train.accumulate)"
    )]
    OneValue {
        /// The layer.
        layer: &'static str,
    },
    /// Arguments that do not fit to each other.
    #[error("{what}: got {got}, expected {expected}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// What it was.
        got: String,
        /// What would do.
        expected: String,
    },
    /// A mask that cannot be read or drawn.
    #[error("a mask of an instance: {why}")]
    Mask {
        /// Why.
        why: String,
    },
}

/// An [`DenseError::Argument`] unless `good`.
pub(crate) fn expect(
    good: bool,
    what: &'static str,
    got: impl FnOnce() -> String,
    expected: impl FnOnce() -> String,
) -> Result<(), DenseError> {
    if good { Ok(()) } else { Err(DenseError::Argument { what, got: got(), expected: expected() }) }
}
