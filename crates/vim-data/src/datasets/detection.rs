//! Datasets whose images have objects, as detection needs them.

use super::coco::{CocoSources, open_coco};
use super::{
    DataConfig, DatasetKind, Files, Source, Splits, check_fraction, check_path, hold_out, shapes,
};
use crate::{error::DataError, statistics::Statistics, storage::EnvPaths};

/// The source of images with objects, which no other task can use. The classes are found with the
/// files.
pub(super) static SOURCE: Source = Source {
    class_names: &[],
    statistics: Statistics::IMAGENET,
    files: Files::Objects,
    open: |config, _| Err(not_classified(config)),
};

/// There is no class for each image.
pub(super) fn not_classified(config: &DataConfig) -> DataError {
    DataError::InvalidConfig {
        key: "data.dataset",
        value: config.dataset.name().to_owned(),
        expected: "a dataset with a class for each image; this one's are for each object",
    }
}

/// Opens the dataset that `config` describes with the objects of its images; `seed` alone decides
/// which images are held out.
///
/// # Errors
/// As for [`super::open`], and if the dataset has no objects.
pub fn open_detection(config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    check_fraction(config)?;
    check_path(config)?;
    let splits = match config.dataset {
        DatasetKind::Shapes => shapes::open_objects(config)?,
        DatasetKind::Coco => {
            let CocoSources { train, val, notes, staging } =
                open_coco(config, &EnvPaths::from_env())?;
            Splits { notes, staging, ..Splits::new(train, val) }
        }
        DatasetKind::Cifar10
        | DatasetKind::Cifar100
        | DatasetKind::Imagenet
        | DatasetKind::Folder
        | DatasetKind::Ade20k
        | DatasetKind::Pairs => {
            return Err(DataError::InvalidConfig {
                key: "data.dataset",
                value: config.dataset.name().to_owned(),
                expected: "a dataset with objects: shapes or coco",
            });
        }
    };
    hold_out(splits, config, seed)
}

/// What [`open_detection`] would open, without reading files; `None` if only the files tell the
/// number of images.
///
/// # Errors
/// If a value is out of range, or there is no path where one is needed.
pub fn dry_run_detection(config: &DataConfig, seed: u64) -> Result<Option<Splits>, DataError> {
    match config.dataset.has_objects() {
        true => {
            check_fraction(config)?;
            config.required_path().map(|_| None)
        }
        false => open_detection(config, seed).map(Some),
    }
}
