//! The selective scan in f64.

use super::{sigmoid, silu, silu_slope, softplus};
use crate::discretization::{Discretization, Series, discretize, linearize};

/// A scan to run; shapes as in [`crate::selective_scan()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleScan {
    /// `B`.
    pub batch: usize,
    /// `L`.
    pub len: usize,
    /// `D`.
    pub d_inner: usize,
    /// `N`.
    pub d_state: usize,
    /// `G`; 1 unless B and C are grouped.
    pub groups: usize,
    /// The discretization.
    pub method: Discretization,
    /// How its φ functions are evaluated.
    pub series: Series,
    /// Whether delta goes through softplus.
    pub delta_softplus: bool,
    /// From the last token to the first.
    pub reverse: bool,
    /// Whether `b` is `[D, N]` rather than `[B, L, G, N]`.
    pub b_constant: bool,
    /// Whether `c` is `[D, N]` rather than `[B, L, G, N]`.
    pub c_constant: bool,
    /// `[B, L, D]`.
    pub u: Vec<f64>,
    /// `[B, L, D]`.
    pub delta: Vec<f64>,
    /// `[D, N]`.
    pub a: Vec<f64>,
    /// B.
    pub b: Vec<f64>,
    /// C.
    pub c: Vec<f64>,
    /// `[D]`.
    pub d: Option<Vec<f64>>,
    /// `[B, L, D]`.
    pub z: Option<Vec<f64>>,
    /// `[D]`.
    pub delta_bias: Option<Vec<f64>>,
}

/// Gradients of a scan, shaped as its inputs; empty where an input is absent.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the gradient of the input of its name")]
pub struct OracleScanGrads {
    pub u: Vec<f64>,
    pub delta: Vec<f64>,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub c: Vec<f64>,
    pub d: Vec<f64>,
    pub z: Vec<f64>,
    pub delta_bias: Vec<f64>,
}

