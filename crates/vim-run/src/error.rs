//! Why a run's folder cannot be used.

use std::io;
use std::path::PathBuf;

use crate::checkpoint::CheckpointError;

use crate::lock::{Holder, LOCK};

/// Why a run's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run folder is in use.
    #[error("{} is in use by {holder}: wait for it, end it ({}), or change run.name", path.display(), holder.to_end())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who uses it.
        holder: Box<Holder>,
    },

    /// The run folder may be in use, on a file system without locks.
    #[error(
        "{} may be in use by {holder}, and this file system has no locks to tell: if that process is gone, remove {} and run this again",
        path.display(),
        path.join(LOCK).display()
    )]
    MayBeInUse {
        /// The folder.
        path: PathBuf,
        /// Who used it last.
        holder: Box<Holder>,
    },

    /// The run folder holds a run, and resuming was not requested.
    #[error(
        "{} already holds a run: go on with it by --resume auto, move it aside by --fresh, or change run.name",
        path.display()
    )]
    AlreadyHoldsRun {
        /// The folder.
        path: PathBuf,
    },

    /// The run folder holds no run to resume.
    #[error("{} holds no run to resume: start one by --resume auto, or correct run.name", path.display())]
    NothingToResume {
        /// The folder.
        path: PathBuf,
    },

    /// The run in the folder was recorded with another configuration.
    #[error(
        "{} was recorded with another configuration: {}; restore these keys, move the run aside by --fresh, or change run.name",
        path.display(),
        differences.join(", ")
    )]
    ConfigChanged {
        /// The folder.
        path: PathBuf,
        /// Keys with the recorded and the requested value.
        differences: Vec<String>,
    },

    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),

    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A defect of this program.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl RunError {
    /// [`Self::Io`] as a function of its cause, for `map_err`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
