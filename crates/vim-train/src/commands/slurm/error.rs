//! Errors of submitted runs and their jobs.

use std::path::PathBuf;

use vim_slurm::JobId;

use crate::error::{Failure, code};

/// Errors of submitted runs and their jobs.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// A run is submitted already.
    #[error(
        "{} has job {job} already ({state}): wait for it, cancel it by `vim-train slurm cancel`, or chain another one to it by --after {job}",
        path.display()
    )]
    Queued {
        /// The run's folder.
        path: PathBuf,
        /// The job.
        job: JobId,
        /// Its state.
        state: &'static str,
    },

    /// Nothing was submitted under that name.
    #[error(
        "{name} is neither the folder nor the name of a run submitted from {}{}: `vim-train slurm status` names them, --root looks elsewhere",
        root.display(),
        nearest.as_ref().map_or_else(String::new, |name| format!(" (is it `{name}`?)"))
    )]
    NotSubmitted {
        /// The name requested.
        name: String,
        /// Folder in which names are searched.
        root: PathBuf,
        /// A run there with a similar name.
        nearest: Option<String>,
    },

    /// No single job or output matches.
    #[error("{name}: {problem}")]
    NoOutput {
        /// The run or sweep.
        name: String,
        /// The reason and the remedy.
        problem: String,
    },

    /// The awaited job failed.
    #[error("job {job} ended: {state}, exit code {code}; `vim-train slurm logs` shows its output")]
    Ended {
        /// The job.
        job: JobId,
        /// Its last state.
        state: &'static str,
        /// Its exit code, 0 if it was killed.
        code: u8,
    },
}

impl Failure for JobError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Queued { .. } => code::EXISTS,
            Self::NotSubmitted { .. } | Self::NoOutput { .. } => code::DATA,
            Self::Ended { code: 0, .. } => code::FAILED,
            Self::Ended { code, .. } => *code,
        }
    }
}
