//! Where the images and the annotations of each part are, in the layouts that programs export.

use std::fs;
use std::path::{Path, PathBuf};

use super::names;
use crate::coco::CocoAnnotations;
use crate::datasets::config::DataConfig;
use crate::error::{DataError, Location, SourceError};
use crate::input::InputKind;
use crate::storage::zips::read_entry;

/// A part of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartOf {
    Train,
    Val,
    Test,
}

/// The images of a part, and its annotations.
pub(super) struct Found {
    /// A folder or a zip.
    pub(super) images: PathBuf,
    /// What the folder is called, in a zip too.
    pub(super) folder: String,
    pub(super) annotations: CocoAnnotations,
}

impl PartOf {
    pub(super) const ALL: [Self; 3] = [Self::Train, Self::Val, Self::Test];

    /// Names that files and folders of the part may have, the published ones first.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Train => &["train2017", "train", "Train", "training"],
            Self::Val => &["val2017", "val", "valid", "validation", "Val", "Valid", "Validation"],
            Self::Test => &["test", "Test"],
        }
    }

    /// What it is called in messages.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Val => "validation",
            Self::Test => "test",
        }
    }

    /// The images and the annotations that keys name.
    ///
    /// # Errors
    /// If there is nothing where one says.
    pub(super) fn keys(self, config: &DataConfig) -> Result<[Option<&Path>; 2], DataError> {
        let keys = match self {
            Self::Train => [
                ("data.train_images", &config.train_images),
                ("data.train_annotations", &config.train_annotations),
            ],
            Self::Val => [
                ("data.val_images", &config.val_images),
                ("data.val_annotations", &config.val_annotations),
            ],
            Self::Test => return Ok([None; 2]),
        };
        for (key, path) in keys {
            if let Some(path) = path.clone().filter(|path| !path.try_exists().unwrap_or(true)) {
                return Err(DataError::NothingAt { key, path });
            }
        }
        Ok(keys.map(|(_, path)| path.as_deref()))
    }
}

/// Where the annotations of a part may be that is called `{}`.
const NAMED: [&str; 9] = [
    "annotations/instances_{}.json",
    "{}/_annotations.coco.json",
    "annotations/{}.json",
    "annotations/lvis_v1_{}.json",
    "lvis_v1_{}.json",
    "instances_{}.json",
    "{}.json",
    "{}/labels.json",
    "{}/result.json",
];
/// Where the annotations of all images may be.
const ALONE: [&str; 6] = [
    "annotations/instances_default.json",
    "_annotations.coco.json",
    "result.json",
    "labels.json",
    "annotations.json",
    "instances_default.json",
];
/// The archive of annotations as published.
const ZIP: &str = "annotations_trainval2017.zip";

/// The part `of` of the data at `root`, if it is there.
pub(super) fn find(
    root: &Path,
    of: PartOf,
    config: &DataConfig,
) -> Result<Option<Found>, DataError> {
    let [images, annotations] = of.keys(config)?;
    let (name, annotations) = match annotations {
        Some(path) => (None, CocoAnnotations::read(path)?),
        None => match annotations_in(root, of)? {
            Some((name, annotations)) => (Some(name), annotations),
            None if images.is_some() || of == PartOf::Train => {
                return Err(no_annotations(root, of));
            }
            None => return Ok(None),
        },
    };
    let images = match images {
        Some(path) => path.canonicalize().map_err(DataError::io(path))?,
        None => images_of(root, name, &annotations).ok_or_else(|| no_images(root, of, name))?,
    };
    let called = || images.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let is_called = |name: &&str| images.ends_with(name) || !images.is_dir();
    let folder = name.filter(|name| !name.is_empty() && is_called(name));
    let folder = folder.map_or_else(called, str::to_owned);
    Ok(Some(Found { images, folder, annotations }))
}

