//! The `[model]` and `[ssm]` sections of a configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelChoice, Series};

use super::preset::ModelName;
use super::values::{DtRank, ImageSize, LayerScale};
use super::variant::{Bimamba, ClassToken, NormKind, Pool, Rope};

/// The `[model]` section. A key that is left out takes the preset's value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// The named size that fills every key left out below; the original's registered names are taken too (`vim-train models`).
    pub preset: ModelName,
    /// How the state-space layer is discretized. Left out: zoh, or what a registered name says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discretization: Option<Discretization>,
    /// Size of the input images, in pixels: a square's side, or `[height, width]`. Left out: 224.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<ImageSize>,
    /// Side of a patch, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_size: Option<usize>,
    /// Distance between the corners of neighbouring patches, in pixels. Left out beside a `patch_size`: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Number of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Channels between blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_model: Option<usize>,
    /// States per channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_state: Option<usize>,
    /// Taps of the depthwise convolution, 2 to 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_conv: Option<usize>,
    /// `d_inner / d_model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand: Option<usize>,
    /// Rank of the projection that delta is computed through: `"auto"`, ⌈`d_model` / 16⌉, or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dt_rank: Option<DtRank>,
    /// How a mixer goes over the tokens: both ways with parameters of their own (`"v2"`), both ways with shared ones (`"v1"`), or forward only (`"none"`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bimamba: Option<Bimamba>,
    /// Whether the two ways of `"v2"` are halved after they are summed. Left out: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divide_out: Option<bool>,
    /// Gain of every channel at the end of a mixer: `"none"`, or the number that it starts at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_scale: Option<LayerScale>,
    /// What normalizes: root mean square, or mean and variance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormKind>,
    /// What is added to the mean square, or to the variance, under the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_eps: Option<f64>,
    /// Where the token that the head reads stands among the patches; `"random"` is anywhere in training and before them in evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_token: Option<ClassToken>,
    /// What the head reads where there is no class token. Left out: `"mean"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// Whether learned positions are added to the tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abs_pos_embed: Option<bool>,
    /// What rotary positions turn before every block: nothing, the hidden tokens, or both these and the residual stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope: Option<Rope>,
    /// Patches along a side that rotary positions are scaled to, whatever the image. Left out: 14.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_grid: Option<usize>,
    /// Probability that a batch's tokens are reversed; in evaluation they are at 1 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flip_ratio: Option<f64>,
    /// Whether blocks come in pairs that both see the same tokens, the second of them reversed, and are summed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_pairs: Option<bool>,
    /// Probability that a number of a token is dropped in training, after positions are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropout: Option<f64>,
    /// Largest probability that a block's output is dropped (stochastic depth); it grows linearly from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_path: Option<f64>,
}

/// Where the reverse branch's `dt_proj` bias starts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum DtBInit {
    /// As the forward branch: delta starts log-uniform in 0.001 … 0.1.
    #[default]
    InverseSoftplus,
    /// Zero, as the original leaves it: delta starts near softplus(0) = 0.69.
    UpstreamZero,
}

/// What a channel's matrix A may be.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum StateMatrix {
    /// Diagonal and negative: every state decays on its own.
    #[default]
    Diagonal,
    /// That, and a skew-symmetric matrix beside it which turns the states into each other; always
    /// stable. Bilinear only, at most 32 states.
    Full,
}

/// What the backward pass of `bimamba = "v1"` sends to the gate.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum GateGradient {
    /// The gradient of what the forward pass computes.
    #[default]
    Exact,
    /// That of the forward way alone, as the original does: it computes the backward way's part and loses it.
    Upstream,
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
    /// Which implementation of the scan runs. `VIM_USE_CUDA_KERNEL=1|0` overrides the file, `--set` overrides both.
    pub scan: KernelChoice,
    /// Where the reverse branch's `dt_proj` bias starts.
    pub dt_b_init: DtBInit,
    /// What the backward pass of `bimamba = "v1"` sends to the gate: the exact gradient, or the forward way's part alone as the original does. Left out: exact, but in `vim-train eval-golden` as the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1_gate_gradient: Option<GateGradient>,
    /// A of a channel: diagonal, or full (a learned coupling of its states that starts at none; bilinear only, `d_state` at most 32).
    pub a: StateMatrix,
}
