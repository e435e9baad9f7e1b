//! The scan with a full A in f64.

use crate::scan::oracle::{OracleScan, OracleScanGrads};
use vim_kernels_core::oracle_math::{silu, silu_slope};

/// A scan with a full A to run; shapes as in [`crate::full_scan()`].
///
/// The fields are those of [`OracleScan`], but `a` is `[D, N, N]`. The method is bilinear, whatever
/// `method` and `series` say. The gradients are shaped as the inputs, that of `a` `[D, N, N]`.
#[derive(Clone, Debug, Default)]
pub struct OracleFullScan(pub OracleScan);

/// A channel's step: its states before and after, and their midpoint.
struct Step {
    midpoint: Vec<f64>,
    after: Vec<f64>,
}

impl OracleFullScan {
    /// `y [B, L, D]` and the last state `[B, D, N]`.
    #[must_use]
    pub fn forward(&self) -> (Vec<f64>, Vec<f64>) {
        let scan = &self.0;
        let mut y = vec![0.0; scan.u.len()];
        let mut last_state = Vec::new();
        for batch in 0..scan.batch {
            for channel in 0..scan.d_inner {
                let steps = self.channel(batch, channel);
                for (step, at_step) in steps.iter().enumerate() {
                    let token = scan.token(step, 0);
                    let at = scan.at(batch, token, channel);
                    let out = self.out(batch, token, channel, &at_step.after);
                    y[at] = scan.gated(out, at, channel);
                }
                last_state
                    .extend(steps.into_iter().last().map(|step| step.after).unwrap_or_default());
            }
        }
        (y, last_state)
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleScanGrads {
        let scan = &self.0;
        let mut grads = scan.zero_grads();
        for batch in 0..scan.batch {
            for channel in 0..scan.d_inner {
                self.pull_channel(batch, channel, grad_y, &mut grads);
            }
        }
        grads
    }

    /// The adjoint of one channel. With `g` the gradient of `h[t]` and `(I − M)ᵀ·q = g`: the
    /// gradient of `h[t-1]` is `2q − g`, that of `M` is `2q·sᵀ`, that of `delta·b·u` is `q`.
    fn pull_channel(
        &self,
        batch: usize,
        channel: usize,
        grad_y: &[f64],
        grads: &mut OracleScanGrads,
    ) {
        let scan = &self.0;
        let n_states = scan.d_state;
        let a = self.matrix(channel);
        let mut g = vec![0.0; n_states];
        for (step, at_step) in self.channel(batch, channel).iter().enumerate().rev() {
            let token = scan.token(step, 0);
            let at = scan.at(batch, token, channel);
            let (delta, slope) = scan.delta(at, channel);
            let mut grad = grad_y[at];
            if let Some(z) = &scan.z {
                let out = self.out(batch, token, channel, &at_step.after);
                grads.z[at] = grad * scan.skipped(out, at, channel) * silu_slope(z[at]);
                grad *= silu(z[at]);
            }
            if let Some(d) = &scan.d {
                grads.d[channel] += grad * scan.u[at];
                grads.u[at] += grad * d[channel];
            }
            for n in 0..n_states {
                let c_at = scan.projection(scan.c_constant, batch, token, channel, n);
                grads.c[c_at] += grad * at_step.after[n];
                g[n] += grad * scan.c[c_at];
            }
            let q = solve(system(a, n_states, delta, true), &g);
            let s = &at_step.midpoint;
            let mut grad_delta = 0.0;
            for n in 0..n_states {
                let b_at = scan.projection(scan.b_constant, batch, token, channel, n);
                grads.b[b_at] += q[n] * delta * scan.u[at];
                grads.u[at] += q[n] * delta * scan.b[b_at];
                grad_delta += q[n] * scan.b[b_at] * scan.u[at];
                for m in 0..n_states {
                    grads.a[(channel * n_states + n) * n_states + m] += delta * q[n] * s[m];
                    grad_delta += q[n] * a[n * n_states + m] * s[m];
                }
                g[n] = 2.0 * q[n] - g[n];
            }
            grads.delta[at] += grad_delta * slope;
            if scan.delta_bias.is_some() {
                grads.delta_bias[channel] += grad_delta * slope;
            }
        }
    }

    /// The steps of one channel, in the order of the scan, by the two matrices of the definition:
    /// `h[t] = (I − M)⁻¹·((I + M)·h[t-1] + delta·b[t]·u[t])`.
    fn channel(&self, batch: usize, channel: usize) -> Vec<Step> {
        let scan = &self.0;
        let n_states = scan.d_state;
        let a = self.matrix(channel);
        let mut h = vec![0.0; n_states];
        let run = |step| {
            let token = scan.token(step, 0);
            let at = scan.at(batch, token, channel);
            let (delta, _) = scan.delta(at, channel);
            let right: Vec<f64> = (0..n_states)
                .map(|n| {
                    let b = scan.b[scan.projection(scan.b_constant, batch, token, channel, n)];
                    let coupled: f64 =
                        (0..n_states).map(|m| a[n * n_states + m] * h[m]).sum::<f64>();
                    h[n] + 0.5 * delta * coupled + delta * b * scan.u[at]
                })
                .collect();
            let after = solve(system(a, n_states, delta, false), &right);
            let midpoint = h.iter().zip(&after).map(|(h, after)| 0.5 * (h + after)).collect();
            h.clone_from(&after);
            Step { midpoint, after }
        };
        (0..scan.len).map(run).collect()
    }

    /// `c·h` of a token.
    fn out(&self, batch: usize, token: usize, channel: usize, h: &[f64]) -> f64 {
        let scan = &self.0;
        let c = |n| scan.c[scan.projection(scan.c_constant, batch, token, channel, n)];
        h.iter().enumerate().map(|(n, h)| c(n) * h).sum()
    }

    /// A of a channel, `[N, N]`.
    fn matrix(&self, channel: usize) -> &[f64] {
        let size = self.0.d_state * self.0.d_state;
        &self.0.a[channel * size..(channel + 1) * size]
    }
}

/// `I − delta/2·A`, or its transpose, by rows.
fn system(a: &[f64], n_states: usize, delta: f64, transposed: bool) -> Vec<Vec<f64>> {
    let at =
        |n: usize, m: usize| if transposed { a[m * n_states + n] } else { a[n * n_states + m] };
    let entry = |n, m| if n == m { 1.0 } else { 0.0 } - 0.5 * delta * at(n, m);
    (0..n_states).map(|n| (0..n_states).map(|m| entry(n, m)).collect()).collect()
}

/// `x` of `matrix·x = right`, by Gaussian elimination with partial pivoting.
fn solve(mut matrix: Vec<Vec<f64>>, right: &[f64]) -> Vec<f64> {
    let size = right.len();
    for (row, &right) in matrix.iter_mut().zip(right) {
        row.push(right);
    }
    for k in 0..size {
        let pivot = (k..size)
            .max_by(|&i, &j| matrix[i][k].abs().total_cmp(&matrix[j][k].abs()))
            .unwrap_or(k);
        matrix.swap(k, pivot);
        let top = matrix[k].clone();
        for row in &mut matrix[k + 1..] {
            let factor = row[k] / top[k];
            for j in k..=size {
                row[j] -= factor * top[j];
            }
        }
    }
    let mut x = vec![0.0; size];
    for k in (0..size).rev() {
        let known: f64 = (k + 1..size).map(|j| matrix[k][j] * x[j]).sum();
        x[k] = (matrix[k][size] - known) / matrix[k][k];
    }
    x
}
