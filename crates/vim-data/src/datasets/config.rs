//! The `[data]` section.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DatasetKind, ShapesConfig};
use crate::decode::Exif;
use crate::error::DataError;
use crate::loader::config::{BadTest, BadTrain, Workers};
use crate::statistics::Normalize;
use crate::storage::layout::DataParts;
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
    /// `folder`: which parts are read: `"train"` alone, which validation and test images are held
    /// out of; `"train_val"`, the latter of which are tested; `"train_test"`, `"train_val_test"`,
    /// or those that are there (`"auto"`), which a run records. Left out: `"auto"`. `coco`:
    /// `"auto"`, or `"train_val"`, with which a category above all others is a class, as in version
    /// 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<DataParts>,
    /// `imagenet`, `folder`: where the validation images are, if `data.path` does not hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_path: Option<PathBuf>,
    /// `imagenet`, `folder`: class of each validation image, if those lie in one flat folder or
    /// archive: a line each in the order of the file names, or Kaggle's `LOC_val_solution.csv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_labels: Option<PathBuf>,
    /// `pairs`, `ade20k`, `yolo`: the names of the classes by label, one a line, and behind a tab
    /// the colour of each as `#rrggbb`; or CVAT's `labelmap.txt`. Left out: `classes.txt` or
    /// `labelmap.txt` in `data.path`, or those of ADE20K, or of VOC, or as `data.yaml` has them.
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
    /// Whether images in files are turned as their EXIF orientation says: `"apply"`, as viewers
    /// show them (docs/data.md says what becomes of label maps and objects), or `"ignore"`. Left
    /// out: `"apply"` where there are label maps or objects, `"ignore"` where there are classes
    /// alone, as timm does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exif: Option<Exif>,
    /// `coco`, `yolo`: the folder or the zip of the training images, where it is not found in
    /// `data.path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub train_images: Option<PathBuf>,
    /// Likewise the annotations of the training images: of `coco` a file, of `yolo` the folder of
    /// their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub train_annotations: Option<PathBuf>,
    /// As `data.train_images`, of the validation images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_images: Option<PathBuf>,
    /// As `data.train_annotations`, of the validation images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub val_annotations: Option<PathBuf>,
    /// Whether objects have masks, and not boxes alone. No key: `detection.masks` says it to those
    /// who open the data; `None` is as the data have it.
    #[serde(skip)]
    pub masks: Option<bool>,
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
    /// `folder`, `coco` and `yolo` without validation and test images: share of the training set
    /// held out for the test, 0 ≤ share < 1. Left out: that of `data.val_fraction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_fraction: Option<f64>,
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
    /// and without what chooses them if there are none; with `exif` where it changes something.
    pub fn effective(&self) -> Self {
        let has_parts = matches!(self.dataset, DatasetKind::Folder | DatasetKind::Coco);
        let parts = has_parts.then(|| self.parts.unwrap_or_default());
        let test_fraction = match parts {
            Some(DataParts::Train) => Some(self.test_share()),
            Some(DataParts::Auto) => self.test_fraction,
            None if self.dataset.has_objects() => self.test_fraction,
            Some(DataParts::TrainVal | DataParts::TrainTest | DataParts::TrainValTest) | None => {
                None
            }
        };
        let val_rule = if self.val_fraction > 0.0 { self.val_rule } else { HoldOut::default() };
        let holds_out = self.val_fraction > 0.0 || test_fraction.is_some_and(|share| share > 0.0);
        let val_seed = holds_out.then(|| self.val_seed.unwrap_or(0));
        let is_dense = self.dataset.has_pairs() || self.dataset.has_objects();
        let matters = is_dense || (self.dataset.has_image_files() && self.exif() == Exif::Apply);
        let exif = matters.then(|| self.exif());
        Self { parts, test_fraction, val_seed, val_rule, exif, ..self.clone() }
    }

    /// The share of the training set that is tested where there are no test images.
    pub fn test_share(&self) -> f64 {
        self.test_fraction.unwrap_or(self.val_fraction)
    }

    /// `data.exif`, where it is left out what it then means.
    pub fn exif(&self) -> Exif {
        let is_dense = self.dataset.has_pairs() || self.dataset.has_objects();
        self.exif.unwrap_or(if is_dense { Exif::Apply } else { Exif::Ignore })
    }

    /// What is to be said of keys that the dataset does not look at, a line each.
    pub(super) fn without_effect(&self) -> impl Iterator<Item = String> {
        let of_path = |path: &Option<PathBuf>| Some(path.as_ref()?.display().to_string());
        let (pairs, objects) = (self.dataset.has_pairs(), self.dataset.has_objects());
        let (files, lists) =
            (self.dataset.has_image_files(), pairs || self.dataset == DatasetKind::Yolo);
        let of_files = "`imagenet` and `folder` alone look for validation images there";
        let of_lists = "`pairs`, `ade20k` and `yolo` alone take the classes' names of a file";
        let of_pairs = "`pairs` and `ade20k` alone have label maps";
        let of_objects = "`coco` and `yolo` alone have annotations";
        let flag = self.reduce_zero_label.map(|flag| flag.to_string());
        let all = [
            ("val_path", of_path(&self.val_path), files, of_files),
            ("val_labels", of_path(&self.val_labels), files, of_files),
            ("classes", of_path(&self.classes), lists, of_lists),
            ("images", self.images.clone(), pairs, of_pairs),
            ("label_maps", self.label_maps.clone(), pairs, of_pairs),
            ("image_suffix", self.image_suffix.clone(), pairs, of_pairs),
            ("label_suffix", self.label_suffix.clone(), pairs, of_pairs),
            ("reduce_zero_label", flag, pairs, of_pairs),
            ("train_images", of_path(&self.train_images), objects, of_objects),
            ("train_annotations", of_path(&self.train_annotations), objects, of_objects),
            ("val_images", of_path(&self.val_images), objects, of_objects),
            ("val_annotations", of_path(&self.val_annotations), objects, of_objects),
        ];
        let note = |(key, value, is_read, why): (_, Option<String>, bool, _)| {
            let value = value.filter(|_| !is_read)?;
            Some(format!("`data.{key} = {value}` has no effect: {why}"))
        };
        all.into_iter().filter_map(note)
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
            parts: None,
            val_path: None,
            val_labels: None,
            classes: None,
            images: None,
            label_maps: None,
            image_suffix: None,
            label_suffix: None,
            reduce_zero_label: None,
            exif: None,
            train_images: None,
            train_annotations: None,
            val_images: None,
            val_annotations: None,
            masks: None,
            index_cache: None,
            stage: Stage::Auto,
            workers: Workers::Auto,
            readers: Workers::Auto,
            prefetch: 4,
            normalize: Normalize::Imagenet,
            bad_train: BadTrain::default(),
            bad_test: BadTest::default(),
            val_fraction: 0.0,
            test_fraction: None,
            val_seed: None,
            val_rule: HoldOut::default(),
            watch_test: true,
            shapes: ShapesConfig::default(),
        }
    }
}
