//! The `[model]` and `[ssm]` sections: a complete model description, that of its mixers, and sizes
//! that follow from them; the named sizes, and the names under which the original registers its
//! models.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use vim_kernels::{Discretization, KernelChoice, ScanOptions, Series};

use super::values::{DtRank, ImageSize, LayerScale};
use super::variant::{
    Bimamba, ClassToken, DtBInit, GateGradient, NormKind, PatchInit, Pool, Rope, StateMatrix,
};

/// A complete model description: the `[model]` section, the [`SsmConfig`], and the size of the
/// head.
///
/// Deserializing takes [`VimConfig::default`], Vim-Ti, for keys that are left out, whatever
/// `preset` says: [`VimConfig::fill_from_preset`] completes a section first. Four keys are optional
/// because their value, or whether they have one, depends on others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VimConfig {
    /// The named size that fills every key left out below; the original's registered names are
    /// taken too (`vim-train models`).
    pub preset: Preset,
    /// How the state-space layer is discretized. Left out: zoh, or what a registered name says.
    pub discretization: Discretization,
    /// Size of the input images, in pixels: a square's side, or `[height, width]`. Left out: 224.
    pub image_size: ImageSize,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Distance between the corners of neighbouring patches, in pixels. Left out beside a
    /// `patch_size`: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Where the weights of the patches' projection start: as in the original (`"timm"`), or the
    /// same cut at two deviations (`"truncated"`). Left out: `"timm"`, and in configurations of
    /// version 1 `"truncated"`.
    pub patch_init: PatchInit,
    /// Number of blocks.
    pub depth: usize,
    /// Channels between blocks.
    pub d_model: usize,
    /// States per channel.
    pub d_state: usize,
    /// Taps of the depthwise convolution, 2 to 4.
    pub d_conv: usize,
    /// `d_inner / d_model`.
    pub expand: usize,
    /// Rank of the projection that delta is computed through: `"auto"`, ⌈`d_model` / 16⌉, or a
    /// number.
    pub dt_rank: DtRank,
    /// How a mixer goes over the tokens: both ways with parameters of their own (`"v2"`), both ways
    /// with shared ones (`"v1"`), or forward only (`"none"`).
    pub bimamba: Bimamba,
    /// Whether the two ways of `"v2"` are halved after they are summed. Left out: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divide_out: Option<bool>,
    /// Gain of every channel at the end of a mixer: `"none"`, or the number that it starts at.
    pub layer_scale: LayerScale,
    /// What normalizes: root mean square, or mean and variance.
    pub norm: NormKind,
    /// What is added to the mean square, or to the variance, under the root.
    pub norm_eps: f64,
    /// Where the token that the head reads stands among the patches; `"random"` is anywhere in
    /// training and before them in evaluation.
    pub class_token: ClassToken,
    /// What the head reads where there is no class token. Left out: `"mean"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// Whether learned positions are added to the tokens.
    pub abs_pos_embed: bool,
    /// What rotary positions turn before every block: nothing, the hidden tokens, or both these and
    /// the residual stream.
    pub rope: Rope,
    /// Patches along a side that rotary positions are scaled to, whatever the image. Left out: 14.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_grid: Option<usize>,
    /// Probability that a batch's tokens are reversed; in evaluation they are at 1 only.
    pub flip_ratio: f64,
    /// Whether blocks come in pairs that both see the same tokens, the second of them reversed, and
    /// are summed.
    pub layer_pairs: bool,
    /// Probability that a number of a token is dropped in training, after positions are added.
    pub dropout: f64,
    /// Largest probability that a block's output is dropped (stochastic depth); it grows linearly
    /// from 0.
    pub drop_path: f64,
    /// Size of the head, which the dataset decides.
    #[serde(skip)]
    pub num_classes: usize,
    /// Numerics of the scan: a section of its own.
    #[serde(skip)]
    pub ssm: SsmConfig,
}

