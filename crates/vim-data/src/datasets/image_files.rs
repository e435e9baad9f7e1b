//! ImageNet and other images in files: folders, archives read in place, WebDataset shards, packs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DataConfig, DatasetKind, Files, Source, Sources, check_path};
use crate::classes::{ClassMatch, match_names};
use crate::dataset::{Class, Dataset};
use crate::error::{ClassError, DataError, SourceError, StagingError, listed};
use crate::statistics::Statistics;
use crate::storage::EnvPaths;
use crate::storage::cache::{self, CachedIndex};
use crate::storage::folder::instead_of_images;
use crate::storage::images::Images;
use crate::storage::index::Index;
use crate::storage::layout::{self, DataParts, Found, Part, Sought, is_test};
use crate::storage::staging::{Stage, Staging};

/// The source of ImageNet and of folders. The classes are found with the files.
pub(super) static SOURCE: Source = Source {
    class_names: &[],
    statistics: Statistics::IMAGENET,
    files: Files::Listed,
    classes: Some(|config, env_paths| Ok(open_images(config, env_paths)?.into())),
    label_maps: None,
    objects: None,
};

/// Finds the images that a configuration of `imagenet` or `folder` names. Reads none.
///
/// # Errors
/// If there are none, their classes cannot be told or do not agree, or an archive is damaged.
pub fn open_images(
    config: &DataConfig,
    env_paths: &EnvPaths,
) -> Result<Sources<Images>, DataError> {
    let Found { train, val, test, parts, unread } = find(config)?;
    let mut notes = Vec::new();
    let is_imagenet = config.dataset == DatasetKind::Imagenet;
    if !is_imagenet {
        notes.extend(unread_note(train.root(), &unread, parts));
    }
    let open = |part, notes: &mut Vec<String>| -> Result<CachedIndex, DataError> {
        let cached = cache::open(part, config.index_cache.as_deref(), env_paths)?;
        notes.extend(cached.index.notes.iter().chain(&cached.notes).cloned());
        Ok(cached)
    };
    let train = open(train, &mut notes)?;
    check_each_class(&train)?;
    match_in(&train, &train.index.classes, &train.index.classes)?;
    let mut further = |part: Option<Part>, what| -> Result<Option<Images>, DataError> {
        let Some(part) = part else { return Ok(None) };
        let part = open(part, &mut notes)?;
        if is_imagenet {
            notes.extend(count_notes(&train.index, &part.index));
        }
        let labels = labels_of(&train, &part, what)?;
        let images = Images::labelled(part, train.index.classes.clone(), labels, config.exif())?;
        notes.extend(missing_note(&images, what));
        Ok(Some(images))
    };
    let (val, test) = (further(val, "validation")?, further(test, "test")?);
    let train = Images::new(train, config.exif())?;
    // There may be very many, whose links are not looked at.
    let mut sources = Sources { train, val, test, notes, staging: None }
        .apart(false, |part: &Images| (part, (0..part.len()).collect()))?;
    let Sources { train, val, test, notes, staging } = &mut sources;
    let mut all: Vec<&mut Images> = std::iter::once(train).chain(val).chain(test).collect();
    *staging = start_staging(&mut all, notes, config.stage, env_paths)?;
    Ok(sources)
}

fn find(config: &DataConfig) -> Result<Found, DataError> {
    // ImageNet's validation images are what is published to be tested.
    let is_imagenet = config.dataset == DatasetKind::Imagenet;
    let parts = if is_imagenet { DataParts::TrainVal } else { config.parts.unwrap_or_default() };
    let (val_path, list) = (config.val_path.as_deref(), config.val_labels.as_deref());
    layout::find(&Sought { path: config.required_path()?, val_path, list, parts })
}

/// The parts that a configuration of `folder` would open: those it names, or else those that are
/// there. `None` of other datasets.
///
/// # Errors
/// As for [`open_images`], as far as that needs no images.
pub fn parts_of(config: &DataConfig) -> Result<Option<DataParts>, DataError> {
    if config.dataset != DatasetKind::Folder {
        return Ok(None);
    }
    check_path(config)?;
    find(config).map(|found| Some(found.parts))
}

/// A note on what lies beside the training part and is not read.
fn unread_note(train: &Path, unread: &[PathBuf], parts: DataParts) -> Option<String> {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = unread.iter().map(name).collect();
    let are = if names.len() == 1 { "is" } else { "are" };
    let hint = match parts == DataParts::TrainVal && unread.iter().any(|path| is_test(path)) {
        true => "; `data.parts = \"train_val_test\"` reads a test part that has classes",
        false => "",
    };
    (!names.is_empty())
        .then(|| format!("{} beside `{}` {are} not read{hint}", listed(&names), train.display()))
}

/// Checks that each training class has images.
fn check_each_class(train: &CachedIndex) -> Result<(), DataError> {
    let Part::Classes { root, names } = &train.part else { return Ok(()) };
    let has_images = classes_with_images(&train.index);
    let Some(empty) = has_images.iter().position(|&has| !has) else { return Ok(()) };
    let (path, class) = (root.clone(), names[empty].clone());
    let found = instead_of_images(&root.join(&class));
    Err(SourceError::EmptyClass { path, class, found }.into())
}

