//! One layer: add, drop, norm, mixer.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use vim_kernels::{KernelChoice, KernelError, add_rms_norm};

use crate::config::{ModelError, NormKind, VimConfig};
use crate::init::{Rule, Scope};
use crate::mixer::Mixer;
use crate::rng::{Draw, keyed, unit};

/// Adds what comes in to the residual stream, and mixes the normalized sum.
#[derive(Module, Debug)]
pub struct Block {
    /// Before the mixer.
    pub norm: Norm,
    /// The only sub-layer: there is no MLP.
    pub mixer: Mixer,
}

impl VimConfig {
    /// Builds a block of the model. Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// As [`VimConfig::init`].
    pub fn init_block(&self, device: &Device, seed: u64) -> Result<Block, ModelError> {
        Ok(Block::new(self, &self.scope(device, seed)?))
    }
}

impl Block {
    pub(crate) fn new(config: &VimConfig, scope: &Scope<'_>) -> Self {
        Self {
            norm: Norm::new(config, &scope.child("norm")),
            mixer: Mixer::new(config, &scope.child("mixer")),
        }
    }

    /// Takes the previous block's output and the residual stream to this block's.
    ///
    /// The sum is taken at the start of the next block, so that one kernel takes it and the norm;
    /// the first block has no residual yet.
    ///
    /// # Shapes
    ///
    /// - `hidden`, `residual`, and both results: `[B, L, M]`
    ///
    /// # Errors
    ///
    /// [`KernelError`] as [`Mixer::forward`] and [`Norm::forward`].
    pub fn forward(
        &self,
        hidden: Tensor<3>,
        residual: Option<Tensor<3>>,
    ) -> Result<(Tensor<3>, Tensor<3>), KernelError> {
        let choice = self.mixer.forward.scan_options.choice;
        let (normed, residual) = self.norm.forward(hidden, residual, choice)?;
        Ok((self.mixer.forward(normed)?, residual))
    }
}

/// Normalizes every token of the residual stream.
///
/// Without a bias by the root mean square, `y = x / sqrt(mean(x²) + ε) · weight`; with one by mean
/// and variance, `y = (x − mean(x)) / sqrt(var(x) + ε) · weight + bias`, the variance that of `M`
/// numbers.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[M]`, starts at 1.
    pub weight: Param<Tensor<1>>,
    /// `[M]`, starts at 0; present where mean and variance normalize.
    pub bias: Option<Param<Tensor<1>>>,
    /// ε.
    #[module(skip)]
    pub epsilon: f64,
}

impl VimConfig {
    /// Builds a norm of the model: gain 1, bias 0.
    ///
    /// # Errors
    ///
    /// As [`VimConfig::init`].
    pub fn init_norm(&self, device: &Device) -> Result<Norm, ModelError> {
        Ok(Norm::new(self, &self.scope(device, 0)?))
    }
}

impl Norm {
    pub(crate) fn new(config: &VimConfig, scope: &Scope<'_>) -> Self {
        let param = |name, value| scope.param(name, [config.d_model], Rule::Constant(value));
        Self {
            weight: param("weight", 1.0),
            bias: (config.norm == NormKind::Layer).then(|| param("bias", 0.0)),
            epsilon: config.norm_eps,
        }
    }

    /// Adds `x` to the residual stream and normalizes every token of the sum: `(normed, sum)`.
    ///
    /// # Shapes
    ///
    /// - `x`, `residual`, and both results: `[B, L, M]`
    ///
    /// # Errors
    ///
    /// [`KernelError`] if the shapes disagree, or if `choice` forces a kernel that the device does
    /// not have.
    ///
    /// # Source
    ///
    /// Zhang and Sennrich 2019, eq. 4; Ba et al. 2016, eq. 4. The original's `fused_add_norm`.
    pub fn forward(
        &self,
        x: Tensor<3>,
        residual: Option<Tensor<3>>,
        choice: KernelChoice,
    ) -> Result<(Tensor<3>, Tensor<3>), KernelError> {
        let weight = self.weight.val();
        let Some(bias) = &self.bias else {
            return add_rms_norm(x, residual, weight, self.epsilon, choice);
        };
        let sum = match residual {
            Some(residual) => x + residual,
            None => x,
        };
        let centered = sum.clone() - sum.clone().mean_dim(2);
        let variance = (centered.clone() * centered.clone()).mean_dim(2);
        let normed = centered * (variance + self.epsilon).sqrt().recip();
        Ok((normed * weight.unsqueeze() + bias.val().unsqueeze(), sum))
    }
}

/// The probability of dropping a block's output at every place where that may be.
///
/// Place 0 is the input of the first block, place `i` the input of block `i`, that is the output of
/// block `i − 1`, and place `depth` the input of the final norm.
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
