//! Recognises the layout of a dataset, and finds its two parts.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{folder::Listing, pack};
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
}

impl Part {
    /// The file or folder that it is found at.
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::Classes { root, .. }
            | Self::Flat { root, .. }
            | Self::Archives { root, .. }
            | Self::Pack { root } => root,
        }
    }

    /// The list of classes it needs.
    pub(crate) fn list(&self) -> Option<&Path> {
        match self {
            Self::Flat { list, .. } => Some(list),
            Self::Archives { list, .. } => list.as_deref(),
            Self::Classes { .. } | Self::Pack { .. } => None,
        }
    }
}

/// Names of the folder of validation images.
const VAL: [&str; 2] = ["val", "validation"];
/// Where the Kaggle archive has the two parts, from its root or from further in.
const KAGGLE: [&str; 3] = ["ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC"];
/// The classes of Kaggle's validation images.
const KAGGLE_LIST: &str = "LOC_val_solution.csv";

/// Finds the training and the validation part of a dataset.
///
/// `path` holds both or the training part alone, `val_path` the validation part, `list` the classes
/// of validation images that lie in no folders of classes.
pub(crate) fn find(
    path: &Path,
    val_path: Option<&Path>,
    list: Option<&Path>,
) -> Result<(Part, Part), DataError> {
    let path = canonical(path)?;
    let (train, found) = match path.is_dir() {
        true => of_folder(&path, list)?,
        false => (archive(&path, None), sibling(&path)),
    };
    let val = match (val_path, found) {
        (Some(path), _) => part(&canonical(path)?, list)?,
        (None, Some(Val::FoundImage(part))) => Some(part),
        (None, Some(Val::At(path))) => part(&path, list)?,
        (None, None) => None,
    };
    let root = train.root().to_owned();
    let val = val.ok_or(SourceError::NoValidation(root))?;
    Ok((train, val))
}

/// Validation images found beside the training images.
enum Val {
    FoundImage(Part),
    At(PathBuf),
}

/// A folder that holds both parts, or the training part alone.
fn of_folder(path: &Path, list: Option<&Path>) -> Result<(Part, Option<Val>), DataError> {
    let layout = || SourceError::Layout(path.to_owned());
    let bases = std::iter::once(path.to_owned()).chain(KAGGLE.map(|inner| path.join(inner)));
    for base in bases {
        let train = base.join("train");
        if !train.is_dir() {
            continue;
        }
        let train = part(&train, None)?.ok_or_else(layout)?;
        let val = VAL.map(|name| base.join(name)).into_iter().find(|path| path.is_dir());
        let val = match (val, list) {
            (Some(val), None) if Listing::of(&val)?.folders.is_empty() => {
                let list = kaggle_list(&base);
                part(&val, list.as_deref())?.map(Val::FoundImage)
            }
            (val, _) => val.map(Val::At),
        };
        return Ok((train, val));
    }
    if let Some((train, val)) = archives_of_both(path, list)? {
        return Ok((train, Some(Val::FoundImage(val))));
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
    if pack::is_pack(path) {
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
fn sibling(train: &Path) -> Option<Val> {
    let name = train.file_name()?.to_str()?;
    let sibling = |val| train.with_file_name(name.replace("train", val));
    let found = VAL.map(sibling).into_iter().find(|path| path != train && path.is_file());
    found.map(Val::At)
}

/// Kaggle's list, which lies at the root of its archive, above the images.
fn kaggle_list(base: &Path) -> Option<PathBuf> {
    let above = base.ancestors().take(4).map(|folder| folder.join(KAGGLE_LIST));
    above.into_iter().find(|path| path.is_file())
}

/// The path without links and `..`, which identifies a cached index.
fn canonical(path: &Path) -> Result<PathBuf, DataError> {
    path.canonicalize().map_err(DataError::io(path))
}
