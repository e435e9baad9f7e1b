//! Why a checkpoint cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use super::BEST;

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
    #[error("no {which} checkpoint in {}{}", folder.display(), if which == BEST { ": without validation images there is no best one, use --checkpoint last" } else { "" })]
    Missing {
        /// Which one.
        which: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
}

impl CheckpointError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}
