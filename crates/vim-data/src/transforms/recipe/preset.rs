//! The named recipes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};

use super::section::Recipe;

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

impl Recipe {
    /// The recipe of a preset.
    #[must_use]
    pub fn preset(preset: AugmentPreset) -> Self {
        let recipe = preset.table().try_into();
        Self { preset, ..recipe.expect("invariant: a test reads every preset") }
    }

    /// Lays the preset of an `[augment]` section under it: every key that the section leaves out
    /// takes the preset's value. A `preset` that is no name is left for the decoder to refuse.
    pub fn fill_from_preset(section: &mut toml::Table) {
        let preset = match section.get("preset") {
            None => Ok(AugmentPreset::default()),
            Some(name) => name.as_str().unwrap_or_default().parse(),
        };
        let Ok(preset) = preset else { return };
        let mut below = preset.table();
        if section.contains_key("cutmix_minmax") {
            below.remove("cutmix"); // it takes its place
        }
        for (key, value) in below {
            section.entry(key).or_insert(value);
        }
    }
}
