//! The named sizes, and the names under which the original registers its models.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use vim_kernels::Discretization;

use super::resolve::VimConfig;
use super::section::SsmConfig;
use super::values::{DtRank, LayerScale};
use super::variant::{Bimamba, ClassToken, NormKind, Pool, Rope};

/// A named size: the values that [`ModelConfig`](super::ModelConfig) takes where a key is left out.
///
/// Parameters are at 224 px and 1000 classes.
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
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Preset {
    /// Vim-Ti: `d_model` 192, 24 blocks, 7,148,008 parameters.
    #[default]
    Tiny,
    /// Vim-S: `d_model` 384, 24 blocks, 25,796,584 parameters.
    Small,
    /// Vim-B: `d_model` 768, 24 blocks, 97,598,440 parameters.
    Base,
    /// Vim-Ti on overlapping patches (16 px every 8 px, 730 tokens), 7,250,344 parameters.
    #[strum(serialize = "tiny_stride8")]
    TinyStride8,
    /// Vim-S on overlapping patches, 26,001,256 parameters.
    #[strum(serialize = "small_stride8")]
    SmallStride8,
    /// `d_model` 768 in 12 blocks, with layer scale from 1e-5: 49,564,648 parameters.
    #[strum(serialize = "base_depth12")]
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
    /// Every [`Preset`] by its short name, in the order of their definition.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::VARIANTS.iter().map(|&preset| preset.into())
    }
}

/// The value of `model.preset`: a [`Preset`], by its short name or by a [`Registered`] one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelName {
    /// The size.
    pub preset: Preset,
    /// What a registered name says about the method; a short name says nothing.
    pub discretization: Option<Discretization>,
}

impl From<Preset> for ModelName {
    fn from(preset: Preset) -> Self {
        Self { preset, discretization: None }
    }
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Ok(preset) = name.parse::<Preset>() {
            return Ok(preset.into());
        }
        let found = REGISTERED.iter().find(|registered| registered.name == name);
        found
            .map(|model| Self {
                preset: model.preset,
                discretization: Some(model.discretization),
            })
            .ok_or_else(|| {
                let known: Vec<_> = Preset::names().collect();
                format!(
                    "unknown model `{name}` (known: {}, and the original's names, which `vim-train models` lists)",
                    known.join(", ")
                )
            })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |model: &&Registered| {
            model.preset == self.preset && Some(model.discretization) == self.discretization
        };
        match REGISTERED.iter().find(named) {
            Some(model) => formatter.write_str(model.name),
            None => self.preset.fmt(formatter),
        }
    }
}

impl Serialize for ModelName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for ModelName {
    fn schema_name() -> Cow<'static, str> {
        "ModelName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let short: Vec<&str> = Preset::names().collect();
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
        let (d_model, depth, stride) = match preset {
            Preset::Tiny => (192, 24, 16),
            Preset::Small => (384, 24, 16),
            Preset::Base => (768, 24, 16),
            Preset::TinyStride8 => (192, 24, 8),
            Preset::SmallStride8 => (384, 24, 8),
            Preset::BaseDepth12 => (768, 12, 16),
        };
        let layer_scale = match preset {
            Preset::BaseDepth12 => LayerScale::Starts(1e-5),
            Preset::Tiny
            | Preset::Small
            | Preset::Base
            | Preset::TinyStride8
            | Preset::SmallStride8 => LayerScale::None,
        };
        Self {
            image_size: 224.into(),
            patch_size: 16,
            stride,
            depth,
            d_model,
            d_state: 16,
            d_conv: 4,
            expand: 2,
            dt_rank: DtRank::Auto,
            bimamba: Bimamba::V2,
            divide_out: true,
            layer_scale,
            norm: NormKind::Rms,
            norm_eps: 1e-5,
            class_token: ClassToken::Middle,
            pool: Pool::Mean,
            abs_pos_embed: true,
            rope: Rope::None,
            rope_grid: 14,
            flip_ratio: 0.0,
            layer_pairs: false,
            dropout: 0.0,
            drop_path: 0.1,
            num_classes: 1000,
            discretization: Discretization::Zoh,
            ssm: SsmConfig::default(),
        }
    }
}