/// The `[ssm]` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SsmConfig {
    /// The method of the forward way. Left out: `model.discretization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method_fwd: Option<Discretization>,
    /// The method of the backward way. Left out: `model.discretization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method_bwd: Option<Discretization>,
    /// Exact functions of delta·A, or the truncated series that published runs used.
    pub series: Series,
    /// Which implementation of the scan, and of rotary positions, runs. `VIM_USE_CUDA_KERNEL=1|0`
    /// overrides the file, `--set` overrides both.
    pub scan: KernelChoice,
    /// Where the reverse branch's `dt_proj` bias starts.
    pub dt_b_init: DtBInit,
    /// What the backward pass of `bimamba = "v1"` sends to the gate: the exact gradient, or the
    /// forward way's part alone as the original does. Left out: exact, but in
    /// `vim-golden` as the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1_gate_gradient: Option<GateGradient>,
    /// A of a channel: diagonal, or full (a learned coupling of its states that starts at none;
    /// bilinear only, `d_state` at most 32).
    pub a: StateMatrix,
}

impl Default for VimConfig {
    /// Vim-Ti at 224 px and 1000 classes, zoh.
    fn default() -> Self {
        Self {
            preset: Preset::Tiny,
            discretization: Discretization::Zoh,
            image_size: 224.into(),
            patch_size: 16,
            stride: None,
            patch_init: PatchInit::default(),
            depth: 24,
            d_model: 192,
            d_state: 16,
            d_conv: 4,
            expand: 2,
            dt_rank: DtRank::Auto,
            bimamba: Bimamba::V2,
            divide_out: None,
            layer_scale: LayerScale::None,
            norm: NormKind::Rms,
            norm_eps: 1e-5,
            class_token: ClassToken::Middle,
            pool: None,
            abs_pos_embed: true,
            rope: Rope::None,
            rope_grid: None,
            flip_ratio: 0.0,
            layer_pairs: false,
            dropout: 0.0,
            drop_path: 0.1,
            num_classes: 1000,
            ssm: SsmConfig::default(),
        }
    }
}

impl VimConfig {
    /// This model with every key set that has an effect beside the others, and no other: what a run
    /// records.
    #[must_use]
    pub fn effective(&self) -> Self {
        Self {
            stride: Some(self.stride()),
            divide_out: (self.bimamba == Bimamba::V2).then(|| self.divide_out()),
            pool: (self.class_token == ClassToken::None).then(|| self.pool()),
            rope_grid: (self.rope != Rope::None).then(|| self.rope_grid()),
            ..self.clone()
        }
    }

    /// Distance between the corners of neighbouring patches, in pixels.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride.unwrap_or(self.patch_size)
    }

    /// Whether the sum of both ways is halved: in a [`Bimamba::V2`] only.
    #[must_use]
    pub fn divide_out(&self) -> bool {
        self.mixer().divide_out()
    }

    /// What the head reads where there is no class token.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.pool.unwrap_or_default()
    }

    /// Patches along a side that rotary positions are scaled to.
    #[must_use]
    pub fn rope_grid(&self) -> usize {
        self.rope_grid.unwrap_or(14)
    }

    /// The methods of the forward and of the backward way.
    #[must_use]
    pub fn methods(&self) -> [Discretization; 2] {
        self.mixer().methods()
    }

    /// The methods in words: `zoh`, or `zoh forward and foh backward`.
    #[must_use]
    pub fn method_label(&self) -> String {
        match (self.methods(), self.bimamba) {
            ([first, last], Bimamba::V1 | Bimamba::V2) if first != last => {
                format!("{first} forward and {last} backward")
            }
            ([first, _], _) => first.to_string(),
        }
    }

    /// Channels inside the mixer.
    #[must_use]
    pub fn d_inner(&self) -> usize {
        self.mixer().d_inner()
    }

    /// Rank of the delta projection.
    #[must_use]
    pub fn dt_rank(&self) -> usize {
        self.mixer().dt_rank()
    }

    /// Rows and columns of patches.
    #[must_use]
    pub fn grid(&self) -> [usize; 2] {
        [self.image_size.height, self.image_size.width]
            .map(|side| (side - self.patch_size) / self.stride() + 1)
    }

    /// Rows at the lower edge and columns at the right edge that no patch covers.
    #[must_use]
    pub fn unseen_margin(&self) -> [usize; 2] {
        [self.image_size.height, self.image_size.width]
            .map(|side| (side - self.patch_size) % self.stride())
    }

    /// Patches.
    #[must_use]
    pub fn num_patches(&self) -> usize {
        let [rows, columns] = self.grid();
        rows * columns
    }

    /// Class tokens: none, one or two.
    #[must_use]
    pub fn num_class_tokens(&self) -> usize {
        self.class_token.positions(self.num_patches()).len()
    }

    /// Tokens: patches and class tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_patches() + self.num_class_tokens()
    }

    /// Where the class tokens stand in evaluation, in the order of the tokens.
    #[must_use]
    pub fn class_token_positions(&self) -> Vec<usize> {
        self.class_token.positions(self.num_patches())
    }

    /// The mixer of every block.
    #[must_use]
    pub fn mixer(&self) -> MixerConfig {
        MixerConfig {
            d_model: self.d_model,
            expand: self.expand,
            d_state: self.d_state,
            d_conv: self.d_conv,
            dt_rank: self.dt_rank,
            bimamba: self.bimamba,
            divide_out: self.divide_out,
            layer_scale: self.layer_scale,
            depth: self.depth,
            discretization: self.discretization,
            ssm: self.ssm,
        }
    }
}

