//! Why an output file is not written.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Failure, code};

/// Why an output file is not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// A file's name does not say what to write.
    #[error("{}: the name must end in {expected}", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
        /// What would do.
        expected: &'static str,
    },

    /// A file would be written over.
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

/// Refuses to write over what is there, unless `force`.
///
/// # Errors
///
/// If there is something at `path`.
pub(crate) fn check_free(path: &Path, force: bool) -> Result<(), Error> {
    if !force && fs::symlink_metadata(path).is_ok() {
        return Err(OutputError::Exists { path: path.to_owned() }.into());
    }
    Ok(())
}
