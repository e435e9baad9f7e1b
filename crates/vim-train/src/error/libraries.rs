//! The exit codes of the errors of the workspace's libraries.

use vim_data::{DataError, PictureError, SourceError, StagingError};
use vim_kernels::KernelError;
use vim_run::RunError;
use vim_run::checkpoint::CheckpointError;
use vim_run::signals::Interrupted;
use vim_slurm::{ErrorKind, SlurmError};
use vim_sweep::SweepError;

use super::{Error, Failure, code};

impl Failure for KernelError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoKernel { .. } | Self::NoPrecision { .. } => code::UNAVAILABLE,
            Self::TooLarge { .. } => code::CONFIG,
            Self::Shape { .. } | Self::Complex { .. } | Self::Dtype { .. } => code::INTERNAL,
        }
    }
}

/// The data cannot be opened or read.
#[derive(Debug, thiserror::Error)]
#[error("failed to {0}")]
struct DataFailure(DataError);

impl Failure for DataFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self(
                DataError::InvalidConfig { .. }
                | DataError::MissingPath { .. }
                | DataError::NoBatches { .. }
                | DataError::Staging(StagingError::NoFolder | StagingError::NotArchives { .. }),
            ) => code::CONFIG,
            Self(DataError::Staging(_)) => code::IO,
            Self(DataError::Source(SourceError::Exists { .. })) => code::EXISTS,
            Self(DataError::WorkerPanicked { .. } | DataError::Spawn { .. }) => code::INTERNAL,
            Self(_) => code::DATA,
        }
    }
}

impl From<DataError> for Error {
    fn from(error: DataError) -> Self {
        DataFailure(error).into()
    }
}

impl Failure for PictureError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Read { .. } => code::IO,
            Self::Decode { .. } => code::DATA,
        }
    }
}

impl Failure for SlurmError {
    fn exit_code(&self) -> u8 {
        match self.kind() {
            ErrorKind::Config => code::CONFIG,
            ErrorKind::Io => code::IO,
            ErrorKind::Slurm => code::UNAVAILABLE,
        }
    }
}

impl Failure for SweepError {
    fn exit_code(&self) -> u8 {
        let is_data = matches!(self, Self::Damaged { .. } | Self::NoMetric { .. });
        if is_data { code::DATA } else { code::CONFIG }
    }
}

impl Failure for RunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::InUse { .. } | Self::MayBeInUse { .. } | Self::AlreadyHoldsRun { .. } => {
                code::EXISTS
            }
            Self::NothingToResume { .. } | Self::ConfigChanged { .. } => code::CONFIG,
            Self::Checkpoint(_) | Self::Io { .. } => code::IO,
            Self::Internal(_) => code::INTERNAL,
        }
    }
}

impl Failure for CheckpointError {
    fn exit_code(&self) -> u8 {
        code::IO
    }
}

impl Failure for Interrupted {
    fn exit_code(&self) -> u8 {
        self.stop.exit_code()
    }
}
