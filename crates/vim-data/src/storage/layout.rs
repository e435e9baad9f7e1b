//! Recognises the layout of a dataset, and finds its parts.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::folder::Listing;
use crate::error::{DataError, SourceError, listed};

/// One part, such as the training part, as it is on disk. An index belongs to one of these.
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
const VAL: [&str; 3] = ["val", "validation", "valid"];
/// Names of the folder of test images.
const TEST: [&str; 1] = ["test"];
/// The words that archives of training, validation and test images have in their names.
const WORDS: [&[&str]; 3] = [&["train", "training"], &VAL, &["test", "testing"]];
/// What folders are called that hold parts, in lower case.
const OF_PARTS: [&str; 7] = ["train", "training", "val", "validation", "valid", "test", "testing"];
/// Where the Kaggle archive has the parts, from its root or from further in.
const KAGGLE: [&str; 3] = ["ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC"];

/// Which parts of class folders are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataParts {
    /// Those that are there.
    #[default]
    Auto,
    /// Training images alone: validation and test images are held out of them.
    Train,
    /// Training images, and validation images, which are tested.
    TrainVal,
    /// Training and test images.
    TrainTest,
    /// Training, validation and test images.
    TrainValTest,
}

/// Where a dataset is looked for.
pub(crate) struct Sought<'a> {
    /// It holds all parts or the training part alone.
    pub(crate) path: &'a Path,
    /// The validation part, if not in `path`.
    pub(crate) val_path: Option<&'a Path>,
    /// The classes of validation images that lie in no folders of classes.
    pub(crate) list: Option<&'a Path>,
    pub(crate) parts: DataParts,
}

/// The parts of a dataset.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) train: Part,
    pub(crate) val: Option<Part>,
    pub(crate) test: Option<Part>,
    /// Which these are; never [`DataParts::Auto`].
    pub(crate) parts: DataParts,
    /// What lies beside the training part and is not read.
    pub(crate) unread: Vec<PathBuf>,
}

/// A folder, an archive, or several archives of one folder.
type Place = Vec<PathBuf>;

/// What may be read.
#[derive(Default)]
struct Candidates {
    train: Place,
    val: Option<Place>,
    /// The list of the classes of `val` that lies with it.
    list: Option<PathBuf>,
    test: Option<Place>,
    /// Whether these are folders, of which a look tells whether there are classes in them.
    are_folders: bool,
    /// What else lies beside the training part.
    others: Vec<PathBuf>,
}

/// Finds the parts of a dataset.
pub(crate) fn find(sought: &Sought<'_>) -> Result<Found, DataError> {
    // The path without links and `..` identifies a cached index.
    let canonical = |path: &Path| path.canonicalize().map_err(DataError::io(path));
    let path = canonical(sought.path)?;
    let mut all = if path.is_dir() { of_folder(&path, sought.parts)? } else { of_archive(&path) };
    let mut unread = std::mem::take(&mut all.others);
    if let Some(val_path) = sought.val_path {
        let val = canonical(val_path)?;
        if val == path {
            return Err(same(val, "training", "validation"));
        }
        let is_other = |other: &PathBuf| *other != val;
        unread.retain(is_other);
        all.test = all.test.filter(|test| test.iter().all(is_other));
        let replaced = all.val.replace(vec![val.clone()]).unwrap_or_default();
        unread.extend(replaced.into_iter().filter(is_other));
    }
    let has_val = all.val.is_some();
    let parts = match (sought.parts, &all.test) {
        (DataParts::Auto, Some(test)) if all.are_folders && has_classes(&test[0])? => match has_val
        {
            true => DataParts::TrainValTest,
            false => DataParts::TrainTest,
        },
        (DataParts::Auto, Some(_)) if !all.are_folders && !has_val => DataParts::TrainTest,
        (DataParts::Auto, _) if has_val => DataParts::TrainVal,
        (DataParts::Auto, _) => DataParts::Train,
        (given, _) => given,
    };
    let train = part_at(&all.train, None)?.ok_or_else(|| SourceError::Layout(path.clone()))?;
    if let (DataParts::Auto, DataParts::Train, Part::Classes { root, names }) =
        (sought.parts, parts, &train)
    {
        check_no_parts(root, names)?;
    }
    let mut taken = vec![("training", all.train.clone())];
    let mut read = |place: Option<Place>, is_read: bool, what, list: Option<&Path>| {
        if !is_read {
            unread.extend(place.into_iter().flatten());
            return Ok(None);
        }
        let place = place.ok_or_else(|| no_part(train.root(), what))?;
        // Behind links, too.
        let is_shared = |paths: &Place| {
            let mut both = place.iter().flat_map(|one| paths.iter().map(move |other| (one, other)));
            both.any(|(one, other)| one.canonicalize().ok() == other.canonicalize().ok())
        };
        if let Some((first, _)) = taken.iter().find(|(_, paths)| is_shared(paths)) {
            return Err(same(place[0].clone(), first, what));
        }
        taken.push((what, place.clone()));
        let found = part_at(&place, list)?;
        Ok(Some(found.ok_or_else(|| SourceError::Layout(place[0].clone()))?))
    };
    let list = sought.list.or(all.list.as_deref());
    let val = read(
        all.val,
        matches!(parts, DataParts::TrainVal | DataParts::TrainValTest),
        VALIDATION,
        list,
    )?;
    let test = read(
        all.test,
        matches!(parts, DataParts::TrainTest | DataParts::TrainValTest),
        "test",
        None,
    )?;
    // What is read may lie in what is not.
    let is_read = |other: &PathBuf| {
        let other = other.canonicalize().unwrap_or_else(|_| other.clone());
        taken.iter().flat_map(|(_, paths)| paths).any(|path| path.starts_with(&other))
    };
    unread.retain(|other| !is_read(other));
    unread.sort_unstable();
    Ok(Found { train, val, test, parts, unread })
}

