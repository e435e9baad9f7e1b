//! The registry of datasets, and the way from a configuration to splits.
//!
//! To add a dataset, write a module with a [`Source`], a variant of [`DatasetKind`] and a row of
//! [`DatasetKind::source`].

mod cifar;
pub(crate) mod config;
mod holdout;
mod image_files;
pub(crate) mod kind;
mod outline;
mod shapes;
mod source;

pub use cifar::{Cifar, PUBLISHED_ARCHIVES, PublishedArchive, known_archive};
use config::DataConfig;
use kind::DatasetKind;
use source::{Files, Source};

use crate::{error::DataError, statistics::Statistics, storage::env_paths::EnvPaths};

pub use image_files::{Sources, open_images};
pub use shapes::{Shapes, ShapesPart};
pub use source::Splits;

impl DatasetKind {
    fn source(self) -> &'static Source {
        match self {
            Self::Shapes => &shapes::SOURCE,
            Self::Cifar10 => &cifar::CIFAR10,
            Self::Cifar100 => &cifar::CIFAR100,
            Self::Imagenet => &image_files::SOURCE,
            Self::Folder => &image_files::SOURCE,
        }
    }

    /// Names of the classes, by label; none if the files tell them.
    pub fn class_names(self) -> &'static [&'static str] {
        self.source().class_names
    }

    /// Whether it is read from files, so that `data.path` must be set.
    pub fn has_files(self) -> bool {
        !matches!(self.source().files, Files::None)
    }

    /// Whether it is a folder or archives of image files, which [`open_images`] opens.
    pub fn has_image_files(self) -> bool {
        matches!(self.source().files, Files::Images)
    }
}

impl DataConfig {
    /// What pixels are normalised by, without opening the dataset.
    pub fn statistics(&self) -> Statistics {
        self.normalize.statistics(self.dataset.source().statistics)
    }
}

/// Opens the dataset that a configuration names. CIFAR is read into memory whole.
///
/// With `val_fraction > 0` a stratified share of the training set, drawn from `seed`, becomes the
/// validation split. Otherwise only `shapes` has one: ImageNet's published validation images are
/// the test set here, and a checkpoint chosen by them would be measured too well.
///
/// # Errors
/// If a value is out of range, or the dataset's files are missing, damaged or of another dataset.
pub fn open(config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    open_in(config, seed, &EnvPaths::from_env())
}

/// [`open`] with explicit folders instead of those of the environment.
///
/// # Errors
/// As for [`open`].
pub fn open_in(config: &DataConfig, seed: u64, env_paths: &EnvPaths) -> Result<Splits, DataError> {
    check_fraction(config)?;
    let splits = (config.dataset.source().open)(config, env_paths)?;
    hold_out(splits, config, seed)
}

/// What [`open`] would open, without reading files. The images can be counted; those that come from
/// files cannot be read.
///
/// CIFAR is assumed to have as many images as published. `None` if only the files tell the number.
///
/// # Errors
/// If a value is out of range, or there is no path where one is needed.
pub fn dry_run(config: &DataConfig, seed: u64) -> Result<Option<Splits>, DataError> {
    check_fraction(config)?;
    let splits = config.dataset.source().dry_run(config)?;
    splits.map(|splits| hold_out(splits, config, seed)).transpose()
}

/// Takes the validation split out of the training part, if one is to be held out.
fn hold_out(splits: Splits, config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    if config.val_fraction == 0.0 {
        return Ok(splits);
    }
    let train = &splits.train;
    let (kept, held) = holdout::stratified(train.dataset(), config.val_fraction, seed);
    if kept.is_empty() || held.is_empty() {
        return Err(invalid_fraction(config, "a share that leaves both parts an image"));
    }
    Ok(Splits { val: Some(train.only(held)), train: train.only(kept), ..splits })
}

fn check_fraction(config: &DataConfig) -> Result<(), DataError> {
    if (0.0..1.0).contains(&config.val_fraction) {
        return Ok(());
    }
    Err(invalid_fraction(config, "a share, 0 ≤ share < 1"))
}

fn invalid_fraction(config: &DataConfig, expected: &'static str) -> DataError {
    let value = config.val_fraction.to_string();
    DataError::InvalidConfig { key: "data.val_fraction", value, expected }
}
