//! `[augment]`: the augmentation of training images, and all its random numbers.
//!
//! A [`Recipe`] is the section: a preset and what differs from it. It draws a [`SamplePlan`] for an
//! image and a [`MixPlan`] for each image of a batch: pure functions of a key, which determine the
//! pixels. Applying a plan draws only the noise of erased boxes, from a seed in the plan.
//!
//! # Source
//! The transforms of the original (`datasets.py`, `augment.py`), which are those of timm 0.4.12 and
//! torchvision 0.16: the same procedures, hence the same distributions. The original's random
//! numbers depend on the number of worker processes and cannot be reproduced; ours depend on the
//! key alone.

mod check;
mod mix;
mod rand_augment;
mod regions;

use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use super::resize::{EVAL_CROP, SMALL, covered};
use super::{Op, SamplePlan};
use crate::rng;
use crate::statistics::Normalize;

pub use mix::{MixKey, MixPlan, cutmix_box, label_smoothing_loss, mixed_targets, soft_target_loss};
pub use rand_augment::{AutoAugment, RandAugment};

/// A named recipe: a file in `presets/`, the layer under what an `[augment]` section says.
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
    Display,
    EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum AugmentPreset {
    /// Nothing.
    None,
    /// Zero padding by 4 pixels, a random crop of the original size, a horizontal flip with
    /// probability ½.
    #[default]
    Cifar,
    /// The original's: random crop and flip, RandAugment, erasing, mixup and cutmix, every image
    /// three times.
    Deit,
    /// DeiT III's: random resized crop and flip, one of three operations, colour jitter, mixup and
    /// cutmix, every image three times.
    Three,
}

impl AugmentPreset {
    /// What differs from [`Recipe::default`].
    fn table(self) -> toml::Table {
        let text = match self {
            Self::None => include_str!("../../../presets/none.toml"),
            Self::Cifar => include_str!("../../../presets/cifar.toml"),
            Self::Deit => include_str!("../../../presets/deit.toml"),
            Self::Three => include_str!("../../../presets/three.toml"),
        };
        text.parse().expect("invariant: a test reads every preset")
    }
}

/// How the part of an image that is trained on is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CropMode {
    /// Not at random: as in evaluation.
    None,
    /// Zero padding by 4 pixels, then a crop of the target's size at any place.
    Pad,
    /// Any part of `scale` of the area and `ratio` of the sides, resized to the target.
    Resized,
    /// The short side resized to the target, 4 reflected pixels on every side, then a crop at any
    /// place.
    Simple,
    /// `pad` where the dataset's images and the target are of at most 32 pixels, else `resized`.
    Auto,
}

/// What an erased box is filled with, in units of the normalised image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum EraseMode {
    /// 0, the mean colour.
    Const,
    /// One normally distributed colour per box.
    Rand,
    /// Normally distributed noise.
    Pixel,
}

/// What shares its mixing with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum MixMode {
    /// All images of a batch.
    Batch,
    /// An image and its partner.
    Pair,
    /// Nothing: every image has its own.
    Elem,
}

/// Where the order of an epoch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum OrderKind {
    /// The run's seed and the epoch.
    Keyed,
    /// The epoch alone, index by index as the original's samplers.
    Reference,
}

