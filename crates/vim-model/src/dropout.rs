//! Dropout of single numbers of the tokens, drawn on the host from a key.

use burn::tensor::{Device, Tensor, TensorData};
use rand_chacha::rand_core::Rng;

use crate::rng::{Draw, keyed};

/// The factor of every number of a batch of tokens, `[B, L, M]`: 0, or 1/(1 − rate).
///
/// A pure function of the seed and the image's position in the batch.
///
/// # Source
///
/// Srivastava et al. 2014; `pos_drop` of the original.
pub(crate) fn factors(draw: Draw, rate: f64, shape: [usize; 3], device: &Device) -> Tensor<3> {
    let ([batch, len, d_model], Draw { seed, first }) = (shape, draw);
    let values: Vec<f32> = (first..first + batch)
        .flat_map(|image| of_image(seed, image, rate, len * d_model))
        .collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn of_image(seed: u64, image: usize, rate: f64, count: usize) -> Vec<f32> {
    let mut rng = keyed(b"vim-model: elems", seed, image as u64);
    let (keep, below) = (1.0 - rate, (rate * 2_f64.powi(32)) as u32);
    let kept = (1.0 / keep) as f32;
    (0..count).map(|_| if rng.next_u32() < below { 0.0 } else { kept }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_keep_the_mean_and_have_their_key() {
        let (rate, count) = (0.2, 50_000);
        let factors = of_image(3, 1, rate, count);
        let dropped = factors.iter().filter(|&&factor| factor == 0.0).count();
        // Five standard deviations of the binomial are 447.
        assert!(dropped.abs_diff(10_000) < 447, "{dropped}");
        assert!(factors.iter().all(|&factor| factor == 0.0 || factor == 1.25));
        assert_ne!(factors, of_image(3, 2, rate, count));
        assert_ne!(factors, of_image(4, 1, rate, count));
    }
}
