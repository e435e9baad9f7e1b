//! An index kept in a file between runs.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `VIMINDEX` |
//! | 4 | version, little-endian |
//! | 8 | length of the rest after the hash, little-endian |
//! | 32 | BLAKE3 of the rest |
//! | rest | the part, its stamps, the index, what is known of its files, in postcard's encoding |
//!
//! A file of another version or with another hash, a file of something else, and one older than the
//! data are ignored: the index is made again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::index::{FileStamp, Index, Known};
use super::layout::{PACK_INDEX, Part};
use super::zips::Zipped;
use super::{EnvPaths, folder, halves, labels::List, tars};
use crate::error::{DataError, SourceError};

const MAGIC: &[u8; 8] = b"VIMINDEX";
/// Must be raised with every change of a type that is serialised in an index that is kept, and of
/// what is listed.
const VERSION: u32 = 4;
/// Of the index of a pack, which cannot be made anew: packs of earlier versions must be readable.
pub(super) const OF_PACKS: u32 = 1;
const HEADER: usize = 8 + 4 + 8 + 32;

/// The index of a part, and where it is cached.
#[derive(Debug)]
pub(crate) struct CachedIndex {
    pub(crate) part: Part,
    pub(crate) index: Index,
    /// What is known of the files.
    pub(crate) known: Mutex<Known>,
    stamps: Vec<FileStamp>,
    /// Files that may hold it, in order of preference.
    files: Vec<PathBuf>,
    /// Notes on loading and saving, a line each.
    pub(crate) notes: Vec<String>,
}

/// Loads the cached index of a part if the data have not changed, else lists the part and caches
/// the index.
pub(crate) fn open(
    part: Part,
    folder: Option<&Path>,
    env_paths: &EnvPaths,
) -> Result<CachedIndex, DataError> {
    let mut cached = CachedIndex {
        files: files(&part, folder, env_paths),
        index: Index::default(),
        known: Mutex::default(),
        stamps: vec![],
        notes: vec![],
        part,
    };
    for file in &cached.files {
        match load(file, &cached.part) {
            Ok((index, stamps, known)) => {
                let known = Mutex::new(known);
                return Ok(CachedIndex { index, stamps, known, ..cached });
            }
            Err(Unusable::Absent) => {}
            Err(why) => cached.notes.push(format!("`{}` is made anew: {why}", file.display())),
        }
    }
    (cached.index, cached.stamps) = list(&cached.part)?;
    if let Err((file, error)) = cached.save() {
        cached.notes.push(format!(
            "the list of `{}` cannot be kept in `{}` ({error}), the next run makes it again; set \
             data.index_cache",
            cached.part.root().display(),
            file.display()
        ));
    }
    Ok(cached)
}

impl CachedIndex {
    /// Writes the index to the first of its files that is writable.
    pub(super) fn save(&self) -> Result<(), (PathBuf, io::Error)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failure = Ok(());
        for file in &self.files {
            let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
            let content = (&self.part, &self.stamps, &self.index, &*known, &self.index.zipped);
            match folder.and_then(|()| write(file, VERSION, &content)) {
                Ok(()) => return Ok(()),
                // The last failure is reported: the user can most easily change that folder.
                Err(error) => failure = Err((file.clone(), error)),
            }
        }
        failure
    }
}

/// The files that may hold the index of a part.
fn files(part: &Part, folder: Option<&Path>, env_paths: &EnvPaths) -> Vec<PathBuf> {
    let root = part.root();
    let mut name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Part::Half { folders, .. } = part
        && let Some(first) = folders.first()
    {
        // An archive holds several, of which a configuration may name others.
        let hash = blake3::hash(folders.join("\n").as_bytes()).to_hex();
        let first = first.replace(|letter: char| !letter.is_alphanumeric(), "-");
        name.push_str(&format!("-{first}-{}", &hash[..8]));
    } else if let Part::Tree { folder, .. } = part {
        name.push_str(&format!("-{folder}"));
    }
    // The hash of the path tells data of one name apart in a shared folder.
    let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    let apart = |folder: &Path| folder.join(format!("{name}-{}.vim-index", &hash[..16]));
    if let Some(folder) = folder {
        return vec![apart(folder)];
    }
    let beside = root.with_file_name(format!(".{name}.vim-index"));
    let cache = env_paths.cache.as_deref().map(apart);
    iter::once(beside).chain(cache).collect()
}

/// Lists the images of a part.
fn list(part: &Part) -> Result<(Index, Vec<FileStamp>), DataError> {
    let stamp = |path: &Path| FileStamp::of(path).map_err(DataError::io(path));
    let mut stamps: Vec<FileStamp> = part.list().map(stamp).transpose()?.into_iter().collect();
    let (index, more) = match part {
        Part::Classes { root, names } => folder::by_class(root, names)?,
        Part::Flat { root, list } => folder::flat(root, &List::read(list)?)?,
        Part::Archives { paths, list, .. } => {
            let list = list.as_deref().map(List::read).transpose()?;
            let stamps: Result<_, _> = paths.iter().map(|path| stamp(path)).collect();
            (tars::index(paths, list.as_ref())?, stamps?)
        }
        Part::Pack { root } => of_pack(root)?,
        Part::Half { root, folders } => halves::list(root, folders)?,
        Part::Tree { root, folder } => halves::list(root, std::slice::from_ref(folder))?,
    };
    stamps.extend(more);
    Ok((index, stamps))
}

