//! An index in a file.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `VIMINDEX` |
//! | 4 | version, little-endian |
//! | 8 | length of the rest after the hash, little-endian |
//! | 32 | BLAKE3 of the rest |
//! | rest | what was listed, its stamps and the index, in postcard's encoding |
//!
//! A file of another version or with another hash, a file of something else, and one older than the
//! data are ignored: the index is made again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fs, time::UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Index;

const MAGIC: &[u8; 8] = b"VIMINDEX";
/// Must be raised with every change of a type that is serialised below.
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 8 + 32;

/// The state of a file or folder when an index was made from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    path: PathBuf,
    bytes: u64,
    /// Seconds and nanoseconds since 1970. A folder's changes when a file is added or removed.
    modified: (u64, u32),
}

impl FileStamp {
    /// The present state of `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        // A folder's length means nothing, and differs between copies on two file systems.
        let bytes = if metadata.is_dir() { 0 } else { metadata.len() };
        let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = (since.as_secs(), since.subsec_nanos());
        Ok(Self { path: path.to_owned(), bytes, modified })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Identifies this version of this file; 16 hexadecimal digits.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.path.as_os_str().as_encoded_bytes());
        for word in [self.bytes, self.modified.0, u64::from(self.modified.1)] {
            hasher.update(&word.to_le_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Length of a file, 0 of a folder.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Why a cached index is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("there is none")]
    Absent,
    #[error("it cannot be read ({0})")]
    Unreadable(io::Error),
    #[error("it is damaged")]
    Damaged,
    #[error("another version of this program wrote it")]
    Version,
    #[error("the data have changed")]
    Stale,
}

/// The content of the file, for reading.
#[derive(Deserialize)]
struct Content<T> {
    /// What was listed, and how.
    of: T,
    stamps: Vec<FileStamp>,
    index: Index,
}

/// The content of the file, for writing.
#[derive(Serialize)]
struct Borrowed<'a, T> {
    of: &'a T,
    stamps: &'a [FileStamp],
    index: &'a Index,
}

/// Loads the index of `of` from `file`, unless something that it was made from has changed.
pub(crate) fn load<T: DeserializeOwned + PartialEq>(
    file: &Path,
    of: &T,
) -> Result<(Index, Vec<FileStamp>), Unusable> {
    let Content { of: kept, stamps, index } = read::<Content<T>>(file)?;
    let unchanged = |stamp: &FileStamp| FileStamp::of(&stamp.path).is_ok_and(|now| now == *stamp);
    match kept == *of && stamps.iter().all(unchanged) {
        true => Ok((index, stamps)),
        false => Err(Unusable::Stale),
    }
}

/// Saves the index of `of` in `file`.
pub(crate) fn save<T: Serialize>(
    file: &Path,
    of: &T,
    stamps: &[FileStamp],
    index: &Index,
) -> io::Result<()> {
    write(file, &Borrowed { of, stamps, index })
}

/// Writes to a temporary file beside `file`, then renames: a reader sees all of it or none.
pub(crate) fn write(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let payload = postcard::to_stdvec(content).map_err(io::Error::other)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".vim-index-");
    // Other users of the data may read it; the process's umask still counts.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut temporary = builder.tempfile_in(folder)?;
    temporary.write_all(MAGIC)?;
    temporary.write_all(&VERSION.to_le_bytes())?;
    temporary.write_all(&(payload.len() as u64).to_le_bytes())?;
    temporary.write_all(blake3::hash(&payload).as_bytes())?;
    temporary.write_all(&payload)?;
    temporary.as_file().sync_all()?;
    temporary.persist(file)?;
    Ok(())
}

/// Reads what [`write()`] wrote.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Unusable> {
    let bytes = fs::read(file).map_err(|error| match error.kind() == io::ErrorKind::NotFound {
        true => Unusable::Absent,
        false => Unusable::Unreadable(error),
    })?;
    let (header, payload) = bytes.split_at_checked(HEADER).ok_or(Unusable::Damaged)?;
    let (magic, rest) = header.split_at(8);
    let (version, rest) = rest.split_at(4);
    let (length, hash) = rest.split_at(8);
    if magic != MAGIC {
        return Err(Unusable::Damaged);
    }
    if version != VERSION.to_le_bytes() {
        return Err(Unusable::Version);
    }
    if length != (payload.len() as u64).to_le_bytes() || hash != blake3::hash(payload).as_bytes() {
        return Err(Unusable::Damaged);
    }
    postcard::from_bytes(payload).map_err(|_| Unusable::Damaged)
}
