//! The causal depthwise convolution in f64.

use vim_kernels_core::oracle_math::{silu, silu_slope};

/// A convolution to run; shapes as in [`crate::causal_conv1d()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleConv {
    /// `B`.
    pub batch: usize,
    /// `L`.
    pub len: usize,
    /// `D`.
    pub d_inner: usize,
    /// `W`.
    pub width: usize,
    /// Whether silu follows.
    pub silu: bool,
    /// Whether a token reads the tokens after it instead of those before.
    pub reverse: bool,
    /// `[B, L, D]`.
    pub x: Vec<f64>,
    /// `[D, 1, W]`; the last tap multiplies the current token.
    pub weight: Vec<f64>,
    /// `[D]`.
    pub bias: Option<Vec<f64>>,
}

/// Gradients of a convolution, shaped as its inputs; empty where an input is absent.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the gradient of the input of its name")]
pub struct OracleConvGrads {
    pub x: Vec<f64>,
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
}

impl OracleConv {
    /// `y [B, L, D]`.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        self.linear().into_iter().map(|y| if self.silu { silu(y) } else { y }).collect()
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleConvGrads {
        let mut grads = OracleConvGrads {
            x: vec![0.0; self.x.len()],
            weight: vec![0.0; self.weight.len()],
            bias: vec![0.0; self.bias.as_ref().map_or(0, Vec::len)],
        };
        let linear = self.linear();
        for batch in 0..self.batch {
            for token in 0..self.len {
                for channel in 0..self.d_inner {
                    let at = self.at(batch, token, channel);
                    let grad = grad_y[at] * if self.silu { silu_slope(linear[at]) } else { 1.0 };
                    if self.bias.is_some() {
                        grads.bias[channel] += grad;
                    }
                    for tap in 0..self.width {
                        let Some(source) = self.source(token, tap) else { continue };
                        let from = self.at(batch, source, channel);
                        grads.x[from] += grad * self.weight[channel * self.width + tap];
                        grads.weight[channel * self.width + tap] += grad * self.x[from];
                    }
                }
            }
        }
        grads
    }

    fn linear(&self) -> Vec<f64> {
        let mut y = vec![0.0; self.x.len()];
        for batch in 0..self.batch {
            for token in 0..self.len {
                for channel in 0..self.d_inner {
                    let mut sum = self.bias.as_ref().map_or(0.0, |bias| bias[channel]);
                    for tap in 0..self.width {
                        if let Some(source) = self.source(token, tap) {
                            sum += self.weight[channel * self.width + tap]
                                * self.x[self.at(batch, source, channel)];
                        }
                    }
                    y[self.at(batch, token, channel)] = sum;
                }
            }
        }
        y
    }

    /// The token that `tap` reads at `token`, if it is in the sequence.
    fn source(&self, token: usize, tap: usize) -> Option<usize> {
        let back = self.width - 1 - tap;
        if self.reverse {
            (token + back < self.len).then_some(token + back)
        } else {
            token.checked_sub(back)
        }
    }

    fn at(&self, batch: usize, token: usize, channel: usize) -> usize {
        (batch * self.len + token) * self.d_inner + channel
    }
}
