//! An index in a file.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `VIMINDEX` |
//! | 4 | version, little-endian |
//! | 8 | length of the rest after the hash, little-endian |
//! | 32 | BLAKE3 of the rest |
//! | rest | what was listed, its witnesses and the index, in postcard's encoding |
//!
//! A file of another version, with another hash, of something else, or older than the data is not used:
//! the index is made anew.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Index;

const MAGIC: &[u8; 8] = b"VIMINDEX";
/// To be raised with every change of anything that is serialised below.
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 8 + 32;

/// A file or folder that an index was made from, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Witness {
    path: PathBuf,
    bytes: u64,
    /// Seconds and nanoseconds since 1970; a folder's change when a file comes or goes.
    modified: (u64, u32),
}

impl Witness {
    /// What `path` is now.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        // Folders' lengths say nothing, and differ between file systems that are copies of each other.
        let bytes = if metadata.is_dir() { 0 } else { metadata.len() };
        let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = (since.as_secs(), since.subsec_nanos());
        Ok(Self { path: path.to_owned(), bytes, modified })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells this file, in this version, from others; 16 hexadecimal digits.
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

/// Why a kept index is not used.
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

/// What is in the file, to be read.
#[derive(Deserialize)]
struct Content<T> {
    /// What was listed, and how.
    of: T,
    witnesses: Vec<Witness>,
    index: Index,
}

/// The same, to be written.
#[derive(Serialize)]
struct Borrowed<'a, T> {
    of: &'a T,
    witnesses: &'a [Witness],
    index: &'a Index,
}

/// The index of `of` kept in `file`, if nothing that it was made from has changed.
pub(crate) fn load<T: DeserializeOwned + PartialEq>(
    file: &Path,
    of: &T,
) -> Result<(Index, Vec<Witness>), Unusable> {
    let Content { of: kept, witnesses, index } = read::<Content<T>>(file)?;
    let unchanged = |witness: &Witness| Witness::of(&witness.path).is_ok_and(|now| now == *witness);
    match kept == *of && witnesses.iter().all(unchanged) {
        true => Ok((index, witnesses)),
        false => Err(Unusable::Stale),
    }
}

/// Keeps the index of `of` in `file`.
pub(crate) fn save<T: Serialize>(
    file: &Path,
    of: &T,
    witnesses: &[Witness],
    index: &Index,
) -> io::Result<()> {
    write(file, &Borrowed { of, witnesses, index })
}

/// Writes to a temporary file beside `file`, then renames: a reader sees all of it or none.
pub(crate) fn write(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let payload = postcard::to_stdvec(content).map_err(io::Error::other)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".vim-index-");
    // Others who share the data may read it; the process's mask still counts.
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

/// What [`write`] wrote.
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
