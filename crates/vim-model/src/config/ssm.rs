//! The `[ssm]` section of a configuration: numerics of the state-space layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_kernels::{Discretization, KernelChoice, Series};

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
    /// Which implementation of the scan runs. `VIM_USE_CUDA_KERNEL=1|0` overrides the file, `--set`
    /// overrides both.
    pub scan: KernelChoice,
    /// Where the reverse branch's `dt_proj` bias starts.
    pub dt_b_init: DtBInit,
    /// What the backward pass of `bimamba = "v1"` sends to the gate: the exact gradient, or the
    /// forward way's part alone as the original does. Left out: exact, but in
    /// `vim-train eval-golden` as the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1_gate_gradient: Option<GateGradient>,
    /// A of a channel: diagonal, or full (a learned coupling of its states that starts at none;
    /// bilinear only, `d_state` at most 32).
    pub a: StateMatrix,
}
