//! Root-mean-square normalization.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// Added to the mean square, as in the original.
const EPSILON: f64 = 1e-5;

/// `y = x / sqrt(mean(x²) + 1e-5) · weight`, over channels.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// `[M]`, starts at 1.
    pub weight: Param<Tensor<1>>,
}

impl RmsNorm {
    /// Normalizes every token.
    ///
    /// # Shapes
    ///
    /// - `x`, and the result: `[B, L, M]`
    ///
    /// # Source
    ///
    /// Zhang and Sennrich 2019, eq. 4; weight only, no bias.
    #[must_use]
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let scale = (x.clone().square().mean_dim(2) + EPSILON).sqrt(); // [B, L, 1]
        x / scale * self.weight.val().unsqueeze()
    }
}
