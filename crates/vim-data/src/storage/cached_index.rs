//! An index with the file that it is kept in.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::env_paths::Surroundings;
use super::index::cache::{Unusable, Witness};
use super::index::{Index, cache};
use crate::error::DataError;

use super::folder;
use super::labels::List;
use super::layout::Part;
use super::{pack, tars};
use crate::error::SourceError;

/// A part, its index, and where that is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) part: Part,
    pub(crate) index: Index,
    witnesses: Vec<Witness>,
    /// Files that may hold it, the first choice first.
    files: Vec<PathBuf>,
    /// What happened on the way, a line each.
    pub(crate) notes: Vec<String>,
}

/// Reads the index of a part if it is kept and the data have not changed, else makes and keeps it.
pub(crate) fn open(
    part: Part,
    folder: Option<&Path>,
    surroundings: &Surroundings,
) -> Result<Kept, DataError> {
    let mut kept = Kept {
        files: files(&part, folder, surroundings),
        index: Index::default(),
        witnesses: vec![],
        notes: vec![],
        part,
    };
    for file in &kept.files {
        match cache::load(file, &kept.part) {
            Ok((index, witnesses)) => return Ok(Kept { index, witnesses, ..kept }),
            Err(Unusable::Absent) => {}
            Err(why) => kept.notes.push(format!("`{}` is made anew: {why}", file.display())),
        }
    }
    (kept.index, kept.witnesses) = list(&kept.part)?;
    if let Err((file, error)) = kept.keep() {
        kept.notes.push(format!(
            "the list of `{}` cannot be kept in `{}` ({error}), the next run makes it again; set data.index_cache",
            kept.part.root().display(),
            file.display()
        ));
    }
    Ok(kept)
}

impl Kept {
    /// Writes the index to the first of its files that can be written.
    pub(super) fn keep(&self) -> Result<(), (PathBuf, io::Error)> {
        let mut failure = Ok(());
        for file in &self.files {
            let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
            let saved =
                folder.and_then(|()| cache::save(file, &self.part, &self.witnesses, &self.index));
            match saved {
                Ok(()) => return Ok(()),
                // The last one counts: it is the one that the user can do most about.
                Err(error) => failure = Err((file.clone(), error)),
            }
        }
        failure
    }
}

/// The files that may hold the index of a part.
fn files(part: &Part, folder: Option<&Path>, surroundings: &Surroundings) -> Vec<PathBuf> {
    let root = part.root();
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    // In one folder for all, the path tells data of one name apart.
    let hash = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    let apart = |folder: &Path| folder.join(format!("{name}-{}.vim-index", &hash[..16]));
    if let Some(folder) = folder {
        return vec![apart(folder)];
    }
    let beside = root.with_file_name(format!(".{name}.vim-index"));
    let cache = surroundings.cache.as_deref().map(apart);
    std::iter::once(beside).chain(cache).collect()
}

/// Lists a part anew.
fn list(part: &Part) -> Result<(Index, Vec<Witness>), DataError> {
    let witness = |path: &Path| Witness::of(path).map_err(DataError::io(path));
    let mut witnesses: Vec<Witness> = part.list().map(witness).transpose()?.into_iter().collect();
    let list = part.list().map(List::read).transpose()?;
    let (index, more) = match (part, &list) {
        (Part::Classes { root, names }, _) => folder::by_class(root, names)?,
        (Part::Flat { root, .. }, Some(list)) => folder::flat(root, list)?,
        (Part::Flat { root, .. }, None) => {
            return Err(SourceError::Unlabelled { path: root.clone() }.into());
        }
        (Part::Archives { paths, .. }, list) => {
            let witnesses: Result<_, _> = paths.iter().map(|path| witness(path)).collect();
            (tars::index(paths, list.as_ref())?, witnesses?)
        }
        (Part::Pack { root }, _) => pack::index(root)?,
    };
    witnesses.extend(more);
    Ok((index, witnesses))
}