const VALIDATION: &str = "validation";

fn same(path: PathBuf, first: &'static str, second: &'static str) -> DataError {
    SourceError::SamePart { path, first, second }.into()
}

fn no_part(train: &Path, what: &'static str) -> DataError {
    let advice = match what {
        VALIDATION => "set `data.val_path` to their folder or archive",
        _ => {
            "`data.parts` asks for them, and there is no `test` folder or archive; `\"auto\"` takes \
             the parts that are there"
        }
    };
    SourceError::NoPart { train: train.to_owned(), what, advice }.into()
}

/// Checks that no class is called as parts are, but for `train` among others.
fn check_no_parts(root: &Path, names: &[String]) -> Result<(), DataError> {
    let odd: Vec<String> = names.iter().filter(|name| is_of_parts(name)).cloned().collect();
    if odd.is_empty() || (odd == ["train"] && names.len() > 1) {
        return Ok(());
    }
    Err(SourceError::PartsOrClasses { path: root.to_owned(), names: listed(&odd) }.into())
}

fn is_of_parts(name: &str) -> bool {
    OF_PARTS.contains(&name.to_lowercase().as_str())
}

/// The parts in a folder that holds several, or the folder itself.
fn of_folder(path: &Path, parts: DataParts) -> Result<Candidates, DataError> {
    let bases = std::iter::once(path.to_owned()).chain(KAGGLE.map(|inner| path.join(inner)));
    for base in bases {
        let train = base.join("train");
        if !train.is_dir() {
            continue;
        }
        let mut names = Listing::of(&base)?.folders;
        if is_class(&train, &names)? {
            continue;
        }
        let mut take = |wanted: &[&str]| {
            let name = wanted.iter().find(|&&name| base.join(name).is_dir())?;
            names.retain(|other| other != name);
            Some(vec![base.join(name)])
        };
        let (_, val, test) = (take(&["train"]), take(&VAL), take(&TEST));
        let others = names.iter().map(|name| base.join(name)).collect();
        let (train, list) = (vec![train], kaggle_list(&base));
        return Ok(Candidates { train, val, list, test, are_folders: true, others });
    }
    // Archives that are named after the part they hold.
    let names = Listing::of(path)?.archives;
    let mut others: Place = names.iter().map(|name| path.join(name)).collect();
    let [train, val, test] = WORDS.map(|words| {
        let paths: Place = others.extract_if(.., |path| has_word(path, words)).collect();
        (!paths.is_empty()).then_some(paths)
    });
    match (train, val, test) {
        // Where validation images are asked for, all archives are training images without any.
        (Some(train), val, test)
            if val.is_some() || (test.is_some() && parts != DataParts::TrainVal) =>
        {
            Ok(Candidates { train, val, test, others, ..Candidates::default() })
        }
        _ => Ok(Candidates { train: vec![path.to_owned()], ..Candidates::default() }),
    }
}

/// Whether the name of an archive has one of `words` between what are no letters.
fn has_word(path: &Path, words: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.split(|letter: char| !letter.is_alphabetic()).any(|word| words.contains(&word))
}

/// Whether a folder or an archive is called as test images are.
pub(crate) fn is_test(path: &Path) -> bool {
    has_word(path, WORDS[2])
}

/// An archive, and those beside it: `x_val.tar` and `x_test.tar` beside `x_train.tar`.
fn of_archive(path: &Path) -> Candidates {
    let beside = |names: &[&str]| {
        let name = path.file_name()?.to_str()?;
        let mut all = names.iter().map(|other| path.with_file_name(name.replace("train", other)));
        Some(vec![all.find(|other| other != path && other.is_file())?])
    };
    let (val, test) = (beside(&VAL), beside(&TEST));
    Candidates { train: vec![path.to_owned()], val, test, ..Candidates::default() }
}

/// Whether `train` is a class among others that are called `names`, and no part: it holds images,
/// and none of the others is a part.
fn is_class(train: &Path, names: &[String]) -> Result<bool, DataError> {
    if names.len() < 2 || names.iter().any(|name| name != "train" && is_of_parts(name)) {
        return Ok(false);
    }
    Ok(!has_classes(train)? && !Listing::of(train)?.images.is_empty())
}

/// Whether a folder has images of classes in it: folders, archives or a pack.
fn has_classes(path: &Path) -> Result<bool, DataError> {
    let Listing { folders, archives, .. } = Listing::of(path)?;
    Ok(!folders.is_empty() || !archives.is_empty() || path.join(PACK_INDEX).is_file())
}

/// The part at a place; `None` if it has no known layout.
fn part_at(place: &[PathBuf], list: Option<&Path>) -> Result<Option<Part>, DataError> {
    let [first, _, ..] = place else {
        return place.first().map_or(Ok(None), |only| part(only, list));
    };
    let root = first.parent().unwrap_or(first).to_owned();
    Ok(Some(Part::Archives { root, paths: place.to_owned(), list: list.map(Path::to_owned) }))
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

/// Kaggle's list, which lies at the root of its archive, above the images.
fn kaggle_list(base: &Path) -> Option<PathBuf> {
    let above = base.ancestors().take(4).map(|folder| folder.join("LOC_val_solution.csv"));
    above.into_iter().find(|path| path.is_file())
}
