//! An index and the file that caches it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::index::cache::{self, FileStamp, Unusable};
use super::{env_paths::EnvPaths, folder, index::Index, labels::List, layout::Part, pack, tars};
use crate::error::{DataError, SourceError};

/// The index of a part, and where it is cached.
#[derive(Debug)]
pub(crate) struct CachedIndex {
    pub(crate) part: Part,
    pub(crate) index: Index,
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
        stamps: vec![],
        notes: vec![],
        part,
    };
    for file in &cached.files {
        match cache::load(file, &cached.part) {
            Ok((index, stamps)) => return Ok(CachedIndex { index, stamps, ..cached }),
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
        let mut failure = Ok(());
        for file in &self.files {
            let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
            let saved =
                folder.and_then(|()| cache::save(file, &self.part, &self.stamps, &self.index));
            match saved {
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
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    // The hash of the path tells data of one name apart in a shared folder.
    let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    let apart = |folder: &Path| folder.join(format!("{name}-{}.vim-index", &hash[..16]));
    if let Some(folder) = folder {
        return vec![apart(folder)];
    }
    let beside = root.with_file_name(format!(".{name}.vim-index"));
    let cache = env_paths.cache.as_deref().map(apart);
    std::iter::once(beside).chain(cache).collect()
}

/// Lists the images of a part.
fn list(part: &Part) -> Result<(Index, Vec<FileStamp>), DataError> {
    let stamp = |path: &Path| FileStamp::of(path).map_err(DataError::io(path));
    let mut stamps: Vec<FileStamp> = part.list().map(stamp).transpose()?.into_iter().collect();
    let list = part.list().map(List::read).transpose()?;
    let (index, more) = match (part, &list) {
        (Part::Classes { root, names }, _) => folder::by_class(root, names)?,
        (Part::Flat { root, .. }, Some(list)) => folder::flat(root, list)?,
        (Part::Flat { root, .. }, None) => {
            return Err(SourceError::Unlabelled(root.clone()).into());
        }
        (Part::Archives { paths, .. }, list) => {
            let stamps: Result<_, _> = paths.iter().map(|path| stamp(path)).collect();
            (tars::index(paths, list.as_ref())?, stamps?)
        }
        (Part::Pack { root }, _) => pack::index(root)?,
    };
    stamps.extend(more);
    Ok((index, stamps))
}
