//! In what numbers matrices are multiplied.

use burn::tensor::DType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// In what numbers matrices are multiplied, and what goes from operation to operation.
///
/// Weights, their gradients, the residual stream, norms, every state and every sum are f32 in all of them; but of the states those
/// that [`mixer_inner`](crate::mixer_inner()) keeps for the way back, one in eight tokens, which are activations.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Display,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Precision {
    /// f32 throughout, 24 bits of significand, also in products of matrices.
    #[default]
    F32,
    /// f32, but matrices are rounded to 11 bits as they are multiplied, on NVIDIA GPUs' tensor cores. Elsewhere as `f32`.
    Tf32,
    /// Activations and the matrices of a product in bf16, 8 bits of significand. On NVIDIA GPUs.
    Bf16,
}

impl Precision {
    /// The type of what goes from operation to operation.
    #[must_use]
    pub fn activations(self) -> DType {
        match self {
            Self::F32 | Self::Tf32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}
