//! Recognises the layout of a dataset, and finds its two parts.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::Listing;
use crate::error::{DataError, SourceError};

/// One part, training or validation, as it is on disk. An index belongs to one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// A folder of classes.
    Classes {
        root: PathBuf,
        /// Names of the folders in it, sorted.
        names: Vec<String>,
    },
    /// Images in one folder, their classes in a list.
    Flat { root: PathBuf, list: PathBuf },
    /// Archives, with a list of classes unless they name the classes themselves.
    Archives {
        /// The archive, or the folder that holds them.
        root: PathBuf,
        paths: Vec<PathBuf>,
        list: Option<PathBuf>,
    },
    /// A folder that `vim-train data pack` wrote.
    Pack { root: PathBuf },
    /// The images or the label maps of pairs, which have no classes: a folder, without `folders`,
    /// or those of an archive that are in one of these.
    Half { root: PathBuf, folders: Vec<String> },
    /// Images without classes: a folder, or those of an archive that are in a folder of this name.
    Tree { root: PathBuf, folder: String },
}

impl Part {
    /// The file or folder that it is found at.
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::Classes { root, .. }
            | Self::Flat { root, .. }
            | Self::Archives { root, .. }
            | Self::Pack { root }
            | Self::Half { root, .. }
            | Self::Tree { root, .. } => root,
        }
    }

    /// The list of classes it needs.
    pub(crate) fn list(&self) -> Option<&Path> {
        match self {
            Self::Flat { list, .. } => Some(list),
            Self::Archives { list, .. } => list.as_deref(),
            Self::Classes { .. } | Self::Pack { .. } | Self::Half { .. } | Self::Tree { .. } => {
                None
            }
        }
    }
}

/// The file that marks a folder as a pack.
pub(super) const PACK_INDEX: &str = "pack.index";
/// Names of the folder of validation images.
const VAL: [&str; 2] = ["val", "validation"];
/// Where the Kaggle archive has the two parts, from its root or from further in.
const KAGGLE: [&str; 3] = ["ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC"];

/// Finds the training and the validation part of a dataset.
///
/// `path` holds both or the training part alone, `val_path` the validation part, `list` the classes
/// of validation images that lie in no folders of classes.
pub(crate) fn find(
    path: &Path,
    val_path: Option<&Path>,
    list: Option<&Path>,
) -> Result<(Part, Part), DataError> {
    // The path without links and `..` identifies a cached index.
    let canonical = |path: &Path| path.canonicalize().map_err(DataError::io(path));
    let path = canonical(path)?;
    let (train, found) = match path.is_dir() {
        true => of_folder(&path, list)?,
        false => (archive(&path, None), sibling(&path).map(|val| archive(&val, list))),
    };
    let val = match val_path {
        Some(path) => part(&canonical(path)?, list)?,
        None => found,
    };
    let root = train.root().to_owned();
    Ok((train, val.ok_or(SourceError::NoValidation(root))?))
}

/// A folder that holds both parts, or the training part alone.
fn of_folder(path: &Path, list: Option<&Path>) -> Result<(Part, Option<Part>), DataError> {
    let layout = || SourceError::Layout(path.to_owned());
    let bases = std::iter::once(path.to_owned()).chain(KAGGLE.map(|inner| path.join(inner)));
    for base in bases {
        let train = base.join("train");
        if !train.is_dir() {
            continue;
        }
        let train = part(&train, None)?.ok_or_else(layout)?;
        let val = VAL.map(|name| base.join(name)).into_iter().find(|path| path.is_dir());
        let list = list.map(Path::to_owned).or_else(|| kaggle_list(&base));
        let val = val.map(|val| part(&val, list.as_deref())).transpose()?;
        return Ok((train, val.flatten()));
    }
    if let Some((train, val)) = archives_of_both(path, list)? {
        return Ok((train, Some(val)));
    }
    Ok((part(path, None)?.ok_or_else(layout)?, None))
}

/// Archives in one folder that are named after the part they hold.
fn archives_of_both(path: &Path, list: Option<&Path>) -> Result<Option<(Part, Part)>, DataError> {
    let names = Listing::of(path)?.archives;
    let of = |word: &str, list: Option<&Path>| {
        let named = |name: &&String| name.to_ascii_lowercase().contains(word);
        let paths: Vec<PathBuf> = names.iter().filter(named).map(|name| path.join(name)).collect();
        let root = match paths.as_slice() {
            [] => return None,
            [only] => only.clone(),
            [_, ..] => path.to_owned(),
        };
        Some(Part::Archives { root, paths, list: list.map(Path::to_owned) })
    };
    Ok(of("train", None).zip(of("val", list)))
}

/// The part at one path; `None` if it has no known layout.
fn part(path: &Path, list: Option<&Path>) -> Result<Option<Part>, DataError> {
    if !path.is_dir() {
        return Ok(Some(archive(path, list)));
    }
    let root = path.to_owned();
    if path.join(PACK_INDEX).is_file() {
        return Ok(Some(Part::Pack { root }));
    }
    let Listing { folders, images, archives, .. } = Listing::of(path)?;
    if !folders.is_empty() {
        return Ok(Some(Part::Classes { root, names: folders }));
    }
    if !archives.is_empty() {
        let paths = archives.iter().map(|name| path.join(name)).collect();
        return Ok(Some(Part::Archives { root, paths, list: list.map(Path::to_owned) }));
    }
    match (images.is_empty(), list) {
        (true, _) => Ok(None),
        (false, Some(list)) => Ok(Some(Part::Flat { root, list: list.to_owned() })),
        (false, None) => Err(SourceError::Unlabelled(root).into()),
    }
}

fn archive(path: &Path, list: Option<&Path>) -> Part {
    let (root, paths) = (path.to_owned(), vec![path.to_owned()]);
    Part::Archives { root, paths, list: list.map(Path::to_owned) }
}

/// `x_val.tar` beside `x_train.tar`.
fn sibling(train: &Path) -> Option<PathBuf> {
    let name = train.file_name()?.to_str()?;
    let sibling = |val| train.with_file_name(name.replace("train", val));
    VAL.map(sibling).into_iter().find(|path| path != train && path.is_file())
}

/// Kaggle's list, which lies at the root of its archive, above the images.
fn kaggle_list(base: &Path) -> Option<PathBuf> {
    let above = base.ancestors().take(4).map(|folder| folder.join("LOC_val_solution.csv"));
    above.into_iter().find(|path| path.is_file())
}
