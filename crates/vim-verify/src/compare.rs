//! The types of activations, inputs that are the same everywhere, and how far an array is from
//! another.

use burn::tensor::{DType, Device, FloatDType, Gradients, Tensor, TensorData};
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

    /// The nearest numbers of this type.
    #[must_use]
    pub fn rounded(self, values: Vec<f64>) -> Vec<f64> {
        values.into_iter().map(|value| self.round(value)).collect()
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

/// Reproducible uniform numbers (SplitMix64: Steele, Lea and Flood 2014).
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `n` numbers in [low, high), rounded to `dtype`, so that all start from the same.
    pub fn vec(&mut self, n: usize, low: f64, high: f64, dtype: Dtype) -> Vec<f64> {
        (0..n).map(|_| dtype.round(low + (high - low) * self.next())).collect()
    }
}

/// `values`, which `dtype` holds exactly, on `device`.
#[must_use]
pub fn tensor<const R: usize>(
    values: &[f64],
    shape: [usize; R],
    dtype: Dtype,
    device: &Device,
) -> Tensor<R> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    let tensor = Tensor::from_data(TensorData::new(values, shape), device);
    match dtype {
        Dtype::F32 => tensor,
        Dtype::Bf16 => tensor.cast(dtype.float()),
    }
}

/// The numbers of a tensor.
#[must_use]
pub fn values<const R: usize>(tensor: Tensor<R>) -> Vec<f64> {
    tensor.into_data().convert::<f32>().iter::<f64>().collect()
}

/// The same, of a tensor that must have this type: nothing, an array of the wrong length, if it has
/// another.
pub(crate) fn values_of<const R: usize>(tensor: Tensor<R>, dtype: Dtype) -> Vec<f64> {
    if tensor.dtype() == DType::from(dtype.float()) { values(tensor) } else { vec![] }
}

/// The gradient of an input. One without a gradient is an array of the wrong length, which fails.
pub(crate) fn gradient<const R: usize>(of: &Tensor<R>, grads: &Gradients) -> Vec<f64> {
    of.grad(grads).map_or(vec![], values)
}

/// The error of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// |got − want| over the largest |want|, or over `floor` where that is larger. The error of a NaN,
/// of an array of another length, and of one without numbers, is infinite.
#[must_use]
pub fn figures(got: &[f64], want: &[f64], floor: f64) -> Figures {
    if got.len() != want.len() || want.is_empty() {
        return Figures { max: f64::INFINITY, mean: f64::INFINITY };
    }
    let scale = want.iter().fold(floor, |m: f64, w| m.max(w.abs()));
    let (mut max, mut sum) = (0.0_f64, 0.0);
    for (g, w) in got.iter().zip(want) {
        let off = (g - w).abs();
        let off = if off.is_nan() { f64::INFINITY } else { off };
        max = max.max(off);
        sum += off;
    }
    Figures { max: max / scale, mean: sum / want.len() as f64 / scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_reference() {
        let off = figures(&[1.0, -3.0, 0.5], &[1.0, -4.0, 0.0], 1e-30);
        assert_eq!(off, Figures { max: 0.25, mean: 0.125 });
        assert_eq!(figures(&[0.0; 2], &[0.0; 2], 1e-30), Figures { max: 0.0, mean: 0.0 });
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_far() {
        assert_eq!(figures(&[f64::NAN, 1.0], &[1.0, 1.0], 1e-30).max, f64::INFINITY);
        assert!(!figures(&[1.0], &[f64::INFINITY], 1e-30).max.is_finite());
        assert_eq!(figures(&[1.0], &[1.0, 1.0], 1e-30).max, f64::INFINITY);
    }

    #[test]
    fn rounding_to_bf16_is_to_the_nearest_even() {
        for (value, rounded) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.1 / 256.0, 1.0 + 2.0 / 256.0),
            (-0.1, -0.100_097_656_25),
        ] {
            assert_eq!(Dtype::Bf16.round(value), rounded, "{value}");
        }
    }
}
