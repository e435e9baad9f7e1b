//! Errors of output files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Failure, code};

/// Errors of output files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// A file name has no known extension.
    #[error("{}: the name must end in {expected}", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
        /// The accepted names.
        expected: &'static str,
    },

    /// The file exists.
    #[error("{} is there already: name another file, or write over it by --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

impl Failure for OutputError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Extension { .. } => code::USAGE,
            Self::Exists { .. } => code::EXISTS,
        }
    }
}

/// Refuses to overwrite a file, unless `force`.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<(), Error> {
    if !force && fs::symlink_metadata(path).is_ok() {
        return Err(OutputError::Exists { path: path.to_owned() }.into());
    }
    Ok(())
}
