//! Stochastic depth: during training, a block's output is dropped for some of the images.
//!
//! Place 0 is the input of the first block, place `i` the input of block `i`, that is the output of
//! block `i − 1`, and place `depth` the input of the final norm.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use crate::rng::{Draw, keyed, unit};

/// The probability of dropping at every place, `depth + 1` of them.
///
/// With `dpr = linspace(0, rate, depth)`: 0 at place 0, which has no block before it; `dpr[i − 1]`
/// at place `i`; and `rate` at the end.
///
/// # Source
///
/// Huang et al. 2016, as the original applies it (`inter_dpr`).
pub(crate) fn rates(depth: usize, rate: f64) -> Vec<f64> {
    let steps = (depth - 1).max(1) as f64;
    let mut rates = vec![0.0];
    rates.extend((0..depth - 1).map(|block| rate * block as f64 / steps));
    rates.push(rate);
    rates
}

/// The factor of every image at a place of the model: 0, or 1/(1 − rate), which keeps the mean.
/// `images` are positions in the batch.
///
/// Drawn on the host: a seed drops the same images on every device, and a resumed run needs no
/// state but the seed.
fn factors(seed: u64, place: usize, rate: f64, images: Range<usize>) -> Vec<f32> {
    let mut rng = keyed(b"vim-model: drops", seed, place as u64);
    let keep = 1.0 - rate;
    let all =
        (0..images.end).map(|_| if unit(&mut rng) < keep { (1.0 / keep) as f32 } else { 0.0 });
    all.skip(images.start).collect()
}

/// The blocks' outputs that one pass drops.
#[derive(Debug)]
pub(crate) struct DropPathMask {
    rates: Vec<f64>,
    /// `[depth + 1, B]`.
    factors: Tensor<2>,
}

impl DropPathMask {
    /// Draws for `batch` images, those from `draw.first` on.
    pub(crate) fn draw(rates: Vec<f64>, draw: Draw, batch: usize, device: &Device) -> Self {
        let Draw { seed, first } = draw;
        let factors: Vec<f32> = rates
            .iter()
            .enumerate()
            .flat_map(|(place, &rate)| factors(seed, place, rate, first..first + batch))
            .collect();
        // One upload for all places.
        let data = TensorData::new(factors, [rates.len(), batch]);
        Self { rates, factors: Tensor::from_data(data, device) }
    }

    /// `hidden`, `[B, L, M]`, with dropped images set to 0 and the others scaled up.
    pub(crate) fn apply(&self, place: usize, hidden: Tensor<3>) -> Tensor<3> {
        if self.rates[place] == 0.0 {
            return hidden;
        }
        let [batch, _, _] = hidden.dims();
        let factors = self.factors.clone().narrow(0, place, 1).reshape([batch, 1, 1]);
        let factors = factors.cast(hidden.dtype());
        hidden * factors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_lag_one_block_behind_the_schedule() {
        let close = |depth, rate, expected: &[f64]| {
            let rates = rates(depth, rate);
            assert_eq!(rates.len(), expected.len(), "{rates:?}");
            assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{rates:?}");
        };
        close(1, 0.5, &[0.0, 0.5]);
        close(2, 0.5, &[0.0, 0.0, 0.5]);
        close(5, 0.4, &[0.0, 0.0, 0.1, 0.2, 0.3, 0.4]);
    }

    #[test]
    fn factors_keep_the_mean() {
        let (rate, batch) = (0.3, 20_000);
        let factors = factors(7, 3, rate, 0..batch);
        let kept = factors.iter().filter(|&&factor| factor > 0.0).count();
        // Five standard deviations of the binomial.
        assert!(kept.abs_diff(14_000) < 325, "{kept}");
        assert!(factors.iter().all(|&factor| factor == 0.0 || factor == (1.0 / 0.7_f64) as f32));
    }

    #[test]
    fn factors_are_keyed_by_seed_and_place_and_the_same_in_parts() {
        let some = factors(1, 2, 0.5, 0..64);
        assert_eq!(some, factors(1, 2, 0.5, 0..64));
        assert_ne!(some, factors(1, 3, 0.5, 0..64));
        assert_ne!(some, factors(2, 2, 0.5, 0..64));
        assert_eq!(some[..16], factors(1, 2, 0.5, 0..16));
        assert_eq!(some[16..48], factors(1, 2, 0.5, 16..48));
    }
}
