//! Normalization of a token's channels.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use vim_kernels::{KernelChoice, add_rms_norm};

/// Normalizes every token of the residual stream.
///
/// Without a bias by the root mean square, `y = x / sqrt(mean(x²) + ε) · weight`; with one by mean and
/// variance, `y = (x − mean(x)) / sqrt(var(x) + ε) · weight + bias`, the variance that of `M` numbers.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[M]`, starts at 1.
    pub weight: Param<Tensor<1>>,
    /// `[M]`, starts at 0. There is one where mean and variance normalize.
    pub bias: Option<Param<Tensor<1>>>,
    /// ε.
    #[module(skip)]
    pub(crate) epsilon: f64,
}

impl Norm {
    /// Adds `x` to the residual stream and normalizes every token of the sum: `(normed, sum)`.
    ///
    /// # Shapes
    ///
    /// - `x`, `residual`, and both results: `[B, L, M]`
    ///
    /// # Panics
    ///
    /// If the shapes disagree, or if `choice` forces a kernel that the device does not have.
    ///
    /// # Source
    ///
    /// Zhang and Sennrich 2019, eq. 4; Ba et al. 2016, eq. 4. The original's `fused_add_norm`.
    #[must_use]
    pub fn forward(
        &self,
        x: Tensor<3>,
        residual: Option<Tensor<3>>,
        choice: KernelChoice,
    ) -> (Tensor<3>, Tensor<3>) {
        let weight = self.weight.val();
        let Some(bias) = &self.bias else {
            return add_rms_norm(x, residual, weight, self.epsilon, choice)
                .expect("invariant: init checked the shapes and the choice of kernel");
        };
        let sum = match residual {
            Some(residual) => x + residual,
            None => x,
        };
        let centered = sum.clone() - sum.clone().mean_dim(2);
        let variance = (centered.clone() * centered.clone()).mean_dim(2);
        let normed = centered * (variance + self.epsilon).sqrt().recip();
        (normed * weight.unsqueeze() + bias.val().unsqueeze(), sum)
    }
}
