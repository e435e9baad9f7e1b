//! The named sizes, and the names under which the original registers its models.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use vim_kernels::Discretization;

use super::model::VimConfig;

/// A named size: a table of `presets.toml`, the layer under what a `[model]` section says.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Display,
    EnumString,
    IntoStaticStr,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Preset {
    /// Vim-Ti: `d_model` 192, 24 blocks.
    #[default]
    Tiny,
    /// Vim-S: `d_model` 384, 24 blocks.
    Small,
    /// Vim-B: `d_model` 768, 24 blocks.
    Base,
    /// Vim-Ti on overlapping patches: 16 px every 8 px, 730 tokens.
    TinyStride8,
    /// Vim-S on overlapping patches.
    SmallStride8,
    /// `d_model` 768 in 12 blocks, with layer scale from 1e-5.
    BaseDepth12,
}

/// A name under which the original, or its fork with six discretizations, registers a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The name.
    pub name: &'static str,
    /// The size that it stands for.
    pub preset: Preset,
    /// The discretization that it stands for.
    pub discretization: Discretization,
}

const fn registered(name: &'static str, preset: Preset, method: Discretization) -> Registered {
    Registered { name, preset, discretization: method }
}

/// Every registered name: the first five of the original, the others of the fork.
pub const REGISTERED: [Registered; 14] = {
    use Discretization::{Bilinear, Foh, HighOrder, Poly, Rk4, Zoh};
    use Preset::{Base, BaseDepth12, Small, SmallStride8, Tiny, TinyStride8};
    [
        registered(
            "vim_tiny_patch16_224_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2",
            Tiny,
            Zoh,
        ),
        registered(
            "vim_tiny_patch16_stride8_224_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2",
            TinyStride8,
            Zoh,
        ),
        registered(
            "vim_small_patch16_224_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2",
            Small,
            Zoh,
        ),
        registered(
            "vim_small_patch16_stride8_224_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2",
            SmallStride8,
            Zoh,
        ),
        registered(
            "vim_base_patch16_224_bimambav2_final_pool_mean_abs_pos_embed_with_middle_cls_token_div2",
            Base,
            Zoh,
        ),
        registered("vim_tiny_patch16_224_bimambav2_foh", Tiny, Foh),
        registered("vim_tiny_patch16_224_bimambav2_bilinear", Tiny, Bilinear),
        registered("vim_tiny_patch16_224_bimambav2_poly", Tiny, Poly),
        registered("vim_tiny_patch16_224_bimambav2_highorder", Tiny, HighOrder),
        registered("vim_tiny_patch16_224_bimambav2_rk4", Tiny, Rk4),
        registered("vim_base_patch16_224_bimambav2_foh", BaseDepth12, Foh),
        registered("vim_base_patch16_224_bimambav2_bilinear", BaseDepth12, Bilinear),
        registered("vim_base_patch16_224_bimambav2_poly", BaseDepth12, Poly),
        registered("vim_base_patch16_224_bimambav2_highorder", BaseDepth12, HighOrder),
    ]
};

impl Preset {
    /// Every [`Preset`] by its name, in the order of their definition.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::VARIANTS.iter().map(|&preset| preset.into())
    }

    /// The size that a name stands for, and the method where it is a [`Registered`] one.
    ///
    /// # Errors
    ///
    /// A text that lists the names, if `name` is none of them.
    pub fn named(name: &str) -> Result<(Self, Option<Discretization>), String> {
        if let Ok(preset) = name.parse() {
            return Ok((preset, None));
        }
        match REGISTERED.iter().find(|registered| registered.name == name) {
            Some(registered) => Ok((registered.preset, Some(registered.discretization))),
            None => Err(format!(
                "unknown model `{name}` (known: {}, and the original's names, which `vim-train \
                 models` lists)",
                Self::names().collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// What differs from [`VimConfig::default`].
    fn table(self) -> toml::Table {
        const READ: &str = "invariant: a test reads every preset";
        let presets = include_str!("../../presets.toml");
        let mut presets: BTreeMap<String, toml::Table> = toml::from_str(presets).expect(READ);
        presets.remove::<str>(self.into()).expect(READ)
    }
}

impl<'de> Deserialize<'de> for Preset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).map(|(preset, _)| preset).map_err(de::Error::custom)
    }
}

impl JsonSchema for Preset {
    fn schema_name() -> Cow<'static, str> {
        "Preset".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let short: Vec<&str> = Self::names().collect();
        let long: Vec<&str> = REGISTERED.iter().map(|model| model.name).collect();
        json_schema!({
            "description": "A named size.",
            "oneOf": [
                { "enum": short },
                { "description": "A name of the original.", "enum": long, "x-alias": true }
            ]
        })
    }
}

impl VimConfig {
    /// The named size at 224 px and 1000 classes, zoh.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let sizes = preset.table().try_into();
        Self { preset, ..sizes.expect("invariant: a test reads every preset") }
    }

    /// The model that a name stands for: a [`Preset`]'s, or a [`Registered`] one.
    ///
    /// # Errors
    ///
    /// As [`Preset::named`].
    pub fn named(name: &str) -> Result<Self, String> {
        let (preset, method) = Preset::named(name)?;
        let config = Self::preset(preset);
        Ok(Self { discretization: method.unwrap_or(config.discretization), ..config })
    }

    /// Lays the preset of a `[model]` section under it: every key that the section leaves out takes
    /// the preset's value. A `preset` that is no name is left for the decoder to refuse.
    pub fn fill_from_preset(section: &mut toml::Table) {
        let named = match section.get("preset") {
            None => Ok((Preset::default(), None)),
            Some(name) => Preset::named(name.as_str().unwrap_or_default()),
        };
        let Ok((preset, method)) = named else { return };
        let mut below = preset.table();
        if section.contains_key("patch_size") {
            below.remove("stride"); // it follows the patches
        }
        if let Some(method) = method {
            below.insert("discretization".into(), method.to_string().into());
        }
        section.insert("preset".into(), preset.to_string().into());
        for (key, value) in below {
            section.entry(key).or_insert(value);
        }
    }
}
