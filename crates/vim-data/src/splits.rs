//! From a configuration to the parts of a dataset.

use std::path::Path;
use std::sync::Arc;

use crate::{
    cifar,
    config::{DataConfig, DatasetKind},
    dataset::Dataset,
    error::DataError,
    holdout,
    shapes::{Shapes, ShapesPart},
    sources::{Sources, open_images},
    split::Split,
    staging::Staging,
    surroundings::Surroundings,
};

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
    /// The archives' way to the node's disk, if they are on it: how far it has come.
    pub staging: Option<Arc<Staging>>,
}

/// Opens the dataset that a configuration names. CIFAR is read into memory whole.
///
/// With `val_fraction > 0` a stratified share of the training set, drawn from `seed`, becomes the
/// validation split. Otherwise `shapes` has its own and the others have none: the published validation
/// images of ImageNet are what is measured at the end, and a checkpoint chosen by them would be measured
/// better than it is.
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
    let parts = match config.dataset {
        DatasetKind::Shapes => drawn(config)?,
        DatasetKind::Cifar10 | DatasetKind::Cifar100 => {
            let (train, test) = cifar::open(config.dataset, path(config)?)?;
            Parts::of(train, test)
        }
        DatasetKind::Imagenet | DatasetKind::Folder => {
            let Sources { train, val, notes, staging } = open_images(config, surroundings)?;
            Parts { train: whole(train), val: None, test: whole(val), notes, staging }
        }
    };
    parts.cut(config, seed)
}

/// What [`open`] would open, as far as the configuration alone tells: images can be counted, and not be read.
///
/// CIFAR is taken for as large as it is published. `None` where only the files know their number.
///
/// # Errors
/// If a value is out of range, or there is no path where one is needed.
pub fn foresee(config: &DataConfig, seed: u64) -> Result<Option<Splits>, DataError> {
    check_fraction(config)?;
    let parts = match config.dataset {
        DatasetKind::Shapes => drawn(config)?,
        kind @ (DatasetKind::Cifar10 | DatasetKind::Cifar100) => {
            path(config)?;
            let (train, test) = cifar::outlines(kind);
            Parts::of(train, test)
        }
        DatasetKind::Imagenet | DatasetKind::Folder => return path(config).map(|_| None),
    };
    parts.cut(config, seed).map(Some)
}

fn check_fraction(config: &DataConfig) -> Result<(), DataError> {
    if (0.0..1.0).contains(&config.val_fraction) {
        return Ok(());
    }
    Err(invalid_fraction(config, "a share, 0 ≤ share < 1"))
}

fn path(config: &DataConfig) -> Result<&Path, DataError> {
    config.path.as_deref().ok_or(DataError::MissingPath { dataset: config.dataset })
}

/// The parts of `shapes`, of which nothing is drawn yet.
fn drawn(config: &DataConfig) -> Result<Parts, DataError> {
    let part = |part| Shapes::new(config.shapes, part);
    let val = match config.shapes.val {
        0 => None,
        _ => Some(whole(part(ShapesPart::Val)?)),
    };
    Ok(Parts { val, ..Parts::of(part(ShapesPart::Train)?, part(ShapesPart::Test)?) })
}

/// The datasets that a configuration's dataset consists of.
struct Parts {
    train: Arc<dyn Dataset>,
    val: Option<Arc<dyn Dataset>>,
    test: Arc<dyn Dataset>,
    notes: Vec<String>,
    staging: Option<Arc<Staging>>,
}

impl Parts {
    /// Two parts in memory.
    fn of(train: impl Dataset + 'static, test: impl Dataset + 'static) -> Self {
        let (train, test) = (whole(train), whole(test));
        Self { train, val: None, test, notes: vec![], staging: None }
    }

    /// Holds out what is to be held out.
    fn cut(self, config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
        let Self { train, val, test, notes, staging } = self;
        let test = Split::whole(test);
        if config.val_fraction == 0.0 {
            let (train, val) = (Split::whole(train), val.map(Split::whole));
            return Ok(Splits { train, val, test, notes, staging });
        }

        let (kept, held) = holdout::stratified(&*train, config.val_fraction, seed);
        if kept.is_empty() || held.is_empty() {
            return Err(invalid_fraction(config, "a share that leaves both parts an image"));
        }
        Ok(Splits {
            train: Split::subset(Arc::clone(&train), kept),
            val: Some(Split::subset(train, held)),
            test,
            notes,
            staging,
        })
    }
}

fn whole(dataset: impl Dataset + 'static) -> Arc<dyn Dataset> {
    Arc::new(dataset)
}

fn invalid_fraction(config: &DataConfig, expected: &'static str) -> DataError {
    let value = config.val_fraction.to_string();
    DataError::InvalidConfig { key: "data.val_fraction", value, expected }
}
