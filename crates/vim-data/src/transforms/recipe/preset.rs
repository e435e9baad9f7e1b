//! The named recipes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::transforms::eval_transform::EVAL_CROP;

use super::auto_augment::{AutoAugment, RandAugment};
use super::resolve::{Erasing, Mixing, Recipe};
use super::section::{CropMode, EraseMode, MixMode, OrderKind};

/// A named recipe: the values that [`AugmentConfig`](super::AugmentConfig) takes where a key is left out.
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
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum AugmentPreset {
    /// Nothing.
    None,
    /// Zero padding by 4 pixels, a random crop of the original size, a horizontal flip with probability ½.
    #[default]
    Cifar,
    /// The original's: random crop and flip, RandAugment, erasing, mixup and cutmix, every image three times.
    Deit,
    /// DeiT III's: random resized crop and flip, one of three operations, colour jitter, mixup and cutmix, every image three times.
    Three,
}

impl Recipe {
    /// The values of a preset.
    ///
    /// # Source
    /// `deit` and `three`: the defaults of the original's `main.py`, without and with `--ThreeAugment`, which
    /// replaces the whole transform, RandAugment and erasing included. `three` is Touvron et al. 2022, "DeiT III".
    #[must_use]
    pub fn preset(preset: AugmentPreset) -> Self {
        let none = Self {
            crop: CropMode::None,
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
            hflip: 0.0,
            auto_augment: AutoAugment::Off,
            color_jitter: 0.0,
            three_augment: false,
            erase: Erasing { prob: 0.0, mode: EraseMode::Pixel, count: 1 },
            mix: Mixing {
                mixup: 0.0,
                cutmix: 0.0,
                cutmix_minmax: None,
                prob: 1.0,
                switch_prob: 0.5,
                mode: MixMode::Batch,
            },
            repeats: 1,
            order: OrderKind::Keyed,
            eval_crop_ratio: EVAL_CROP,
        };
        let mixed = Mixing { mixup: 0.8, cutmix: 1.0, ..none.mix };
        match preset {
            AugmentPreset::None => none,
            AugmentPreset::Cifar => Self { crop: CropMode::Pad, hflip: 0.5, ..none },
            AugmentPreset::Deit => Self {
                crop: CropMode::Auto,
                hflip: 0.5,
                auto_augment: AutoAugment::Rand(RandAugment::DEIT),
                color_jitter: 0.3,
                erase: Erasing { prob: 0.25, ..none.erase },
                mix: mixed,
                repeats: 3,
                ..none
            },
            AugmentPreset::Three => Self {
                crop: CropMode::Resized,
                hflip: 0.5,
                color_jitter: 0.3,
                three_augment: true,
                mix: mixed,
                repeats: 3,
                ..none
            },
        }
    }
}
