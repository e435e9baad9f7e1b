//! Normalization of a token's channels.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use vim_kernels::{KernelChoice, KernelError, add_rms_norm};

use crate::config::{ModelError, NormKind, Preset, VimConfig};
use crate::init::{Rule, Scope};

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
    /// Builds the norm: gain 1, bias 0.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] if there are no channels, or if ε is not positive.
    pub fn init(&self, device: &Device) -> Result<Norm, ModelError> {
        let &Self { d_model, epsilon: norm_eps, .. } = self;
        VimConfig { d_model, norm_eps, ..VimConfig::preset(Preset::Tiny) }.check()?;
        Ok(self.init_in(&Scope::root(device, 0)))
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
