//! Records as lines of JSON.

mod csv;
mod events;
mod record;
mod scores;
mod sinks;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::RunError;

pub use record::{OWN_WEIGHTS, Record};
pub use scores::{ScoreKind, Scores};
pub use sinks::Sinks;

/// A file of JSON records, one per line.
///
/// A record is written as a whole. Floats have the shortest digits that identify them, so equal
/// numbers make equal bytes; floats that are not finite are `null`.
#[derive(Debug)]
pub struct JsonlWriter {
    path: PathBuf,
    file: File,
    len: u64,
}

impl JsonlWriter {
    /// Opens `path` and truncates it to `len` bytes, the length that the checkpoint records.
    ///
    /// A resumed run writes the removed records again, with the same bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or is shorter than `len`.
    pub fn truncated(path: &Path, len: u64) -> Result<Self, RunError> {
        let writer = Self::appending(path)?;
        if writer.len < len {
            let short =
                format!("it has {} of the {len} bytes that the checkpoint knows", writer.len);
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, short);
            return Err(RunError::io("go on with", path)(source));
        }
        writer.file.set_len(len).map_err(RunError::io("shorten", path))?;
        Ok(Self { len, ..writer })
    }

    /// Opens `path` to append to it.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn appending(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(RunError::io("open", path))?;
        let len = file.metadata().map_err(RunError::io("open", path))?.len();
        Ok(Self { path: path.to_owned(), file, len })
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// If the write fails; the file is then truncated to whole records.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        let line = serde_json::to_string(record)
            .map_err(|error| RunError::Internal(format!("{}: {error}", self.path.display())))?;
        self.append_line(line)
    }

    fn append_line(&mut self, mut line: String) -> Result<(), RunError> {
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // On a full disk a partial line may have been written.
            let _ = self.file.set_len(self.len);
            return Err(RunError::io("write", &self.path)(error));
        }
        self.len += line.len() as u64;
        Ok(())
    }

    /// Returns when all records are on the disk; call before a checkpoint records [`Self::len`].
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::io("write", &self.path))
    }

    /// A second handle of the file, for [`Self::sync`] on another thread.
    ///
    /// # Errors
    ///
    /// If the operating system has no handle left.
    pub fn handle(&self) -> Result<Self, RunError> {
        let file = self.file.try_clone().map_err(RunError::io("open", &self.path))?;
        Ok(Self { path: self.path.clone(), file, len: self.len })
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file holds no record.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
