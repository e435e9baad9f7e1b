//! Why archives could not be staged.

use std::io;
use std::path::{Path, PathBuf};

/// Why archives could not be copied to the node's disk. Each text follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StagingError {
    /// `$SLURM_TMPDIR` is not set.
    #[error(
        "stage: `data.stage = \"require\"` and $SLURM_TMPDIR names no folder; start the program in \
         a SLURM job, set the variable, or stage otherwise"
    )]
    NoFolder,

    /// Files that are not staged.
    #[error(
        "stage `{}`: folders of files are read where they are; pack them by `vim-train data pack`, \
         or set `data.stage = \"auto\"`",
        .0.display()
    )]
    NotArchives(PathBuf),

    /// The disk is too small.
    #[error(
        "stage {} of archives in `{}`: {} are free; ask for a node with a larger disk, or set \
         `data.stage = \"off\"`",
        gigabytes(*needed),
        path.display(),
        gigabytes(*free)
    )]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// Bytes to be copied.
        needed: u64,
        /// Bytes free.
        free: u64,
    },

    /// A copy differs from what was read.
    #[error(
        "stage `{}`: its copy differs {at} bytes from the start; the node's disk or memory is \
         failing",
        path.display()
    )]
    Differs {
        /// The source.
        path: PathBuf,
        /// Start of the chunk that differs.
        at: u64,
    },

    /// The source was written to.
    #[error("stage `{}`: it changed while it was copied; start again", .0.display())]
    Changed(PathBuf),

    /// The program ends.
    #[error("stage `{}`: interrupted", .0.display())]
    Stopped(PathBuf),

    /// A file could not be read or written.
    #[error("stage: `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl StagingError {
    /// For `map_err`: an operation on `path` failed.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }
}

/// `148.3 GB`.
fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