impl OracleScan {
    /// `y [B, L, D]` and the last state `[B, D, N]` of the first scan.
    #[must_use]
    pub fn forward(&self) -> (Vec<f64>, Vec<f64>) {
        let mut y = vec![0.0; self.u.len()];
        let mut last_state = Vec::new();
        for batch in 0..self.batch {
            for channel in 0..self.d_inner {
                let (out, states) = self.channel(batch, channel);
                for (token, out) in out.into_iter().enumerate() {
                    let at = self.at(batch, token, channel);
                    y[at] = self.skipped(out, at, channel)
                        * self.z.as_ref().map_or(1.0, |z| silu(z[at]));
                }
                last_state.extend(
                    states
                        .into_iter()
                        .next()
                        .into_iter()
                        .flat_map(|way| way.into_iter().last().unwrap_or_default()),
                );
            }
        }
        (y, last_state)
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleScanGrads {
        let mut grads = OracleScanGrads {
            u: vec![0.0; self.u.len()],
            delta: vec![0.0; self.delta.len()],
            a: vec![0.0; self.a.len()],
            b: vec![0.0; self.b.len()],
            c: vec![0.0; self.c.len()],
            d: vec![0.0; self.d.as_ref().map_or(0, Vec::len)],
            z: vec![0.0; self.z.as_ref().map_or(0, Vec::len)],
            delta_bias: vec![0.0; self.delta_bias.as_ref().map_or(0, Vec::len)],
        };
        for batch in 0..self.batch {
            for channel in 0..self.d_inner {
                let (out, states) = self.channel(batch, channel);
                let mut grad_scan = vec![0.0; self.len];
                for token in 0..self.len {
                    let at = self.at(batch, token, channel);
                    let mut grad = grad_y[at];
                    if let Some(z) = &self.z {
                        grads.z[at] =
                            grad * self.skipped(out[token], at, channel) * silu_slope(z[at]);
                        grad *= silu(z[at]);
                    }
                    if let Some(d) = &self.d {
                        grads.d[channel] += grad * self.u[at];
                        grads.u[at] += grad * d[channel];
                    }
                    grad_scan[token] = grad / states.len() as f64;
                }
                for (way, states) in states.iter().enumerate() {
                    self.pull_channel(batch, channel, way, states, &grad_scan, &mut grads);
                }
            }
        }
        grads
    }

    /// One channel's `Σ c·h` by token, averaged over the ways, and for each way the states `[N]` after every step.
    fn channel(&self, batch: usize, channel: usize) -> (Vec<f64>, Vec<Vec<Vec<f64>>>) {
        let ways = if self.method.form().two_way { 2 } else { 1 };
        let mut y = vec![0.0; self.len];
        let mut all = Vec::new();
        for way in 0..ways {
            let mut h = vec![0.0; self.d_state];
            let mut states = Vec::new();
            for step in 0..self.len {
                let token = self.token(step, way);
                let at = self.at(batch, token, channel);
                let (delta, _) = self.delta(at, channel);
                for n in 0..self.d_state {
                    let a = self.a[channel * self.d_state + n];
                    let step = discretize(self.method, self.series, delta, a);
                    let b = self.b[self.projection(self.b_constant, batch, token, channel, n)];
                    let c = self.c[self.projection(self.c_constant, batch, token, channel, n)];
                    h[n] = step.a_bar * h[n] + step.b_bar * b * self.u[at];
                    y[token] += c * h[n] / ways as f64;
                }
                states.push(h.clone());
            }
            all.push(states);
        }
        (y, all)
    }

    /// The adjoint of one way over one channel.
    fn pull_channel(
        &self,
        batch: usize,
        channel: usize,
        way: usize,
        states: &[Vec<f64>],
        grad_scan: &[f64],
        grads: &mut OracleScanGrads,
    ) {
        let mut grad_h = vec![0.0; self.d_state];
        for step in (0..self.len).rev() {
            let token = self.token(step, way);
            let at = self.at(batch, token, channel);
            let (delta, slope) = self.delta(at, channel);
            for n in 0..self.d_state {
                let a_at = channel * self.d_state + n;
                let b_at = self.projection(self.b_constant, batch, token, channel, n);
                let c_at = self.projection(self.c_constant, batch, token, channel, n);
                let lin = linearize(self.method, self.series, delta, self.a[a_at]);
                let before = if step == 0 { 0.0 } else { states[step - 1][n] };
                grads.c[c_at] += grad_scan[token] * states[step][n];
                grad_h[n] += grad_scan[token] * self.c[c_at];
                let grad_a_bar = grad_h[n] * before;
                let grad_b_bar = grad_h[n] * self.b[b_at] * self.u[at];
                grads.b[b_at] += grad_h[n] * lin.value.b_bar * self.u[at];
                grads.u[at] += grad_h[n] * lin.value.b_bar * self.b[b_at];
                grads.a[a_at] += grad_a_bar * lin.d_a.a_bar + grad_b_bar * lin.d_a.b_bar;
                let grad_delta =
                    (grad_a_bar * lin.d_delta.a_bar + grad_b_bar * lin.d_delta.b_bar) * slope;
                grads.delta[at] += grad_delta;
                if self.delta_bias.is_some() {
                    grads.delta_bias[channel] += grad_delta;
                }
                grad_h[n] *= lin.value.a_bar;
            }
        }
    }

    /// Delta after bias and softplus, and its derivative in the input.
    pub(super) fn delta(&self, at: usize, channel: usize) -> (f64, f64) {
        let raw = self.delta[at] + self.delta_bias.as_ref().map_or(0.0, |bias| bias[channel]);
        if self.delta_softplus { (softplus(raw), sigmoid(raw)) } else { (raw, 1.0) }
    }

    pub(super) fn skipped(&self, out: f64, at: usize, channel: usize) -> f64 {
        out + self.d.as_ref().map_or(0.0, |d| d[channel] * self.u[at])
    }

    pub(super) fn at(&self, batch: usize, token: usize, channel: usize) -> usize {
        (batch * self.len + token) * self.d_inner + channel
    }

    pub(super) fn projection(
        &self,
        constant: bool,
        batch: usize,
        token: usize,
        channel: usize,
        n: usize,
    ) -> usize {
        if constant {
            return channel * self.d_state + n;
        }
        let group = channel / (self.d_inner / self.groups);
        ((batch * self.len + token) * self.groups + group) * self.d_state + n
    }

    pub(super) fn token(&self, step: usize, way: usize) -> usize {
        if self.reverse != (way == 1) { self.len - 1 - step } else { step }
    }
}