/// The `[augment]` section: all that training images and their order depend on, besides the seed.
///
/// Evaluation images are never augmented; `eval_crop_ratio` alone is for them. Deserializing takes
/// [`Recipe::default`], the preset `cifar`, for keys that are left out, whatever `preset` says:
/// [`Recipe::fill_from_preset`] completes a section first. `scale`, `ratio` and `cutmix` are
/// optional because other keys can rule them out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// The recipe that fills every key left out below: nothing; crop and flip (`"cifar"`); the
    /// original's, on ImageNet and on CIFAR (`"deit"`); or DeiT III's (`"three"`).
    pub preset: AugmentPreset,
    /// How the part of an image that is trained on is chosen. `"auto"` is `"pad"` where
    /// the dataset's images and the model's are of at most 32 pixels, as in CIFAR, else
    /// `"resized"`. The preset `"cifar"` has `"pad"` for `shapes` and CIFAR, `"auto"` for others.
    pub crop: CropMode,
    /// Smallest and largest share of the area in a `"resized"` crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f64; 2]>,
    /// Smallest and largest width over height of a `"resized"` crop, before it is resized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[f64; 2]>,
    /// Probability that an image is mirrored left to right.
    pub hflip: f64,
    /// RandAugment in timm's notation, `"rand-m9-mstd0.5-inc1"`: magnitude m of 10, its deviation
    /// mstd, n operations (2), stronger with magnitude (inc), their weights (w0, left out: equal).
    /// `""` for none.
    pub auto_augment: AutoAugment,
    /// Whose mean colour pixels have that RandAugment moves in from outside the image:
    /// `"imagenet"`'s or the `"dataset"`'s. Left out: that of `data.normalize`; in configurations
    /// of version 1, ImageNet's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Normalize>,
    /// Largest change of brightness, contrast and saturation, as a share. As in the original it is
    /// made only where `auto_augment` is `""`.
    pub color_jitter: f64,
    /// DeiT III's: one of grayscale, solarize and blur, then `color_jitter`. It takes the place of
    /// `auto_augment`.
    pub three_augment: bool,
    /// Probability that boxes of an image are erased.
    pub erase_prob: f64,
    /// What an erased box is filled with after normalisation: 0, one random colour, or noise.
    pub erase_mode: EraseMode,
    /// Most boxes erased in an image; how many is drawn, and they share the area.
    pub erase_count: u32,
    /// Parameter of the Beta distribution of mixup's weight; 0 for no mixup.
    pub mixup: f64,
    /// Parameter of the Beta distribution of cutmix's share of the area; 0 for no cutmix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cutmix: Option<f64>,
    /// Smallest and largest side of cutmix's box as a share of the image's; it turns cutmix on, in
    /// place of `cutmix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cutmix_minmax: Option<[f64; 2]>,
    /// Probability that images are mixed at all.
    pub mix_prob: f64,
    /// Probability of cutmix where both are on.
    pub mix_switch_prob: f64,
    /// What is drawn once: the mixing of a batch, of a pair of images, or of each image.
    pub mix_mode: MixMode,
    /// Times that an image is drawn in an epoch, each with an augmentation of its own. An epoch has
    /// as many draws as there are images, so that it sees one in `repeats` of them.
    pub repeats: u32,
    /// Where the order of an epoch comes from: the run's seed, or, index by index, the original's
    /// samplers, which know the epoch alone.
    pub order: OrderKind,
    /// Evaluation of images larger than 32 pixels: the model's size over the length that the short
    /// side is resized to before the centre is cut out.
    pub eval_crop_ratio: f64,
}

impl Default for Recipe {
    /// The preset `cifar`.
    fn default() -> Self {
        Self {
            preset: AugmentPreset::Cifar,
            crop: CropMode::Pad,
            scale: None,
            ratio: None,
            hflip: 0.5,
            auto_augment: AutoAugment::Off,
            fill: None,
            color_jitter: 0.0,
            three_augment: false,
            erase_prob: 0.0,
            erase_mode: EraseMode::Pixel,
            erase_count: 1,
            mixup: 0.0,
            cutmix: None,
            cutmix_minmax: None,
            mix_prob: 1.0,
            mix_switch_prob: 0.5,
            mix_mode: MixMode::Batch,
            repeats: 1,
            order: OrderKind::Keyed,
            eval_crop_ratio: EVAL_CROP,
        }
    }
}

