//! The exit code of every error.

use vim_data::{DataError, PictureError, SourceError, StagingError};
use vim_kernels::KernelError;
use vim_sweep::SweepError;
use vim_torch::ReadError;

use super::Error;
use crate::commands::slurm;
use crate::run::signals::Stop;

impl Error {
    /// The exit code, as `vim-train --help` lists it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::NoProgress { .. } | Self::JobEnded { code: 0, .. } => 1,
            Self::JobEnded { code, .. } => *code,
            Self::Slurm(error) => slurm::exit_code(error),
            Self::Data(
                DataError::InvalidConfig { .. }
                | DataError::MissingPath { .. }
                | DataError::NoBatches { .. }
                | DataError::Staging(StagingError::NoFolder | StagingError::NotArchives { .. }),
            ) => 78,
            Self::Data(DataError::Staging(_)) => 74,
            Self::Data(DataError::Source(SourceError::Exists { .. })) => 73,
            Self::Device(_)
            | Self::DeviceLost { .. }
            | Self::Kernel(KernelError::NoKernel { .. } | KernelError::NoPrecision { .. }) => 69,
            Self::DeviceMemory { .. } => 71,
            Self::Kernel(KernelError::TooLarge { .. }) => 78,
            Self::Internal(_)
            | Self::Kernel(
                KernelError::Shape { .. } | KernelError::Complex { .. } | KernelError::Dtype { .. },
            )
            | Self::Data(DataError::WorkerPanicked { .. } | DataError::Spawn { .. }) => 70,
            Self::Io { .. }
            | Self::Checkpoint(_)
            | Self::Picture(PictureError::Read { .. })
            | Self::Unreadable { source: ReadError::Io(_), .. } => 74,
            Self::Data(_)
            | Self::NoRun { .. }
            | Self::NotSubmitted { .. }
            | Self::NoOutput { .. }
            | Self::BadImages { .. }
            | Self::Weights { .. }
            | Self::Unreadable { .. }
            | Self::StateDictMismatch { .. }
            | Self::Unrecognised { .. }
            | Self::NoCounterpart { .. }
            | Self::Picture(PictureError::Decode { .. })
            | Self::ClassNames { .. }
            | Self::Arrays { .. }
            | Self::Script { .. }
            | Self::NoBenchmark { .. } => 65,
            Self::Extension { .. } => 2,
            Self::InUse { .. }
            | Self::MayBeInUse { .. }
            | Self::AlreadyHoldsRun { .. }
            | Self::Queued { .. }
            | Self::Exists { .. } => 73,
            Self::Stopped { stop: Stop::Scheduler { .. }, .. }
            | Self::Interrupted { stop: Stop::Scheduler { .. } } => 75,
            Self::Stopped { stop: Stop::Keyboard, .. }
            | Self::Interrupted { stop: Stop::Keyboard } => 130,
            Self::Diverged { .. } => 76,
            Self::Sweep(SweepError::Damaged { .. } | SweepError::NoMetric { .. }) => 65,
            Self::Sweep(_) => 78,
            Self::Study(error) => error.exit_code(),
            Self::TooLarge { .. }
            | Self::Config(_)
            | Self::NothingToResume { .. }
            | Self::ConfigChanged { .. } => 78,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use signal_hook::consts::SIGTERM;
    use vim_model::ModelError;

    use super::*;

    #[test]
    fn the_codes_that_scripts_rely_on() {
        let stopped = |stop| Error::Stopped { stop, step: 3 };
        for (error, code) in [
            (Error::Failed(String::new()), 1),
            (Error::Data(DataError::NotAnArchive("x".into())), 65),
            (Error::Device(String::new()), 69),
            (Error::Kernel(KernelError::NoKernel { device: String::new() }), 69),
            (Error::DeviceLost { reason: String::new() }, 69),
            (Error::Internal(String::new()), 70),
            (Error::DeviceMemory { bytes: None, load: None }, 71),
            (Error::AlreadyHoldsRun { path: "x".into() }, 73),
            (Error::io("read", "x")(io::ErrorKind::NotFound.into()), 74),
            (stopped(Stop::Scheduler { signal: SIGTERM }), 75),
            (Error::Diverged { step: 1, what: "loss".into() }, 76),
            (
                ModelError::Range { key: "depth", value: "0".into(), expected: "1".into() }.into(),
                78,
            ),
            (stopped(Stop::Keyboard), 130),
        ] {
            assert_eq!(error.exit_code(), code, "{error}");
        }
    }
}