/// Content of the index of a pack.
#[derive(Serialize, Deserialize)]
pub(super) struct PackIndex {
    /// Containers are the shards' file names.
    pub(super) index: Index,
    /// Length of each shard in bytes.
    pub(super) lengths: Vec<u64>,
}

/// The index of a pack, wherever it has been copied to.
fn of_pack(root: &Path) -> Result<(Index, Vec<FileStamp>), DataError> {
    let wrong = |why: String| SourceError::Pack { path: root.to_owned(), why };
    let file = root.join(PACK_INDEX);
    let PackIndex { mut index, lengths } = read(&file, OF_PACKS)
        .map_err(|why| wrong(format!("its `{PACK_INDEX}` cannot be used: {why}")))?;
    let mut stamps = vec![FileStamp::of(&file).map_err(DataError::io(&file))?];
    for (shard, length) in index.containers.iter_mut().zip(lengths) {
        *shard = root.join(&*shard);
        let stamp = FileStamp::of(shard).map_err(DataError::io(shard))?;
        if stamp.bytes != length {
            let (name, bytes) = (shard.display(), stamp.bytes);
            return Err(wrong(format!("`{name}` has {bytes} bytes of {length}")).into());
        }
        stamps.push(stamp);
    }
    Ok((index, stamps))
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

/// Loads the index of `part` from `file`, unless something that it was made from has changed.
fn load(file: &Path, part: &Part) -> Result<(Index, Vec<FileStamp>, Known), Unusable> {
    type Content = (Part, Vec<FileStamp>, Index, Known, Vec<Zipped>);
    let (of, stamps, mut index, known, zipped): Content = read(file, VERSION)?;
    index.zipped = zipped;
    match of == *part && stamps.iter().all(FileStamp::is_current) {
        true => Ok((index, stamps, known)),
        false => Err(Unusable::Stale),
    }
}

/// What the names of temporary files begin with, and how many letters and digits follow.
const TEMPORARY: &str = ".vim-index-";
const RANDOM: usize = 6;
/// Nobody writes an index for longer.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes the temporary files that processes which were killed have left in a folder.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().to_str().is_some_and(|name| {
            let random = name.strip_prefix(TEMPORARY).unwrap_or_default();
            random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_temporary && age().is_some_and(|age| age > ABANDONED) {
            // One that cannot be removed harms nobody.
            _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes to a temporary file beside `file`, then renames: a reader sees all of it or none.
pub(crate) fn write(file: &Path, version: u32, content: &impl Serialize) -> io::Result<()> {
    let payload = postcard::to_stdvec(content).map_err(io::Error::other)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    sweep(folder);
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY);
    // Other users of the data may read it; the process's umask still counts.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut temporary = builder.tempfile_in(folder)?;
    temporary.write_all(MAGIC)?;
    temporary.write_all(&version.to_le_bytes())?;
    temporary.write_all(&(payload.len() as u64).to_le_bytes())?;
    temporary.write_all(blake3::hash(&payload).as_bytes())?;
    temporary.write_all(&payload)?;
    temporary.as_file().sync_all()?;
    temporary.persist(file)?;
    Ok(())
}

/// Reads what [`write()`] wrote of this version, unless its length is not the one that it states.
pub(crate) fn read<T: DeserializeOwned>(file: &Path, version: u32) -> Result<T, Unusable> {
    let unusable = |error: io::Error| {
        if error.kind() == io::ErrorKind::NotFound {
            return Unusable::Absent;
        }
        match error.kind() == io::ErrorKind::UnexpectedEof {
            true => Unusable::Damaged,
            false => Unusable::Unreadable(error),
        }
    };
    let mut open = File::open(file).map_err(unusable)?;
    let mut header = [0; HEADER];
    open.read_exact(&mut header).map_err(unusable)?;
    let (magic, rest) = header.split_at(8);
    let (found, rest) = rest.split_at(4);
    let (length, hash) = rest.split_at(8);
    if magic != MAGIC {
        return Err(Unusable::Damaged);
    }
    if found != version.to_le_bytes() {
        return Err(Unusable::Version);
    }
    let there = open.metadata().map_err(unusable)?.len().saturating_sub(HEADER as u64);
    if length != there.to_le_bytes() {
        return Err(Unusable::Damaged);
    }
    let mut payload = Vec::new();
    open.read_to_end(&mut payload).map_err(unusable)?;
    if hash != blake3::hash(&payload).as_bytes() {
        return Err(Unusable::Damaged);
    }
    postcard::from_bytes(&payload).map_err(|_| Unusable::Damaged)
}
