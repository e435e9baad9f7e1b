//! Layer normalization in f64.

/// Rows to normalize; shapes as in [`crate::layer_norm()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleLayerNorm {
    /// Added to the variance.
    pub epsilon: f64,
    /// `[rows, C]`.
    pub x: Vec<f64>,
    /// `[C]`.
    pub weight: Vec<f64>,
    /// `[C]`.
    pub bias: Vec<f64>,
    /// Whether negative results become 0.
    pub relu: bool,
}

/// Gradients, shaped as the inputs.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the gradient of the input of its name")]
pub struct OracleLayerNormGrads {
    pub x: Vec<f64>,
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
}

impl OracleLayerNorm {
    /// The normalized rows.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        let limit = |y: f64| if self.relu { y.max(0.0) } else { y };
        let rows = self.x.chunks(self.weight.len());
        rows.flat_map(|row| {
            let normed = self.normed(row).0;
            (0..normed.len()).map(|at| limit(self.linear(&normed, at))).collect::<Vec<_>>()
        })
        .collect()
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleLayerNormGrads {
        let channels = self.weight.len();
        let mut grads = OracleLayerNormGrads {
            weight: vec![0.0; channels],
            bias: vec![0.0; channels],
            ..Default::default()
        };
        for (row, grad) in self.x.chunks(channels).zip(grad_y.chunks(channels)) {
            let (normed, scale) = self.normed(row);
            let mut of_normed = vec![0.0; channels];
            for at in 0..channels {
                if self.relu && self.linear(&normed, at) <= 0.0 {
                    continue;
                }
                grads.weight[at] += grad[at] * normed[at];
                grads.bias[at] += grad[at];
                of_normed[at] = grad[at] * self.weight[at];
            }
            let mean = of_normed.iter().sum::<f64>() / channels as f64;
            let along = of_normed.iter().zip(&normed).map(|(g, n)| g * n).sum::<f64>();
            let along = along / channels as f64;
            let through =
                of_normed.iter().zip(&normed).map(|(g, n)| scale * (g - mean - n * along));
            grads.x.extend(through);
        }
        grads
    }

    /// A row less its mean over its deviation, and 1 over that.
    fn normed(&self, row: &[f64]) -> (Vec<f64>, f64) {
        let count = row.len() as f64;
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance + self.epsilon).sqrt();
        (row.iter().map(|x| (x - mean) * scale).collect(), scale)
    }

    fn linear(&self, normed: &[f64], at: usize) -> f64 {
        normed[at] * self.weight[at] + self.bias[at]
    }
}
