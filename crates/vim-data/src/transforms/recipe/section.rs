//! The `[augment]` section.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::auto_augment::AutoAugment;
use super::preset::AugmentPreset;

/// How the part of an image that is trained on is chosen.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CropMode {
    /// Not at random: as in evaluation.
    None,
    /// Zero padding by 4 pixels, then a crop of the target's size at any place.
    Pad,
    /// Any part of `scale` of the area and `ratio` of the sides, resized to the target.
    Resized,
    /// The short side resized to the target, 4 reflected pixels on every side, then a crop at any place.
    Simple,
    /// `resized` where the target is larger than 32 pixels, else `pad`.
    Auto,
}

/// What an erased box is filled with, in units of the normalised image.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    Display,
    IntoStaticStr,
)]
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
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    Display,
    IntoStaticStr,
)]
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
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum OrderKind {
    /// The run's seed and the epoch.
    Keyed,
    /// The epoch alone, index by index as the original's samplers.
    Reference,
}

/// The `[augment]` section. A key that is left out takes the preset's value.
///
/// Evaluation images are never augmented; `eval_crop_ratio` alone is for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AugmentConfig {
    /// The recipe that fills every key left out below: nothing; crop and flip (`"cifar"`); the original's, on ImageNet and on CIFAR (`"deit"`); or DeiT III's (`"three"`).
    pub preset: AugmentPreset,
    /// How the part of an image that is trained on is chosen. `"auto"` is the original's rule: `"resized"` where the model's images are larger than 32 pixels, else `"pad"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<CropMode>,
    /// Smallest and largest share of the area in a `"resized"` crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f64; 2]>,
    /// Smallest and largest width over height of a `"resized"` crop, before it is resized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<[f64; 2]>,
    /// Probability that an image is mirrored left to right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hflip: Option<f64>,
    /// RandAugment in timm's notation, `"rand-m9-mstd0.5-inc1"`: magnitude m of 10, its deviation mstd, n operations (2), stronger with magnitude (inc), their weights (w0, left out: equal). `""` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_augment: Option<AutoAugment>,
    /// Largest change of brightness, contrast and saturation, as a share. As in the original it is made only where `auto_augment` is `""`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color_jitter: Option<f64>,
    /// DeiT III's: one of grayscale, solarize and blur, then `color_jitter`. It takes the place of `auto_augment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub three_augment: Option<bool>,
    /// Probability that boxes of an image are erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_prob: Option<f64>,
    /// What an erased box is filled with after normalisation: 0, one random colour, or noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_mode: Option<EraseMode>,
    /// Most boxes erased in an image; how many is drawn, and they share the area.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_count: Option<u32>,
    /// Parameter of the Beta distribution of mixup's weight; 0 for no mixup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixup: Option<f64>,
    /// Parameter of the Beta distribution of cutmix's share of the area; 0 for no cutmix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cutmix: Option<f64>,
    /// Smallest and largest side of cutmix's box as a share of the image's; it turns cutmix on, in place of `cutmix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cutmix_minmax: Option<[f64; 2]>,
    /// Probability that images are mixed at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix_prob: Option<f64>,
    /// Probability of cutmix where both are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix_switch_prob: Option<f64>,
    /// What is drawn once: the mixing of a batch, of a pair of images, or of each image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix_mode: Option<MixMode>,
    /// Times that an image is drawn in an epoch, each with an augmentation of its own. An epoch has as many draws as there are images, so that it sees one in `repeats` of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// Where the order of an epoch comes from: the run's seed, or, index by index, the original's samplers, which know the epoch alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderKind>,
    /// Evaluation of images larger than 32 pixels: the model's size over the length that the short side is resized to before the centre is cut out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_crop_ratio: Option<f64>,
}
