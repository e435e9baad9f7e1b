//! Root-mean-square normalization.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use vim_kernels::{ScanChoice, add_rms_norm};

/// Added to the mean square, as in the original.
const EPSILON: f64 = 1e-5;

/// `y = x / sqrt(mean(x²) + 1e-5) · weight`, over channels.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// `[M]`, starts at 1.
    pub weight: Param<Tensor<1>>,
}

impl RmsNorm {
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
    /// Zhang and Sennrich 2019, eq. 4; weight only, no bias. The original's `fused_add_norm`.
    #[must_use]
    pub fn forward(
        &self,
        x: Tensor<3>,
        residual: Option<Tensor<3>>,
        choice: ScanChoice,
    ) -> (Tensor<3>, Tensor<3>) {
        add_rms_norm(x, residual, self.weight.val(), EPSILON, choice)
            .expect("invariant: init checked the shapes and the choice of kernel")
    }
}
