//! The types of activations.

use burn::tensor::FloatDType;
use strum::{Display, VariantArray};

/// A type of activations.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, VariantArray, serde::Serialize)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 24 bits of significand.
    F32,
    /// 8 bits of significand.
    Bf16,
}

impl Dtype {
    /// The nearest number of this type, of two the even one.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        let value = value as f32;
        f64::from(match self {
            Self::F32 => value,
            Self::Bf16 => {
                let bits = value.to_bits();
                let half = 0x7FFF + ((bits >> 16) & 1);
                f32::from_bits(bits.wrapping_add(half) & 0xFFFF_0000)
            }
        })
    }

    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Its name in Burn.
    #[must_use]
    pub fn float(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::Bf16 => FloatDType::BF16,
        }
    }
}
