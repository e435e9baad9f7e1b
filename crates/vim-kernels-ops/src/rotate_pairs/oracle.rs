//! The rotation of pairs of channels in f64.

/// Tokens to rotate; shapes as in [`crate::rotate_pairs()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleRotation {
    /// `[B, L, M]`.
    pub shape: [usize; 3],
    /// `[B, L, M]`.
    pub x: Vec<f64>,
    /// `[1, L, M]`.
    pub cos: Vec<f64>,
    /// `[1, L, M]`.
    pub sin: Vec<f64>,
}

impl OracleRotation {
    /// The result, `[B, L, M]`.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        let mut y = vec![0.0; self.x.len()];
        self.terms(|to, from, factor| y[to] += self.x[from] * factor);
        y
    }

    /// The gradient of `x` of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> Vec<f64> {
        let mut x = vec![0.0; self.x.len()];
        self.terms(|to, from, factor| x[from] += grad_y[to] * factor);
        x
    }

    /// Calls `term` with an index of the result, one that it reads, and the factor of that.
    fn terms(&self, mut term: impl FnMut(usize, usize, f64)) {
        let [batch, len, d_model] = self.shape;
        for row in 0..batch * len {
            for channel in 0..d_model {
                let partner = if channel % 2 == 0 { channel + 1 } else { channel - 1 };
                let to = row * d_model + channel;
                let factor = row % len * d_model + channel;
                term(to, to, self.cos[factor]);
                term(to, row * d_model + partner, self.sin[factor]);
            }
        }
    }
}
