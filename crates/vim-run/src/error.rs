//! Why a run's folder cannot be used, or a checkpoint not be written or read.

use std::io;
use std::path::{Path, PathBuf};

use crate::lock::{Holder, LOCK};

/// Why a run's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run folder is in use.
    #[error("{} is in use by {holder}: wait for it{}, or change run.name", path.display(), ending(holder))]
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
        "{} was recorded with another configuration: {}; {}restore these keys, move the run aside by --fresh, or change run.name",
        path.display(),
        differences.join(", "),
        instead.as_deref().map_or_else(String::new, |instead| format!("{instead}; else "))
    )]
    ConfigChanged {
        /// The folder.
        path: PathBuf,
        /// Keys with the recorded and the requested value.
        differences: Vec<String>,
        /// What was probably meant, and how to do it.
        instead: Option<String>,
    },

    /// The run's folder is no longer in its place.
    #[error(transparent)]
    Displaced(#[from] Displaced),

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

/// `, end it (kill 7)`, where that is known.
fn ending(holder: &Holder) -> String {
    holder.to_end().map_or_else(String::new, |command| format!(", end it ({command})"))
}

/// A run's folder was moved, removed or replaced while the run was at work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run's folder {} {}", folder.display(), displaced(moved_to.as_deref()))]
pub struct Displaced {
    /// Where the folder was.
    pub folder: PathBuf,
    /// Where it is now, if that is known.
    pub moved_to: Option<PathBuf>,
}

fn displaced(moved_to: Option<&Path>) -> String {
    match moved_to {
        Some(now) => format!(
            "was moved to {} while the run was at work, which ended without writing in the old \
             place: move it back and go on by the same command with --resume auto",
            now.display()
        ),
        None => format!(
            "or the {LOCK} in it was removed or replaced while the run was at work, which ended \
             without writing there: put it back to go on with --resume auto, or start the run anew"
        ),
    }
}

/// Why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// No room, even after removing every removable checkpoint but the newest.
    #[error(
        "no room for a checkpoint in {}: {source}; free space or raise the quota, the earlier checkpoint is kept",
        path.display()
    )]
    Full {
        /// The folder that could not be written.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
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
    /// A checkpoint differs from what was written.
    #[error("checkpoint {} is damaged: {why}", path.display())]
    Damaged {
        /// Its folder.
        path: PathBuf,
        /// The evidence.
        why: String,
    },
    /// A checkpoint is whole, but another version of this program wrote it.
    #[error(
        "checkpoint {} cannot be understood by this version: {why}; go on with the version that wrote it, or start anew by --fresh",
        path.display()
    )]
    Incompatible {
        /// Its folder.
        path: PathBuf,
        /// What is not understood.
        why: String,
    },
    /// There are checkpoints, but none is whole.
    #[error(
        "none of the {count} checkpoints in {} is whole; they are kept as .bad-…; start anew by --fresh",
        folder.display()
    )]
    NoneWhole {
        /// How many there are.
        count: usize,
        /// Where.
        folder: PathBuf,
    },
    /// There is no such checkpoint.
    #[error("there is no {which} in {}", folder.display())]
    Missing {
        /// Which one.
        which: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
}

impl CheckpointError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
