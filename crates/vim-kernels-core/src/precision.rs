//! Precision of matrix products and activations.

use burn::tensor::DType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// Precision of matrix products and of activations.
///
/// Weights, gradients of weights, the residual stream, norms, states and sums are f32 in all of
/// them. The chunk states that `mixer_inner` saves for the backward pass,
/// one token in eight, have the type of the activations.
#[derive(Display, Serialize, Deserialize, JsonSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 throughout, matrix products included: NVIDIA tensor cores multiply a factor as the sum
    /// of two numbers, with a relative error of at most 2⁻²³.
    #[default]
    F32,
    /// f32, but the operands of a matrix product are rounded to 11 bits on NVIDIA tensor cores. On
    /// other devices the same as `f32`.
    Tf32,
    /// Activations and operands of matrix products in bf16, 8 bits of significand. NVIDIA GPUs
    /// only.
    Bf16,
}

impl Precision {
    /// The type of activations.
    #[must_use]
    pub fn activations(self) -> DType {
        match self {
            Self::F32 | Self::Tf32 => DType::F32,
            Self::Bf16 => DType::BF16,
        }
    }
}
