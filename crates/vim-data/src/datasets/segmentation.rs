//! Datasets whose images have label maps, as segmentation needs them.

use super::pairs::{PairSources, open_pairs};
use super::{
    DataConfig, DatasetKind, Files, Source, Splits, check_fraction, check_path, hold_out, shapes,
};
use crate::{error::DataError, statistics::Statistics, storage::EnvPaths};

/// The source of pairs of images and label maps, which no other task can use. The classes are found
/// with the files.
pub(super) static SOURCE: Source = Source {
    class_names: &[],
    statistics: Statistics::IMAGENET,
    files: Files::Pairs,
    open: |config, _| Err(not_classified(config)),
};

/// There is no class for each image.
pub(super) fn not_classified(config: &DataConfig) -> DataError {
    DataError::InvalidConfig {
        key: "data.dataset",
        value: config.dataset.name().to_owned(),
        expected: "a dataset with a class for each image; this one's are for each pixel, which \
                   `task = \"segmentation\"` learns",
    }
}

/// Opens the dataset that `config` describes with the label maps of its images; `seed` alone
/// decides which images are held out.
///
/// # Errors
/// As for [`super::open`], and if the dataset has no label maps.
pub fn open_segmentation(config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    check_fraction(config)?;
    check_path(config)?;
    let splits = match config.dataset {
        DatasetKind::Shapes => shapes::open_scenes(config)?,
        DatasetKind::Ade20k | DatasetKind::Pairs => {
            let PairSources { train, val, notes, staging } =
                open_pairs(config, &EnvPaths::from_env())?;
            Splits { notes, staging, ..Splits::new(train, val) }
        }
        DatasetKind::Cifar10
        | DatasetKind::Cifar100
        | DatasetKind::Imagenet
        | DatasetKind::Folder
        | DatasetKind::Coco => {
            return Err(DataError::InvalidConfig {
                key: "data.dataset",
                value: config.dataset.name().to_owned(),
                expected: "a dataset with label maps: shapes, ade20k or pairs",
            });
        }
    };
    hold_out(splits, config, seed)
}

/// What [`open_segmentation`] would open, without reading files; `None` if only the files tell the
/// number of images.
///
/// # Errors
/// If a value is out of range, or there is no path where one is needed.
pub fn dry_run_segmentation(config: &DataConfig, seed: u64) -> Result<Option<Splits>, DataError> {
    match config.dataset.has_pairs() {
        true => {
            check_fraction(config)?;
            config.required_path().map(|_| None)
        }
        false => open_segmentation(config, seed).map(Some),
    }
}