/// One draw of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct SampleKey {
    /// The run's.
    pub seed: u64,
    /// Pass over the training images.
    pub epoch: u64,
    /// The image's index in the dataset.
    pub index: u64,
    /// Which of its draws in the epoch, `0..repeats`.
    pub repeat: u32,
    /// 0 for the image itself, then the number of the replacement for an image that cannot be read.
    pub attempt: u32,
}

impl SampleKey {
    /// A generator for one purpose, so that the draws of one part of a recipe do not affect
    /// another.
    pub(crate) fn rng(&self, purpose: &str) -> ChaCha8Rng {
        let Self { seed, epoch, index, repeat, attempt } = *self;
        rng::keyed(purpose, &[seed, epoch, index, u64::from(repeat), u64::from(attempt)])
    }
}

impl Recipe {
    /// The recipe of a preset.
    #[must_use]
    pub fn preset(preset: AugmentPreset) -> Self {
        let recipe = preset.table().try_into();
        Self { preset, ..recipe.expect("invariant: a test reads every preset") }
    }

    /// Lays the preset of an `[augment]` section under it: every key that the section leaves out
    /// takes the preset's value. A `preset` that is no name is left for the decoder to refuse.
    ///
    /// Images `of_all_sizes` are never cut without a resize because of a preset: their crop is
    /// `auto` where the preset has `pad`.
    pub fn fill_from_preset(section: &mut toml::Table, of_all_sizes: bool) {
        let preset = match section.get("preset") {
            None => Ok(AugmentPreset::default()),
            Some(name) => name.as_str().unwrap_or_default().parse(),
        };
        let Ok(preset) = preset else { return };
        let mut below = preset.table();
        if section.contains_key("cutmix_minmax") {
            below.remove("cutmix"); // it takes its place
        }
        let pad = CropMode::Pad.to_string();
        if of_all_sizes && below.get("crop").and_then(toml::Value::as_str) == Some(&pad) {
            below.insert("crop".into(), CropMode::Auto.to_string().into());
        }
        for (key, value) in below {
            section.entry(key).or_insert(value);
        }
    }

    /// This recipe with every key set that has an effect beside the others, and no other: what a
    /// run records.
    #[must_use]
    pub fn effective(&self) -> Self {
        let resized = self.is_resized();
        Self {
            scale: resized.then(|| self.scale()),
            ratio: resized.then(|| self.ratio()),
            fill: self.fill.filter(|_| self.auto_augment != AutoAugment::Off),
            cutmix: self.cutmix_minmax.is_none().then(|| self.cutmix()),
            ..self.clone()
        }
    }

    /// Whether a crop may be resized: then it has a scale and a ratio.
    fn is_resized(&self) -> bool {
        matches!(self.crop, CropMode::Resized | CropMode::Auto)
    }

    /// Share of the area in a resized crop, smallest and largest.
    #[must_use]
    pub fn scale(&self) -> [f64; 2] {
        self.scale.unwrap_or([0.08, 1.0])
    }

    /// Width over height of a resized crop, smallest and largest.
    #[must_use]
    pub fn ratio(&self) -> [f64; 2] {
        self.ratio.unwrap_or([3.0 / 4.0, 4.0 / 3.0])
    }

    /// Parameter of cutmix's Beta distribution; 0: off.
    ///
    /// It is 1 beside `cutmix_minmax`, as in the original: the range of the sides replaces the
    /// distribution.
    #[must_use]
    pub fn cutmix(&self) -> f64 {
        if self.cutmix_minmax.is_some() { 1.0 } else { self.cutmix.unwrap_or(0.0) }
    }

    /// Whether images are mixed: then an image's target is a distribution over classes.
    #[must_use]
    pub fn mixes(&self) -> bool {
        (self.mixup > 0.0 || self.cutmix() > 0.0) && self.mix_prob > 0.0
    }

