//! What weights record of themselves: all that decides what a forward pass makes of an image, what
//! its classes are called, and which images were held out.
//!
//! A checkpoint has it as a file of its own, an exported file in its metadata. It has no date,
//! path, device, number of ranks or build in it, so that the same run always writes the same bytes.

use serde::{Deserialize, Serialize};
use vim_data::{
    AugmentPreset, DataConfig, DatasetKind, DenseRecipe, Exif, HoldOut, Normalize, Recipe, Split,
    Splits,
};
use vim_dense::SegmenterConfig;
use vim_dense::detection::DetectorConfig;
use vim_model::{Preset, SsmConfig, VimConfig};

use crate::config::Config;

/// Key of the record beside the arrays in this program's files.
pub const METADATA_KEY: &str = "vim_train";

/// What weights record of themselves. Its sections are those of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The names of the classes by label, as the run recorded them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// `[model]`, with every effective key set.
    pub model: VimConfig,
    /// `[ssm]`.
    pub ssm: SsmConfig,
    /// `[segmentation]` of a segmenter, with every effective key set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segmentation: Option<SegmenterConfig>,
    /// `[detection]` of a detector, with every key set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection: Option<DetectorConfig>,
    /// How the run showed images to its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<RecordedImages>,
    /// The images that the run trained on, and those that it held out.
    #[serde(default, rename = "split", skip_serializing_if = "Option::is_none")]
    pub data: Option<RecordedData>,
}

/// How a run shows images to its model in evaluation, without where they are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedImages {
    /// `data.dataset`.
    pub dataset: DatasetKind,
    /// `data.normalize`.
    pub normalize: Normalize,
    /// What `normalize` is of that dataset: the mean of each channel.
    pub mean: [f64; 3],
    /// Likewise the standard deviations.
    pub std: [f64; 3],
    /// `augment.eval_crop_ratio`, where images have one size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_crop_ratio: Option<f64>,
    /// `data.exif`, where images are turned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exif: Option<Exif>,
    /// `[pairs]`, where they have label maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<DenseRecipe>,
}

impl RecordedImages {
    /// Those of the effective `config`.
    fn of(config: &Config) -> Self {
        let statistics = config.data.statistics();
        let has_classes_alone = config.heads() == (None, None);
        // The decimal number that the f32 was written as.
        let decimal = |value: f32| value.to_string().parse().unwrap_or(f64::from(value));
        Self {
            dataset: config.data.dataset,
            normalize: config.data.normalize,
            mean: statistics.mean.map(decimal),
            std: statistics.std.map(decimal),
            eval_crop_ratio: has_classes_alone.then_some(config.augment.eval_crop_ratio),
            exif: (config.data.exif() == Exif::Apply).then_some(Exif::Apply),
            pairs: config.pairs,
        }
    }
}

/// Which images a run trains on, and which it holds out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedData {
    /// Hash of the training part's images, with those held out: their names, order and labels. Not
    /// known of runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_fingerprint: Option<String>,
    /// Likewise of the test images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_fingerprint: Option<String>,
    /// Images of the training part, with those held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_images: Option<usize>,
    /// Test images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_images: Option<usize>,
    /// Likewise of validation images that are a part of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_fingerprint: Option<String>,
    /// Validation images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_images: Option<usize>,
    /// `data.val_fraction`.
    pub val_fraction: f64,
    /// The share of the training part that is tested; 0 if there is a test part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub test_fraction: f64,
    /// `data.val_seed`, with every share above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_seed: Option<u64>,
    /// `data.val_rule`.
    #[serde(default)]
    pub val_rule: HoldOut,
}

impl RecordedData {
    /// What `config` says of them, without looking at the images.
    pub fn of_config(config: &DataConfig) -> Self {
        let DataConfig { val_fraction, test_fraction, val_seed, val_rule, .. } = config.effective();
        let test_fraction = test_fraction.unwrap_or(0.0);
        Self { val_fraction, test_fraction, val_seed, val_rule, ..Self::default() }
    }

