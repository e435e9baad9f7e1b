//! The `[data]` section.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DatasetKind, ShapesConfig};
use crate::error::DataError;
use crate::loader::config::{BadTest, BadTrain, Workers};
use crate::statistics::Normalize;
use crate::storage::staging::Stage;

/// Which images are held out of the training set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldOut {
    /// Each class its share, but for an image that it keeps; larger classes give what is owed.
    #[default]
    EachClass,
    /// Each class its share, rounded: a class of few images may lose all of them.
    Rounded,
}

impl HoldOut {
    /// Whether it is the default.
    fn is_default(&self) -> bool {
        *self == Self::default()
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
    /// `imagenet`, `folder`: where the validation images are, if `data.path` is the training part
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_path: Option<PathBuf>,
    /// `imagenet`, `folder`: class of each validation image, if those lie in one flat folder or
    /// archive: a line each in the order of the file names, or Kaggle's `LOC_val_solution.csv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_labels: Option<PathBuf>,
    /// `pairs`, `ade20k`: the names of the classes by label, one a line, and behind a tab the
    /// colour of each as `#rrggbb`; or CVAT's `labelmap.txt`. Left out: `classes.txt` or
    /// `labelmap.txt` in `data.path`, or those of ADE20K, or of VOC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub classes: Option<PathBuf>,
    /// `pairs`, `ade20k`: name of the folder of images in `data.path`; the folders of the parts are
    /// in it or above it (`photos/train`, `train/photos`), or `*` stands for their name
    /// (`*_photos`). Left out: `images`, `img_dir`, `img` or `JPEGImages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    /// `pairs`, `ade20k`: name of the folder of label maps, likewise. Left out: `annotations`,
    /// `labels`, `masks`, `ann_dir` or `SegmentationClass`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_maps: Option<String>,
    /// `pairs`, `ade20k`: what the file names of images end in, before the extension, and those of
    /// their label maps do not, such as `_leftImg8bit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_suffix: Option<String>,
    /// `pairs`, `ade20k`: what the file names of label maps end in, before the extension, and those
    /// of their images do not, such as `_mask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_suffix: Option<String>,
    /// `pairs`, `ade20k`: whether 0 in a label map is no class but ignored, and the classes are
    /// numbered from 1. Left out: as in ADE20K for `ade20k`, and not so for `pairs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduce_zero_label: Option<bool>,
    /// `imagenet`, `folder`: the folder that lists of files are kept in between runs. Left out:
    /// beside the data if that can be written, else the user's cache folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub index_cache: Option<PathBuf>,
    /// Whether archives and packs are copied to the node's own disk (`$SLURM_TMPDIR`): `"auto"` (in
    /// the background, if there is one with room), `"off"`, `"require"` (first of all, or not at
    /// all).
    pub stage: Stage,
    /// Loader threads: `"auto"` (the cores of the allocation, shared among its GPUs, at most 16) or
    /// a number. The data do not depend on it.
    pub workers: Workers,
    /// Threads that read files ahead of the loader threads: `"auto"` or a number. More of them help
    /// on storage that answers late, such as Lustre.
    pub readers: Workers,
    /// Whole batches that wait for the device. One more is in the making: their bytes are what the
    /// loader takes.
    pub prefetch: usize,
    /// What becomes of a training image that cannot be read: `"replace"` or `"fail"`.
    pub bad_train: BadTrain,
    /// What becomes of a validation or test image that cannot be read: `"fail"`, or `"wrong"`,
    /// counted as such.
    pub bad_test: BadTest,
    /// Statistics that pixels are normalised by.
    pub normalize: Normalize,
    /// Share of the training set held out for validation, 0 ≤ share < 1. It decides which
    /// checkpoint is "best".
    pub val_fraction: f64,
    /// The seed that chooses the held-out images. Left out: 0, so that all runs of a study share
    /// their training set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_seed: Option<u64>,
    /// How many of each class are held out: its share, but for a training image that it keeps
    /// (`"each_class"`), or its share rounded, as configurations of version 1 did (`"rounded"`: a
    /// class of few images may lose all of them). Left out: `"each_class"`.
    #[serde(skip_serializing_if = "HoldOut::is_default")]
    pub val_rule: HoldOut,
    /// Whether the test images are evaluated during training where no validation images are: they
    /// are watched, and choose nothing.
    pub watch_test: bool,
    /// The `shapes` dataset's sizes.
    pub shapes: ShapesConfig,
}

impl DataConfig {
    /// The configuration as it takes effect: with the seed of held-out images if there are some,
    /// and without what chooses them if there are none.
    pub fn effective(&self) -> Self {
        let (val_seed, val_rule) = match self.val_fraction > 0.0 {
            true => (Some(self.val_seed.unwrap_or(0)), self.val_rule),
            false => (None, HoldOut::default()),
        };
        Self { val_seed, val_rule, ..self.clone() }
    }

    /// `data.path`, which a dataset in files needs.
    pub(crate) fn required_path(&self) -> Result<&Path, DataError> {
        self.path.as_deref().ok_or(DataError::MissingPath { dataset: self.dataset.name() })
    }
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            dataset: DatasetKind::Shapes,
            path: None,
            val_path: None,
            val_labels: None,
            classes: None,
            images: None,
            label_maps: None,
            image_suffix: None,
            label_suffix: None,
            reduce_zero_label: None,
            index_cache: None,
            stage: Stage::Auto,
            workers: Workers::Auto,
            readers: Workers::Auto,
            prefetch: 4,
            normalize: Normalize::Imagenet,
            bad_train: BadTrain::default(),
            bad_test: BadTest::default(),
            val_fraction: 0.0,
            val_seed: None,
            val_rule: HoldOut::default(),
            watch_test: true,
            shapes: ShapesConfig::default(),
        }
    }
}