    /// The crop to `target`'s height and width: what [`CropMode::Auto`] stands for there. `images`
    /// is the size of every image of the dataset, [`crate::Split::image_size`].
    ///
    /// # Source
    /// The original pads for targets up to 32 pixels, which there are CIFAR's; larger images would
    /// be cut to pieces.
    #[must_use]
    pub fn crop_mode(&self, target: [usize; 2], images: Option<[usize; 2]>) -> CropMode {
        let is_small = |size: [usize; 2]| size[0].max(size[1]) <= SMALL;
        match self.crop {
            CropMode::Auto if is_small(target) && images.is_some_and(is_small) => CropMode::Pad,
            CropMode::Auto => CropMode::Resized,
            CropMode::None | CropMode::Pad | CropMode::Resized | CropMode::Simple => self.crop,
        }
    }

    /// What becomes of images that are larger than `target`, in training and in evaluation, in
    /// words; `images` as for [`Recipe::crop_mode`].
    #[must_use]
    pub fn cropping(&self, target: [usize; 2], images: Option<[usize; 2]>) -> String {
        let training = format!("crop {}", self.crop_mode(target, images));
        if images == Some(target) {
            return training;
        }
        let [[height, width], [rows, columns]] = [covered(target, self.eval_crop_ratio), target];
        let cut = match [height, width] == target {
            true => String::new(),
            false => format!(" and cut to {rows}x{columns}"),
        };
        format!("{training}; evaluation resized to cover {height}x{width} px{cut}")
    }

    /// Draws what is done to one image: a pure function of the arguments.
    ///
    /// The crop `auto` takes the dataset's images to be of `source`'s size; [`crate::Loader`] knows
    /// better, and replaces it before.
    ///
    /// # Shapes
    /// `source` and `target` are heights and widths in pixels: of the image as stored and of the
    /// model's.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn draw(&self, key: SampleKey, source: [usize; 2], target: [usize; 2]) -> SamplePlan {
        assert!(source.iter().chain(&target).all(|&side| side > 0), "an image without pixels");
        SamplePlan {
            crop: self.draw_crop(&mut key.rng("vim-data crop v1"), source, target),
            flip: rng::chance(&mut key.rng("vim-data flip v1"), self.hflip),
            ops: self.draw_ops(key, target),
            erase: self.draw_erase(&mut key.rng("vim-data erase v1"), target),
        }
    }

    fn draw_ops(&self, key: SampleKey, size: [usize; 2]) -> Vec<Op> {
        let mut rng = key.rng("vim-data ops v1");
        match &self.auto_augment {
            AutoAugment::Rand(rand) => return rand.draw(&mut rng, size),
            AutoAugment::Off => {}
        }
        let mut ops = Vec::new();
        if self.three_augment {
            ops.push(one_of_three(&mut rng));
        }
        if self.color_jitter > 0.0 {
            ops.extend(color_jitter(&mut rng, self.color_jitter));
        }
        ops
    }
}

/// Brightness, contrast and saturation changed by up to `most`, as a share, in any order.
///
/// # Source
/// torchvision's `ColorJitter(most, most, most)`: three factors, uniform around 1, in a random
/// order.
fn color_jitter(rng: &mut ChaCha8Rng, most: f64) -> [Op; 3] {
    let mut factor = || rng::between(rng, [1.0 - most, 1.0 + most]);
    let mut ops = [
        Op::Brightness { factor: factor() },
        Op::Contrast { factor: factor() },
        Op::Color { factor: factor() },
    ];
    rng::shuffle(rng, &mut ops);
    ops
}

/// One of grayscale, solarize and blur, with equal probability.
///
/// # Source
/// Touvron et al. 2022, "DeiT III", §3; the original's `augment.py`: solarize from 128 on, Pillow's
/// `GaussianBlur` of radius 0.1 to 2.
fn one_of_three(rng: &mut ChaCha8Rng) -> Op {
    match rng::below(rng, 3) {
        0 => Op::Grayscale,
        1 => Op::Solarize { threshold: 128 },
        _ => Op::Blur { radius: rng::between(rng, [0.1, 2.0]) },
    }
}