/// What a [`Mixer`](crate::Mixer) is built from.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use vim_kernels::Discretization;
/// use vim_model::MixerConfig;
///
/// let device = Device::flex();
/// let discretization = Discretization::Foh;
/// let config = MixerConfig { d_state: 8, discretization, ..MixerConfig::new(64) };
/// let mixer = config.init(&device, 0)?;
/// assert_eq!(mixer.forward(Tensor::zeros([1, 7, 64], &device))?.dims(), [1, 7, 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MixerConfig {
    /// Channels outside the mixer, `M`.
    pub d_model: usize,
    /// `D / M`.
    pub expand: usize,
    /// States per channel, `N`.
    pub d_state: usize,
    /// Taps of the convolution, `W`: 2 to 4.
    pub d_conv: usize,
    /// Rank of the step's projection, `R`.
    pub dt_rank: DtRank,
    /// How the mixer goes over the tokens.
    pub bimamba: Bimamba,
    /// Whether the sum of the two directions of a [`Bimamba::V2`] is halved; `None`: it is.
    pub divide_out: Option<bool>,
    /// Gain of every channel at the end.
    pub layer_scale: LayerScale,
    /// Mixers on the residual stream: `out_proj` starts smaller by its root.
    pub depth: usize,
    /// The method of both directions, unless `ssm` names others.
    pub discretization: Discretization,
    /// Numerics of the scan.
    pub ssm: SsmConfig,
}

impl MixerConfig {
    /// The mixer of Vim-Ti with `d_model` channels, alone on its residual stream.
    #[must_use]
    pub fn new(d_model: usize) -> Self {
        VimConfig { d_model, depth: 1, ..VimConfig::default() }.mixer()
    }

    /// How a direction scans: the one from the last token to the first if `reverse` is set.
    #[must_use]
    pub fn scan_options(&self, reverse: bool) -> ScanOptions {
        let [forward, backward] = self.methods();
        ScanOptions {
            method: if reverse { backward } else { forward },
            series: self.ssm.series,
            delta_softplus: true,
            reverse,
            choice: self.ssm.scan,
        }
    }

    /// Channels inside the mixer, `D`.
    #[must_use]
    pub fn d_inner(&self) -> usize {
        self.expand * self.d_model
    }

    /// Rank of the step's projection, `R`.
    #[must_use]
    pub fn dt_rank(&self) -> usize {
        match self.dt_rank {
            DtRank::Auto => self.d_model.div_ceil(16),
            DtRank::Rank(rank) => rank,
        }
    }

    /// Whether the sum of both ways is halved: in a [`Bimamba::V2`] only.
    #[must_use]
    pub fn divide_out(&self) -> bool {
        self.bimamba == Bimamba::V2 && self.divide_out.unwrap_or(true)
    }

    /// The methods of the forward and of the backward way.
    #[must_use]
    pub fn methods(&self) -> [Discretization; 2] {
        [self.ssm.method_fwd, self.ssm.method_bwd]
            .map(|method| method.unwrap_or(self.discretization))
    }
}

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
