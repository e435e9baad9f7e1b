//! ImageNet and other images in files: folders, archives read in place, WebDataset shards, packs.

mod counts;
mod error;
mod folder;
mod images;
mod keep;
pub(crate) mod labels;
mod layout;
mod reader;
mod stage;

use std::{path::Path, sync::Arc};

pub use error::SourceError;
pub use images::Images;

use crate::{
    config::{DataConfig, DatasetKind},
    error::DataError,
    index::{Index, cache::Witness},
    pack,
    staging::Staging,
    surroundings::Surroundings,
    tars,
};
use keep::Kept;
use labels::List;
use layout::Part;

/// Extensions of the images that are listed, in any case.
///
/// # Source
/// `IMG_EXTENSIONS` of torchvision's `ImageFolder`, less the formats that are not decoded here.
const EXTENSIONS: [&str; 5] = ["bmp", "jpeg", "jpg", "png", "webp"];

/// The two parts of a dataset of files.
#[derive(Debug)]
pub struct Sources {
    /// Trained on.
    pub train: Images,
    /// The published validation images: measured at the end.
    pub val: Images,
    /// What is odd about them but no error, a line each.
    pub notes: Vec<String>,
    /// The archives' way to the node's disk, if they are on it.
    pub staging: Option<Arc<Staging>>,
}

/// Finds the images that a configuration of `imagenet` or `folder` names. Reads none.
///
/// # Errors
/// If there are none, their classes cannot be told or do not agree, or an archive is damaged.
pub fn open_images(config: &DataConfig, surroundings: &Surroundings) -> Result<Sources, DataError> {
    let dataset = config.dataset;
    let path = config.path.as_deref().ok_or(DataError::MissingPath { dataset })?;
    let (train, val) = layout::find(config, path)?;
    let mut notes = Vec::new();
    let mut open = |part| -> Result<Kept, DataError> {
        let kept = keep::open(part, config.index_cache.as_deref(), surroundings)?;
        notes.extend(kept.index.notes.iter().chain(&kept.notes).cloned());
        Ok(kept)
    };
    let (train, val) = (open(train)?, open(val)?);
    check_classes(&train, &val)?;
    if dataset == DatasetKind::Imagenet {
        notes.extend(counts::notes(&train.index, &val.index));
    }
    let classes = train.index.classes.clone();
    let val = Images::new(val, classes.clone())?;
    let train = Images::new(train, classes)?;
    let mut sources = Sources { train, val, notes, staging: None };
    sources.stage(config.stage, surroundings)?;
    Ok(sources)
}

/// Whether the labels of `val` can mean the classes of `train`.
fn check_classes(train: &Kept, val: &Kept) -> Result<(), DataError> {
    let (ours, theirs) = (&train.index.classes, &val.index.classes);
    // A list, and numbers in shards, name only the classes that occur; folders name all.
    let may_be_fewer = match &val.part {
        Part::Classes { .. } => false,
        Part::Flat { .. } | Part::Archives { .. } | Part::Pack { .. } => true,
    };
    let extra = theirs.iter().find(|&class| !ours.contains(class));
    if ours == theirs || (may_be_fewer && extra.is_none()) {
        return Ok(());
    }
    if let Some(list) = val.part.list()
        && theirs.iter().all(|class| class.parse::<u32>().is_ok())
    {
        return Err(SourceError::DevkitNumbers { list: list.to_owned() }.into());
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

/// Whether a file name is that of an image that is decoded.
pub(crate) fn is_image(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|ours| EXTENSIONS.iter().any(|known| ours.eq_ignore_ascii_case(known)))
}

/// Whether the last part of a path begins with a dot.
pub(crate) fn is_hidden(name: &str) -> bool {
    crate::index::base_name(name).starts_with('.')
}
