//! ImageNet and other images in files: folders, archives read in place, WebDataset shards, packs.

use std::{path::PathBuf, sync::Arc};

use super::{DataConfig, DatasetKind, Files, Source, Sources};
use crate::classes::match_names;
use crate::dataset::{Class, Dataset};
use crate::error::{ClassError, DataError, SourceError, StagingError, listed};
use crate::statistics::Statistics;
use crate::storage::EnvPaths;
use crate::storage::cache::{self, CachedIndex};
use crate::storage::images::Images;
use crate::storage::index::Index;
use crate::storage::layout;
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
    let (val_path, val_labels) = (config.val_path.as_deref(), config.val_labels.as_deref());
    let (train, val) = layout::find(config.required_path()?, val_path, val_labels)?;
    let mut notes = Vec::new();
    let mut open = |part| -> Result<CachedIndex, DataError> {
        let cached = cache::open(part, config.index_cache.as_deref(), env_paths)?;
        notes.extend(cached.index.notes.iter().chain(&cached.notes).cloned());
        Ok(cached)
    };
    let (train, val) = (open(train)?, open(val)?);
    let labels = labels_of(&train, &val)?;
    if config.dataset == DatasetKind::Imagenet {
        notes.extend(count_notes(&train.index, &val.index));
    }
    let classes = train.index.classes.clone();
    let mut val = Images::labelled(val, classes.clone(), labels)?;
    let mut train = Images::new(train)?;
    notes.extend(missing_note(&val));
    let staging = start_staging(&mut [&mut train, &mut val], &mut notes, config.stage, env_paths)?;
    Ok(Sources { train, val: Some(val), test: None, notes, staging })
}

/// The label among the classes of `train` of each class of `val`, which may lack some.
fn labels_of(train: &CachedIndex, val: &CachedIndex) -> Result<Vec<Class>, DataError> {
    let (ours, theirs) = (&train.index.classes, &val.index.classes);
    let in_part = |part: &CachedIndex| {
        let path = part.part.root().to_owned();
        move |error| -> DataError {
            if let ClassError::Twice { name, .. } = error {
                return SourceError::ClassTwice { path, name }.into();
            }
            error.into()
        }
    };
    match_names(ours, ours).map_err(in_part(train))?;
    let matched = match_names(ours, theirs).map_err(in_part(val))?;
    if matched.unknown.is_empty() {
        return Ok(matched.labels.into_iter().flatten().collect());
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
        advice: match theirs.len() {
            1 => "it may have fewer, but no others, or `data.val_labels` must list them",
            _ => "it may have fewer, but no others",
        },
    }
    .into())
}

/// A note if `val` lacks classes.
fn missing_note(val: &Images) -> Option<String> {
    let mut has_images = vec![false; val.num_classes()];
    (0..val.len()).for_each(|index| has_images[val.label(index) as usize] = true);
    let without = val.class_names().iter().zip(has_images).filter(|&(_, has_images)| !has_images);
    let missing: Vec<String> = without.map(|(name, _)| name.clone()).collect();
    (!missing.is_empty()).then(|| {
        let (lacking, all) = (missing.len(), val.num_classes());
        let names = listed(&missing);
        format!("the validation part has no images of {lacking} of the {all} classes: {names}")
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
