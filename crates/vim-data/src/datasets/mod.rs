//! The datasets, and from a configuration to their splits.
//!
//! A dataset is a module with a [`Source`], which has its name in [`DatasetKind`] and its row in
//! [`DatasetKind::source`].

mod cifar;
pub(crate) mod config;
mod holdout;
mod image_files;
pub(crate) mod kind;
mod outline;
mod shapes;
mod source;

use std::sync::Arc;

pub use cifar::{Cifar, PUBLISHED_ARCHIVES, PublishedArchive, known_archive};
use config::DataConfig;
pub use image_files::{Sources, open_images};
use kind::DatasetKind;
pub use shapes::{Shapes, ShapesPart};
use source::{Files, Parts, Source};

use crate::error::DataError;
use crate::split::Split;
use crate::statistics::Statistics;
use crate::storage::env_paths::Surroundings;
use crate::storage::staging::Staging;

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

    /// Names of the classes, by label; none if they are found with the files.
    #[must_use]
    pub fn class_names(self) -> &'static [&'static str] {
        self.source().class_names
    }

    /// Whether it is read from files: `data.path` must name them.
    #[must_use]
    pub fn has_files(self) -> bool {
        !matches!(self.source().files, Files::None)
    }

    /// Whether it is a folder or archives of image files, which [`open_images`] opens.
    #[must_use]
    pub fn has_image_files(self) -> bool {
        matches!(self.source().files, Files::Images)
    }
}

impl DataConfig {
    /// What pixels are normalised by, without opening the dataset.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.normalize.statistics(self.dataset.source().statistics)
    }
}

/// The parts of a dataset, disjoint from each other.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Trained on.
    pub train: Split,
    /// Chooses the best checkpoint; absent unless held out or drawn. Never the test set.
    pub val: Option<Split>,
    /// Measured at the end.
    pub test: Split,
    /// What is odd about the data but no error, a line each: counts that are not ImageNet's, say.
    pub notes: Vec<String>,
    /// The copying of archives to the node's disk, if there is any.
    pub staging: Option<Arc<Staging>>,
}

/// Opens the dataset that a configuration names. CIFAR is read into memory whole.
///
/// With `val_fraction > 0` a stratified share of the training set, drawn from `seed`, becomes the
/// validation split. Otherwise `shapes` has its own and the others have none: the published
/// validation images of ImageNet are what is measured at the end, and a checkpoint chosen by them
/// would be measured better than it is.
///
/// # Errors
/// If a value is out of range, or the dataset's files are missing, damaged or of another dataset.
pub fn open(config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    open_in(config, seed, &Surroundings::from_env())
}

/// [`open`], with the folders that it would take from the environment.
///
/// # Errors
/// As for [`open`].
pub fn open_in(
    config: &DataConfig,
    seed: u64,
    surroundings: &Surroundings,
) -> Result<Splits, DataError> {
    check_fraction(config)?;
    let parts = (config.dataset.source().open)(config, surroundings)?;
    hold_out(parts, config, seed)
}

/// What [`open`] would open, as far as the configuration alone tells: images can be counted, but not
/// read where they come from files.
///
/// CIFAR is taken to be as large as it is published. `None` where only the files know their number.
///
/// # Errors
/// If a value is out of range, or there is no path where one is needed.
pub fn dry_run(config: &DataConfig, seed: u64) -> Result<Option<Splits>, DataError> {
    check_fraction(config)?;
    let parts = config.dataset.source().dry_run(config)?;
    parts.map(|parts| hold_out(parts, config, seed)).transpose()
}

/// Takes the validation split out of the training part, if one is to be held out.
fn hold_out(parts: Parts, config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    let Parts { train, val, test, notes, staging } = parts;
    let test = Split::whole(test);
    if config.val_fraction == 0.0 {
        let (train, val) = (Split::whole(train), val.map(Split::whole));
        return Ok(Splits { train, val, test, notes, staging });
    }
    let (kept, held) = holdout::stratified(&*train, config.val_fraction, seed);
    if kept.is_empty() || held.is_empty() {
        return Err(invalid_fraction(config, "a share that leaves both parts an image"));
    }
    let val = Some(Split::subset(Arc::clone(&train), held));
    Ok(Splits { train: Split::subset(train, kept), val, test, notes, staging })
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