/// The annotations of a part below `root`, and the name that the part has there; none for a file
/// that is of all images.
fn annotations_in(
    root: &Path,
    of: PartOf,
) -> Result<Option<(&'static str, CocoAnnotations)>, DataError> {
    if root.is_file() {
        let alone = of == PartOf::Train;
        return Ok(alone.then(|| CocoAnnotations::read(root)).transpose()?.map(|one| ("", one)));
    }
    let zip = root.join(ZIP);
    for name in of.names() {
        let places = NAMED.map(|place| root.join(place.replace("{}", name)));
        if let Some(path) = places.iter().find(|path| path.is_file()) {
            return Ok(Some((name, CocoAnnotations::read(path)?)));
        }
        if name.ends_with("2017") && zip.is_file() {
            let member = NAMED[0].replace("{}", name);
            let bytes = read_entry(&zip, &member, InputKind::Annotations)?;
            let file = Location { path: zip, member: Some(member) };
            return Ok(Some((name, CocoAnnotations::parse(bytes, file)?)));
        }
    }
    if of != PartOf::Train {
        return Ok(None);
    }
    let alone = ALONE.iter().map(|place| root.join(place)).find(|path| path.is_file());
    let path = alone.or_else(|| only_json(&root.join("annotations"))).or_else(|| only_json(root));
    path.map(|path| Ok(("", CocoAnnotations::read(&path)?))).transpose()
}

/// The one file of JSON in a folder.
fn only_json(folder: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut all = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Where the images of `annotations` are, which are of the part called `name`: the first place that
/// has one of them, else the first that images are usually in.
fn images_of(root: &Path, name: Option<&str>, annotations: &CocoAnnotations) -> Option<PathBuf> {
    let beside = annotations.file().path.parent().unwrap_or(root);
    let root = if root.is_file() { beside } else { root };
    // Of a file in a folder of its own, what lies beside that counts.
    let above = if beside.ends_with("annotations") { beside.parent() } else { None };
    let mut usual: Vec<PathBuf> = Vec::new();
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let zip = format!("{name}.zip");
        usual.extend([root.join(name), root.join("images").join(name), root.join(zip)]);
        usual.push(root.join(name).join("images"));
    }
    let bases = [Some(root), Some(beside), above];
    for base in bases.into_iter().flatten() {
        usual.extend(["images", "data"].map(|folder| base.join(folder)));
    }
    usual.retain(|place| place.exists());
    let last = bases.into_iter().flatten().map(Path::to_owned);
    let mut all = usual.iter().cloned().chain(last);
    all.find(|place| has_some(place, annotations)).or_else(|| usual.into_iter().next())
}

/// Whether one of the first images of `annotations` is in `place`; of a zip its name says so.
fn has_some(place: &Path, annotations: &CocoAnnotations) -> bool {
    let is_there = |name: &str| {
        let parts = names::parts(name);
        (0..parts.len()).any(|from| place.join(parts[from..].join("/")).is_file())
    };
    place.is_file() || annotations.some_names().any(is_there)
}

/// Something is not where any layout has it.
fn missing(root: &Path, what: String, expected: &'static str) -> DataError {
    SourceError::NoHalf { path: root.to_owned(), what, expected: expected.to_owned() }.into()
}

fn no_annotations(root: &Path, of: PartOf) -> DataError {
    let expected = match of {
        PartOf::Train if root.join("data.yaml").is_file() || root.join("labels").is_dir() => {
            "data.dataset = \"yolo\"` for these files, and for COCO's \
             `annotations/instances_train2017.json` or `data.train_annotations"
        }
        PartOf::Train => {
            "annotations/instances_train2017.json`, `annotations_trainval2017.zip`, \
             `train/_annotations.coco.json` (Roboflow), `annotations/instances_default.json` \
             (CVAT), `result.json` (Label Studio) or `data.train_annotations"
        }
        PartOf::Val | PartOf::Test => {
            "annotations/instances_val2017.json`, `annotations_trainval2017.zip`, \
             `valid/_annotations.coco.json`, `data.val_annotations` or `data.val_fraction"
        }
    };
    missing(root, format!("{} annotations", of.noun()), expected)
}

/// No training part is there.
pub(super) fn no_training(root: &Path) -> DataError {
    no_annotations(root, PartOf::Train)
}

/// No validation part is there, and nothing is held out.
pub(super) fn no_validation(root: &Path) -> DataError {
    no_annotations(root, PartOf::Val)
}

fn no_images(root: &Path, of: PartOf, name: Option<&str>) -> DataError {
    let expected = match (of, name) {
        (PartOf::Train, Some("train2017")) => "train2017` or `train2017.zip",
        (PartOf::Val, Some("val2017")) => "val2017` or `val2017.zip",
        (PartOf::Train, _) => "train`, `images/train`, `images` or `data.train_images",
        (PartOf::Val, _) => "val`, `images/val`, `images` or `data.val_images",
        (PartOf::Test, _) => "test`, `images/test` or `images",
    };
    missing(root, format!("{} images", of.noun()), expected)
}
