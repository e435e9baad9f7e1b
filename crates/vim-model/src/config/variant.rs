//! Values that are one of a few words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

/// How a mixer goes over the tokens. The original's `bimamba_type`.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Bimamba {
    /// From the first token to the last only: a Mamba.
    None,
    /// Both ways over one convolution and one set of projections; only A is each way's own. Summed.
    V1,
    /// Both ways, each with its own convolution, projections, A and D. Summed, and halved by
    /// `divide_out`.
    #[default]
    V2,
}

/// What normalizes.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NormKind {
    /// Root mean square, with a weight (Zhang and Sennrich 2019).
    #[default]
    Rms,
    /// Mean and variance, with a weight and a bias (Ba et al. 2016).
    Layer,
}

/// Where the token that the head reads stands among the patches.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ClassToken {
    /// After the first half of the patches, rounded down.
    #[default]
    Middle,
    /// Before the patches.
    Head,
    /// Anywhere in training, one draw for a batch; before the patches in evaluation, as in the
    /// original.
    Random,
    /// One before and one after the patches; the head reads the mean of the two.
    Double,
    /// There is none: the head reads what `pool` says.
    None,
}

impl ClassToken {
    /// Where class tokens stand among `patches` patches in evaluation, in the order of the tokens.
    pub(crate) fn positions(self, patches: usize) -> Vec<usize> {
        match self {
            Self::Middle => vec![patches / 2],
            Self::Head | Self::Random => vec![0],
            Self::Double => vec![0, patches + 1],
            Self::None => Vec::new(),
        }
    }
}

/// What the head reads where there is no class token. The original's `final_pool_type`.
///
/// Its fourth, `all`, has logits for every token and so classifies nothing:
/// [`Vim::token_logits`](crate::Vim::token_logits) computes them.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Pool {
    /// The mean of all tokens.
    #[default]
    Mean,
    /// Every token, and the largest logit of each class counts.
    Max,
    /// The last token: `none` in the original.
    Last,
}

/// What is turned by rotary positions before every block.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Rope {
    /// Nothing.
    #[default]
    None,
    /// What the block before put out: `if_rope` in the original.
    Hidden,
    /// That and the residual stream: `if_rope` and `if_rope_residual`.
    Both,
}

/// Where the reverse branch's `dt_proj` bias starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DtBInit {
    /// As the forward branch: delta starts log-uniform in 0.001 … 0.1.
    #[default]
    InverseSoftplus,
    /// Zero, as the original leaves it: delta starts near softplus(0) = 0.69.
    UpstreamZero,
}

/// Where the weights of the patch embedding start: normal around 0, of `v` = 1/(3·P²).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatchInit {
    /// As in the original: deviation √v / 0.8796, which would be √v if numbers were cut at two
    /// deviations, but none is.
    #[default]
    Timm,
    /// The same, and cut at two deviations: deviation √v, as configurations of version 1 have it.
    Truncated,
}

/// What a channel's matrix A may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateMatrix {
    /// Diagonal and negative: every state decays on its own.
    #[default]
    Diagonal,
    /// Diagonal plus a skew-symmetric matrix that rotates the states into each other; always
    /// stable. Bilinear only, at most 32 states.
    Full,
}

/// What the backward pass of `bimamba = "v1"` sends to the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateGradient {
    /// The gradient of what the forward pass computes.
    #[default]
    Exact,
    /// The gradient through the forward scan alone: the original computes the part of the backward
    /// scan and drops it.
    Upstream,
}