    /// The images in `splits`, which `config` has opened.
    pub fn of(config: &DataConfig, splits: &Splits) -> Self {
        // Images that are held out are of the training part.
        let of = |split: &Split| (split.dataset().fingerprint().to_string(), split.dataset().len());
        let (train_fingerprint, train_images) = of(&splits.train);
        let test = (splits.test_fraction == 0.0).then(|| of(&splits.test)).unzip();
        let val = splits.val.as_ref().filter(|_| config.val_fraction == 0.0).map(of).unzip();
        Self {
            train_fingerprint: Some(train_fingerprint),
            train_images: Some(train_images),
            test_fingerprint: test.0,
            test_images: test.1,
            val_fingerprint: val.0,
            val_images: val.1,
            test_fraction: splits.test_fraction,
            ..Self::of_config(config)
        }
    }

    /// What changed from these images to `now`, a text for each part; none where that is not known.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        PARTS.iter().filter_map(|part| self.change(now, part)).collect()
    }

    /// What changed of a part, `"training"`, `"validation"` or `"test"`.
    pub fn change(&self, now: &Self, part: &str) -> Option<String> {
        let of = |data: &Self| match part {
            "training" => Some((data.train_fingerprint.clone()?, data.train_images)),
            "validation" => Some((data.val_fingerprint.clone()?, data.val_images)),
            _ => Some((data.test_fingerprint.clone()?, data.test_images)),
        };
        let ((old, was), (new, is)) = (of(self)?, of(now)?);
        let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
        (old != new).then(|| match was == is {
            false => format!("{was} {part} images were recorded, now there are {is}"),
            true => format!(
                "of the {is} {part} images, names, order or classes are no longer those recorded"
            ),
        })
    }
}

/// The parts of a dataset, as messages call them.
const PARTS: [&str; 3] = ["training", "validation", "test"];

/// Whether a share is none.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

impl Recorded {
    /// The sections that describe `config`, without heads.
    pub fn of(config: &VimConfig) -> Self {
        let model = VimConfig { preset: Preset::default(), ..config.effective() };
        // Which kernel computes it may depend on the device.
        let ssm = SsmConfig { scan: SsmConfig::default().scan, ..config.ssm };
        let (segmentation, detection) = (None, None);
        Self { classes: Vec::new(), model, ssm, segmentation, detection, images: None, data: None }
    }

    /// The record of a run of `config` on `data`, whose classes are called `classes`.
    pub fn of_run(config: &Config, classes: &[String], data: RecordedData) -> Self {
        let config = config.effective();
        let (segmentation, detection) = config.heads();
        Self {
            classes: classes.to_vec(),
            segmentation,
            detection,
            images: Some(RecordedImages::of(&config)),
            data: Some(data),
            ..Self::of(&config.model)
        }
    }

    /// The record in `text`, if this version understands it.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The model, or what the heads of a segmenter or a detector are on.
    pub fn vim(&self) -> VimConfig {
        VimConfig { ssm: self.ssm, ..self.model.clone() }
    }

    /// A configuration that shows images to the model as its run did, if they are recorded and
    /// all of it is valid.
    pub fn config(&self) -> Option<Config> {
        let RecordedImages { dataset, normalize, exif, pairs, eval_crop_ratio, .. } = self.images?;
        let none = Recipe::preset(AugmentPreset::None);
        let ratio = eval_crop_ratio.unwrap_or(none.eval_crop_ratio);
        let config = Config {
            model: self.vim(),
            ssm: self.ssm,
            data: DataConfig { dataset, normalize, exif, ..DataConfig::default() },
            // Other tasks allow no other one, and only training has one.
            augment: Recipe { eval_crop_ratio: ratio, ..none },
            pairs,
            ..Config::default()
        };
        let config = config.with_heads(self.segmentation.clone(), self.detection.clone());
        config.validate().is_ok().then_some(config)
    }

    /// As TOML, its keys sorted.
    ///
    /// # Panics
    ///
    /// Never: every section has a TOML form.
    pub fn to_toml(&self) -> String {
        let table = toml::Table::try_from(self).expect("invariant: a section has a TOML form");
        toml::to_string(&table).expect("invariant: a table has a TOML form")
    }
}
