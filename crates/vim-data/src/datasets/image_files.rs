//! ImageNet and other images in files: folders, archives read in place, WebDataset shards, packs.

use std::{path::PathBuf, sync::Arc};

use super::{DataConfig, DatasetKind, Files, Source, Sources};
use crate::error::{DataError, SourceError, StagingError};
use crate::statistics::Statistics;
use crate::storage::EnvPaths;
use crate::storage::cache::{self, CachedIndex};
use crate::storage::images::Images;
use crate::storage::index::Index;
use crate::storage::layout::{self, Part};
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
    check_classes(&train, &val)?;
    if config.dataset == DatasetKind::Imagenet {
        notes.extend(count_notes(&train.index, &val.index));
    }
    let classes = train.index.classes.clone();
    let mut val = Images::new(val, classes.clone())?;
    let mut train = Images::new(train, classes)?;
    let staging = start_staging(&mut [&mut train, &mut val], &mut notes, config.stage, env_paths)?;
    Ok(Sources { train, val, notes, staging })
}

/// Checks that the labels of `val` can be mapped to the classes of `train`.
fn check_classes(train: &CachedIndex, val: &CachedIndex) -> Result<(), DataError> {
    let (ours, theirs) = (&train.index.classes, &val.index.classes);
    // A list or the numbers in shards name only the classes that occur; folders name all.
    let may_be_fewer = !matches!(val.part, Part::Classes { .. });
    let extra = theirs.iter().find(|&class| !ours.contains(class));
    if ours == theirs || (may_be_fewer && extra.is_none()) {
        return Ok(());
    }
    if let Some(list) = val.part.list()
        && theirs.iter().all(|class| class.parse::<u32>().is_ok())
    {
        return Err(SourceError::DevkitNumbers(list.to_owned()).into());
    }
    let missing = ours.iter().find(|&class| !theirs.contains(class));
    let difference = match (extra, missing) {
        (Some(class), _) => format!("only the former has `{class}`"),
        (None, Some(class)) => format!("only the latter has `{class}`"),
        (None, None) => "they are in another order".to_owned(),
    };
    Err(SourceError::Classes {
        train: train.part.root().to_owned(),
        train_classes: ours.len(),
        val: val.part.root().to_owned(),
        val_classes: theirs.len(),
        difference,
        advice: match theirs.len() {
            1 => ", or `data.val_labels` must list them",
            _ => "",
        },
    }
    .into())
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