/// Whether each class has images.
fn classes_with_images(index: &Index) -> Vec<bool> {
    let mut has_images = vec![false; index.classes.len()];
    index.entries.iter().for_each(|entry| has_images[entry.label as usize] = true);
    has_images
}

/// Matches the classes of `part`, which are `theirs`, with `ours`.
fn match_in(
    part: &CachedIndex,
    ours: &[String],
    theirs: &[String],
) -> Result<ClassMatch, DataError> {
    match_names(ours, theirs).map_err(|error| {
        if let ClassError::Twice { name, .. } = error {
            return SourceError::ClassTwice { path: part.part.root().to_owned(), name }.into();
        }
        error.into()
    })
}

/// The label among the classes of `train` of each class of `val`, which may lack some.
fn labels_of(
    train: &CachedIndex,
    val: &CachedIndex,
    what: &'static str,
) -> Result<Vec<Class>, DataError> {
    let ours = &train.index.classes;
    // A folder without images is no class of this part.
    let has_images = classes_with_images(&val.index);
    let theirs = val.index.classes.iter().zip(&has_images).filter(|(_, has)| **has);
    let theirs = &theirs.map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let matched = match_in(val, ours, theirs)?;
    if matched.unknown.is_empty() {
        let mut labels = matched.labels.into_iter().flatten();
        let label = |&has: &bool| if has { labels.next().unwrap_or(0) } else { 0 };
        return Ok(has_images.iter().map(label).collect());
    }
    if let Some(list) = val.part.list()
        && theirs.iter().all(|class| class.parse::<u32>().is_ok())
    {
        return Err(SourceError::DevkitNumbers(list.to_owned()).into());
    }
    Err(SourceError::Classes {
        train: train.part.root().to_owned(),
        train_classes: ours.len(),
        val: val.part.root().to_owned(),
        val_classes: theirs.len(),
        difference: format!("only the former has {}", listed(&matched.unknown)),
        advice: match (what, theirs.len()) {
            ("test", _) => {
                "it may have fewer, but no others; `data.parts` says which parts are read"
            }
            (_, 1) => "it may have fewer, but no others, or `data.val_labels` must list them",
            (_, _) => "it may have fewer, but no others",
        },
    }
    .into())
}

/// A note if `val`, the part called `what`, lacks classes.
fn missing_note(val: &Images, what: &str) -> Option<String> {
    let mut has_images = vec![false; val.num_classes()];
    (0..val.len()).for_each(|index| has_images[val.label(index) as usize] = true);
    let without = val.class_names().iter().zip(has_images).filter(|&(_, has_images)| !has_images);
    let missing: Vec<String> = without.map(|(name, _)| name.clone()).collect();
    (!missing.is_empty()).then(|| {
        let (lacking, all) = (missing.len(), val.num_classes());
        let names = listed(&missing);
        format!("the {what} part has no images of {lacking} of the {all} classes: {names}")
    })
}

/// A note for each count that is not ImageNet's: a subset is legitimate, but may be unintended.
fn count_notes(train: &Index, val: &Index) -> Vec<String> {
    let counts = [
        ("classes", train.classes.len(), 1_000),
        ("training images", train.entries.len(), 1_281_167),
        ("validation images", val.entries.len(), 50_000),
    ];
    let differ = counts.into_iter().filter(|(_, found, published)| found != published);
    differ
        .map(|(what, found, published)| {
            format!("{found} {what}; ImageNet-1k as published has {published}")
        })
        .collect()
}

/// Starts to copy the archives of `parts` to the node's disk, or copies them all, as `stage` says.
/// They are then read from the copies.
pub(super) fn start_staging(
    parts: &mut [&mut Images],
    notes: &mut Vec<String>,
    stage: Stage,
    env_paths: &EnvPaths,
) -> Result<Option<Arc<Staging>>, StagingError> {
    let is_required = stage == Stage::Require;
    let disk = match &env_paths.node_disk {
        Some(disk) if stage != Stage::Off => disk,
        None if is_required => return Err(StagingError::NoFolder),
        Some(_) | None => return Ok(None),
    };
    let folder = parts.iter().find(|part| part.archives().is_empty());
    if let (Some(part), true) = (folder, is_required) {
        return Err(StagingError::NotArchives(part.root().to_owned()));
    }
    // Archives that are on the disk already are not copied, and one of several parts once.
    let on_disk = disk.canonicalize().unwrap_or_else(|_| disk.clone());
    let mut archives: Vec<PathBuf> = Vec::new();
    for path in parts.iter().flat_map(|part| part.archives()) {
        if !path.starts_with(&on_disk) && !archives.contains(path) {
            archives.push(path.clone());
        }
    }
    if archives.is_empty() {
        return Ok(None);
    }
    let mut staging = match Staging::start(disk, &archives) {
        Ok(staging) => staging,
        Err(error) if is_required => return Err(error),
        Err(error) => {
            notes.push(format!("archives are read where they are: failed to {error}"));
            return Ok(None);
        }
    };
    if is_required {
        staging.wait()?;
    }
    let staging = Arc::new(staging);
    parts.iter_mut().for_each(|part| part.use_copies(&staging));
    Ok(Some(staging))
}
