//! Crash-safe writing: existing files are complete, and reported writes are on the disk.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Serialize;

use crate::RunError;
pub use crate::temporary::{Temporary, folder_of};

/// The disk operations of a checkpoint; tests let any of them fail.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Makes a folder and its parents.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    /// Makes an empty file beside `path`, to be written and then to take its place.
    fn temporary(&self, path: &Path) -> io::Result<Temporary> {
        Temporary::beside(path)
    }

    /// Writes a new file, or one that is not yet in its place; returns when it is on the disk.
    /// Nothing is written through a link.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = File::options();
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let options = options.write(true).create(true).truncate(true).custom_flags(no_link);
        let mut file = options.open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Renames a file or folder; replaces an existing file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Returns when the names in a folder are on the disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match File::open(path)?.sync_all() {
            // Some network and user-space file systems cannot sync folders, and order renames.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }

    /// Removes a file, or a folder with its content.
    fn remove(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {}

/// Replaces the file `path` atomically: a crash leaves the old or the new content. Of several
/// processes that do so at once each writes a file of its own, and the last one's stays.
pub fn replace(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(storage, path, |temporary| storage.write(temporary, bytes))
}

/// [`replace`] with a file too large for memory: `write` writes it, at the path that it gets, where
/// there is an empty file, and returns when it is on the disk.
pub fn replace_with(
    storage: &dyn Storage,
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = storage.temporary(path)?;
    write(temporary.path())?;
    if !temporary.is_at_its_path()? {
        let problem = format!("{} was removed by another process", temporary.path().display());
        return Err(io::Error::other(problem));
    }
    storage.rename(temporary.path(), path)?;
    temporary.renamed();
    storage.sync_dir(folder_of(path))
}

/// Writes a whole file; makes its folder if needed.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(RunError::io("make", folder))?;
    }
    replace(&Disk, path, bytes).map_err(RunError::io("write", path))
}

/// Writes `value` as the file `name` in the folder `run`.
pub(crate) fn write_json(
    storage: &dyn Storage,
    run: &Path,
    name: &str,
    value: &impl Serialize,
) -> Result<(), RunError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| RunError::Internal(format!("{name}: {error}")))?;
    text.push('\n');
    let path = run.join(name);
    replace(storage, &path, text.as_bytes()).map_err(RunError::io("write", path))
}
