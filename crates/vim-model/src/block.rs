//! One layer: add, drop, norm, mixer.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use vim_kernels::{ImageFactors, KernelChoice, KernelError, add_scaled_rms_norm, drawn};

use crate::config::{
    MOST_CHANNELS, MixerConfig, ModelError, NormKind, VimConfig, check_sizes, conflict, range,
};
use crate::init::{Rule, Scope};
use crate::mixer::Mixer;
use crate::rng::{Draw, keyed, unit};

/// What a [`Block`] is built from.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use vim_model::{Bimamba, BlockConfig, MixerConfig};
///
/// let device = Device::flex();
/// let mixer = MixerConfig { bimamba: Bimamba::V1, depth: 12, ..MixerConfig::new(64) };
/// let block = BlockConfig { mixer, ..BlockConfig::new(64) }.init(&device, 0)?;
/// let (mixed, residual) = block.forward(Tensor::zeros([1, 7, 64], &device), None)?;
/// assert_eq!((mixed.dims(), residual.dims()), ([1, 7, 64], [1, 7, 64]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BlockConfig {
    /// Before the mixer.
    pub norm: NormConfig,
    /// The only sub-layer; it has as many channels as the norm.
    pub mixer: MixerConfig,
}

impl BlockConfig {
    /// The block of Vim-Ti with `d_model` channels, alone on its residual stream.
    #[must_use]
    pub fn new(d_model: usize) -> Self {
        Self { norm: NormConfig::new(d_model), mixer: MixerConfig::new(d_model) }
    }

    /// Builds the block. Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] as [`NormConfig::init`] and [`MixerConfig::init`], and
    /// [`ModelError::Conflict`] if the norm has other channels than the mixer.
    pub fn init(&self, device: &Device, seed: u64) -> Result<Block, ModelError> {
        self.check()?;
        self.mixer.ssm.scan.resolve(device)?;
        Ok(self.init_in(&Scope::root(device, seed)))
    }

    pub(crate) fn check(&self) -> Result<(), ModelError> {
        self.norm.check()?;
        self.mixer.check()?;
        let (norm, mixer) = (self.norm.d_model, self.mixer.d_model);
        if norm != mixer {
            let reason = "both are for the channels of the residual stream";
            return conflict("norm.d_model", &norm, format!("mixer.d_model = {mixer}"), reason);
        }
        Ok(())
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> Block {
        Block {
            norm: self.norm.init_in(&scope.child("norm")),
            mixer: self.mixer.init_in(&scope.child("mixer")),
        }
    }
}

impl VimConfig {
    /// Every norm of the model.
    #[must_use]
    pub fn norm(&self) -> NormConfig {
        NormConfig { d_model: self.d_model, kind: self.norm, epsilon: self.norm_eps }
    }
}

/// Adds what comes in to the residual stream, and mixes the normalized sum.
#[derive(Module, Debug)]
pub struct Block {
    /// Before the mixer.
    pub norm: Norm,
    /// The only sub-layer: there is no MLP.
    pub mixer: Mixer,
}

impl Block {
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
        self.forward_dropped(hidden, None, residual)
    }

    /// [`Self::forward`] of images that drop path multiplies by `factors`.
    pub(crate) fn forward_dropped(
        &self,
        hidden: Tensor<3>,
        factors: Option<ImageFactors>,
        residual: Option<Tensor<3>>,
    ) -> Result<(Tensor<3>, Tensor<3>), KernelError> {
        let choice = self.mixer.forward.scan_options.choice;
        let (normed, residual) = self.norm.forward(hidden, factors, residual, choice)?;
        Ok((self.mixer.forward(normed)?, residual))
    }
}

/// What a [`Norm`] is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct NormConfig {
    /// Channels, `M`.
    pub d_model: usize,
    /// What normalizes.
    pub kind: NormKind,
    /// ε, added to the mean square or to the variance.
    pub epsilon: f64,
}

impl NormConfig {
    /// The norm of Vim-Ti with `d_model` channels: root mean square, ε = 1e-5.
    #[must_use]
    pub fn new(d_model: usize) -> Self {
        VimConfig { d_model, ..VimConfig::default() }.norm()
    }

    /// Builds the norm: gain 1, bias 0.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] if the number of channels is out of range, or if ε is not positive.
    pub fn init(&self, device: &Device) -> Result<Norm, ModelError> {
        self.check()?;
        Ok(self.init_in(&Scope::root(device, 0)))
    }

    pub(crate) fn check(&self) -> Result<(), ModelError> {
        check_sizes([("d_model", self.d_model, MOST_CHANNELS)])?;
        if !(self.epsilon.is_finite() && self.epsilon > 0.0) {
            return range("norm_eps", &self.epsilon, "more than 0");
        }
        Ok(())
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> Norm {
        let param = |name, value| scope.param(name, [self.d_model], Rule::Constant(value));
        Norm {
            weight: param("weight", 1.0),
            bias: (self.kind == NormKind::Layer).then(|| param("bias", 0.0)),
            epsilon: self.epsilon,
        }
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

impl Norm {
    /// Adds `x`, its images times their `factors`, to the residual stream and normalizes every
    /// token of the sum: `(normed, sum)`.
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
        factors: Option<ImageFactors>,
        residual: Option<Tensor<3>>,
        choice: KernelChoice,
    ) -> Result<(Tensor<3>, Tensor<3>), KernelError> {
        let weight = self.weight.val();
        let Some(bias) = &self.bias else {
            return add_scaled_rms_norm(x, factors, residual, weight, self.epsilon, choice);
        };
        let x = ImageFactors::apply(factors, x);
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
        let (shape, of) = ([rates.len(), batch], rates.clone());
        // One upload for all places.
        let factors = drawn(seed, shape, device, move |seed| {
            let each = of.iter().enumerate();
            each.flat_map(|(place, &rate)| factors(seed, place, rate, first..first + batch))
                .collect()
        });
        Self { rates, factors }
    }

    /// What the images at a place are multiplied by: 0 where they are dropped, and what keeps the
    /// mean for the others; nothing where none may be dropped.
    pub(crate) fn at(&self, place: usize) -> Option<ImageFactors> {
        let factors = || ImageFactors { factors: self.factors.clone(), row: place };
        (self.rates[place] != 0.0).then(factors)
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
