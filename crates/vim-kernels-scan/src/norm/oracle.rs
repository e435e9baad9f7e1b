//! Residual addition and root-mean-square normalization in f64.

/// Rows to add and normalize; shapes as in [`crate::add_rms_norm()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleNorm {
    /// `D`.
    pub d_model: usize,
    /// Added to the mean square.
    pub epsilon: f64,
    /// `[rows, D]`.
    pub x: Vec<f64>,
    /// `[rows, D]`.
    pub residual: Option<Vec<f64>>,
    /// `[D]`.
    pub weight: Vec<f64>,
}

/// Gradients of a norm, shaped as its inputs; empty where an input is absent.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the gradient of the input of its name")]
pub struct OracleNormGrads {
    pub x: Vec<f64>,
    pub residual: Vec<f64>,
    pub weight: Vec<f64>,
}

impl OracleNorm {
    /// The normalized rows, and the sums.
    #[must_use]
    pub fn forward(&self) -> (Vec<f64>, Vec<f64>) {
        let sum = self.sum();
        let mut normed = Vec::with_capacity(sum.len());
        for row in sum.chunks(self.d_model) {
            let scale = self.scale(row);
            normed.extend(row.iter().zip(&self.weight).map(|(r, w)| r * scale * w));
        }
        (normed, sum)
    }

    /// The gradients of `Σ grad_normed·normed + Σ grad_sum·sum`.
    #[must_use]
    pub fn backward(&self, grad_normed: &[f64], grad_sum: &[f64]) -> OracleNormGrads {
        let mut grads = OracleNormGrads { weight: vec![0.0; self.d_model], ..Default::default() };
        let rows = self.sum();
        let rows = rows.chunks(self.d_model).zip(grad_normed.chunks(self.d_model));
        for ((row, grad), through) in rows.zip(grad_sum.chunks(self.d_model)) {
            let scale = self.scale(row);
            // The derivative of the scale by an element r of the row is −r·scale³/D.
            let mut grad_scale = 0.0;
            for ((r, g), (w, grad_weight)) in
                row.iter().zip(grad).zip(self.weight.iter().zip(&mut grads.weight))
            {
                *grad_weight += g * r * scale;
                grad_scale += g * r * w;
            }
            for ((r, g), (w, t)) in row.iter().zip(grad).zip(self.weight.iter().zip(through)) {
                let by_scale = grad_scale * -r * scale.powi(3) / self.d_model as f64;
                grads.x.push(g * w * scale + by_scale + t);
            }
        }
        if self.residual.is_some() {
            grads.residual.clone_from(&grads.x);
        }
        grads
    }

    fn sum(&self) -> Vec<f64> {
        match &self.residual {
            Some(residual) => self.x.iter().zip(residual).map(|(x, r)| x + r).collect(),
            None => self.x.clone(),
        }
    }

    fn scale(&self, row: &[f64]) -> f64 {
        let squares: f64 = row.iter().map(|r| r * r).sum();
        1.0 / (squares / self.d_model as f64 + self.epsilon).sqrt()
    }
}
