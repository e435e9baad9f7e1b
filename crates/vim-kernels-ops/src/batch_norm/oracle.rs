//! The two parts of batch norm in f64.

/// Rows of channels; shapes as in [`crate::channel_sums()`] and [`crate::scale_shift()`].
#[derive(Clone, Debug, Default)]
pub struct OracleScaleShift {
    /// `[T, C]`.
    pub x: Vec<f64>,
    /// `[C]`.
    pub scale: Vec<f64>,
    /// `[C]`.
    pub shift: Vec<f64>,
    /// Whether negative results become 0.
    pub relu: bool,
}

/// Gradients, shaped as the inputs.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the gradient of the input of its name")]
pub struct OracleScaleShiftGrads {
    pub x: Vec<f64>,
    pub scale: Vec<f64>,
    pub shift: Vec<f64>,
}

impl OracleScaleShift {
    /// `[Σ x, Σ x²]`, `[2, C]`.
    #[must_use]
    pub fn sums(&self) -> Vec<f64> {
        let channels = self.scale.len();
        let mut sums = vec![0.0; 2 * channels];
        for (at, x) in self.x.iter().enumerate() {
            sums[at % channels] += x;
            sums[channels + at % channels] += x * x;
        }
        sums
    }

    /// The gradient of x of `Σ grad_sums·sums`.
    #[must_use]
    pub fn sums_backward(&self, grad_sums: &[f64]) -> Vec<f64> {
        let channels = self.scale.len();
        let (first, second) = grad_sums.split_at(channels);
        let of = |(at, x): (usize, &f64)| first[at % channels] + 2.0 * x * second[at % channels];
        self.x.iter().enumerate().map(of).collect()
    }

    /// `x·scale + shift`, or the larger of that and 0.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        let limit = |y: f64| if self.relu { y.max(0.0) } else { y };
        (0..self.x.len()).map(|at| limit(self.linear(at))).collect()
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleScaleShiftGrads {
        let channels = self.scale.len();
        let mut grads = OracleScaleShiftGrads {
            x: vec![0.0; self.x.len()],
            scale: vec![0.0; channels],
            shift: vec![0.0; channels],
        };
        for (at, (x, grad)) in self.x.iter().zip(grad_y).enumerate() {
            if self.relu && self.linear(at) <= 0.0 {
                continue;
            }
            grads.x[at] = grad * self.scale[at % channels];
            grads.scale[at % channels] += grad * x;
            grads.shift[at % channels] += grad;
        }
        grads
    }

    fn linear(&self, at: usize) -> f64 {
        let channel = at % self.scale.len();
        self.x[at] * self.scale[channel] + self.shift[channel]
    }
}
