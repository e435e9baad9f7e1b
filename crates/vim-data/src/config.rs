//! The `[data]` section.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::loader::OnBad;
use crate::statistics::Statistics;
use crate::workers::Workers;
use crate::{cifar, shapes};

/// A dataset that can be trained on.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DatasetKind {
    /// Procedural images, shape × texture: needs no files.
    #[default]
    Shapes,
    /// CIFAR-10 from the archive as published (binary or python version, packed or unpacked).
    Cifar10,
    /// CIFAR-100 from the archive as published (binary or python version, packed or unpacked).
    Cifar100,
    /// ImageNet-1k: folders of classes, the archives as published, or packs.
    Imagenet,
    /// Images of any kind in folders of classes, archives of such, WebDataset shards or packs.
    Folder,
}

/// Whether archives are copied to the node's own disk, the folder that `$SLURM_TMPDIR` names.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// If there is such a folder with room: in the background, while images are read from the source.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Before anything is read, or the run ends with an error.
    Require,
}

/// The mean and standard deviation that pixels are normalised by.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum Normalize {
    /// ImageNet's, as the original does on every dataset.
    #[default]
    Imagenet,
    /// The dataset's own.
    Dataset,
}

/// What becomes of a training image that cannot be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum BadTrain {
    /// Another takes its place, and `bad_samples.jsonl` names it; more than 10 such images, and than one in 10 000 draws, end the run.
    #[default]
    Replace,
    /// The run ends.
    Fail,
}

/// What becomes of a validation or test image that cannot be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum BadTest {
    /// The evaluation ends with an error.
    #[default]
    Fail,
    /// It counts as classified wrongly.
    Wrong,
}

impl From<BadTrain> for OnBad {
    fn from(bad: BadTrain) -> Self {
        match bad {
            BadTrain::Replace => Self::Replace,
            BadTrain::Fail => Self::Fail,
        }
    }
}

impl From<BadTest> for OnBad {
    fn from(bad: BadTest) -> Self {
        match bad {
            BadTest::Fail => Self::Fail,
            BadTest::Wrong => Self::CountAsWrong,
        }
    }
}

/// The `[data]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Which dataset.
    pub dataset: DatasetKind,
    /// The archive or folder it is read from; `shapes` needs none. docs/data.md lists the layouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub path: Option<PathBuf>,
    /// `imagenet`, `folder`: where the validation images are, if `data.path` is the training part alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_path: Option<PathBuf>,
    /// `imagenet`, `folder`: class of each validation image, if those lie in one flat folder or archive: a line each in the order of the file names, or Kaggle's `LOC_val_solution.csv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_labels: Option<PathBuf>,
    /// `imagenet`, `folder`: the folder that lists of files are kept in between runs. Left out: beside the data if that can be written, else the user's cache folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub index_cache: Option<PathBuf>,
    /// Whether archives and packs are copied to the node's own disk (`$SLURM_TMPDIR`): `"auto"` (in the background, if there is one with room), `"off"`, `"require"` (first of all, or not at all).
    pub stage: Stage,
    /// Loader threads: `"auto"` (the cores of the allocation, shared among its GPUs, at most 16) or a number. The data do not depend on it.
    pub workers: Workers,
    /// Threads that read files ahead of the loader threads: `"auto"` or a number. More of them help on storage that answers late, such as Lustre.
    pub readers: Workers,
    /// Whole batches that wait for the device. One more is in the making: their bytes are what the loader takes.
    pub prefetch: usize,
    /// What becomes of a training image that cannot be read: `"replace"` or `"fail"`.
    pub bad_train: BadTrain,
    /// What becomes of a validation or test image that cannot be read: `"fail"`, or `"wrong"`, counted as such.
    pub bad_test: BadTest,
    /// Statistics that pixels are normalised by.
    pub normalize: Normalize,
    /// Share of the training set held out for validation, 0 ≤ share < 1. It decides which checkpoint is "best".
    pub val_fraction: f64,
    /// The `shapes` dataset's sizes.
    pub shapes: ShapesConfig,
}

impl DataConfig {
    /// What pixels are normalised by, without opening the dataset.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        match (self.normalize, self.dataset) {
            (Normalize::Imagenet, _)
            | (Normalize::Dataset, DatasetKind::Imagenet | DatasetKind::Folder) => {
                Statistics::IMAGENET
            }
            (Normalize::Dataset, DatasetKind::Shapes) => Statistics::SHAPES,
            (Normalize::Dataset, DatasetKind::Cifar10) => Statistics::CIFAR10,
            (Normalize::Dataset, DatasetKind::Cifar100) => Statistics::CIFAR100,
        }
    }
}

impl DatasetKind {
    /// Names of the classes, by label; none if they are found with the files.
    #[must_use]
    pub fn class_names(self) -> &'static [&'static str] {
        match self {
            Self::Shapes => &shapes::CLASS_NAMES,
            Self::Cifar10 => &cifar::CIFAR10,
            Self::Cifar100 => &cifar::CIFAR100,
            Self::Imagenet | Self::Folder => &[],
        }
    }
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            dataset: DatasetKind::Shapes,
            path: None,
            val_path: None,
            val_labels: None,
            index_cache: None,
            stage: Stage::Auto,
            workers: Workers::Auto,
            readers: Workers::Auto,
            prefetch: 4,
            normalize: Normalize::Imagenet,
            bad_train: BadTrain::default(),
            bad_test: BadTest::default(),
            val_fraction: 0.0,
            shapes: ShapesConfig::default(),
        }
    }
}

/// The `[data.shapes]` table: sizes of the procedural dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShapesConfig {
    /// Side of an image, 32 to 1024 pixels.
    pub image_size: usize,
    /// Images in the training split.
    pub train: usize,
    /// Images in the validation split (used when `val_fraction` is 0).
    pub val: usize,
    /// Images in the test split.
    pub test: usize,
    /// Seed of the images themselves; independent of `run.seed`.
    pub seed: u64,
}

impl Default for ShapesConfig {
    fn default() -> Self {
        Self { image_size: 32, train: 10_000, val: 2_000, test: 2_000, seed: 0 }
    }
}
