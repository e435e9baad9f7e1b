//! The selective scan in f64, with real or complex states.

use crate::complex::Complex;
use crate::discretization::{Discretization, LEAST_RATE, Series, discretize, linearize};
use vim_kernels_core::Real;
use vim_kernels_core::oracle_math::{sigmoid, silu, silu_slope, softplus};

/// A state of the scan in f64. A gradient by `p + iq` is `∂L/∂p + i·∂L/∂q`.
pub trait Number: Real + Copy + Default {
    /// `y = OUTPUT·Re(c·h)`: 1 for real states; 2 for complex ones, each of which stands for a
    /// conjugate pair.
    const OUTPUT: f64;

    /// A real number as one of these.
    #[must_use]
    fn real(value: f64) -> Self;

    /// The real part.
    #[must_use]
    fn re(self) -> f64;

    /// The complex conjugate.
    #[must_use]
    fn conj(self) -> Self;
}

impl Number for f64 {
    const OUTPUT: f64 = 1.0;

    fn real(value: f64) -> Self {
        value
    }
    fn re(self) -> f64 {
        self
    }
    fn conj(self) -> Self {
        self
    }
}

impl Number for Complex<f64> {
    const OUTPUT: f64 = 2.0;

    fn real(value: f64) -> Self {
        Self::real(value)
    }
    fn re(self) -> f64 {
        self.re
    }
    fn conj(self) -> Self {
        Self::conj(self)
    }
}

/// A scan to run; shapes as in [`crate::selective_scan()`], row-major. `T` is `f64`, or
/// [`Complex<f64>`](crate::Complex) where A, B and C are complex.
#[derive(Clone, Debug, Default)]
pub struct OracleScan<T = f64> {
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
    pub a: Vec<T>,
    /// B.
    pub b: Vec<T>,
    /// C.
    pub c: Vec<T>,
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
pub struct OracleScanGrads<T = f64> {
    pub u: Vec<f64>,
    pub delta: Vec<f64>,
    pub a: Vec<T>,
    pub b: Vec<T>,
    pub c: Vec<T>,
    pub d: Vec<f64>,
    pub z: Vec<f64>,
    pub delta_bias: Vec<f64>,
}

impl<T: Number> OracleScan<T> {
    /// `y [B, L, D]` and the last state `[B, D, N]` of the first scan.
    #[must_use]
    pub fn forward(&self) -> (Vec<f64>, Vec<T>) {
        let mut y = vec![0.0; self.u.len()];
        let mut last_state = Vec::new();
        for batch in 0..self.batch {
            for channel in 0..self.d_inner {
                let (out, states) = self.channel(batch, channel);
                for (token, out) in out.into_iter().enumerate() {
                    let at = self.at(batch, token, channel);
                    y[at] = self.gated(out, at, channel);
                }
                let last = states.into_iter().next().and_then(|sweep| sweep.into_iter().last());
                last_state.extend(last.unwrap_or_default());
            }
        }
        (y, last_state)
    }

    /// The gradients of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> OracleScanGrads<T> {
        let mut grads = self.zero_grads();
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
                for (sweep, states) in states.iter().enumerate() {
                    self.pull_channel(batch, channel, sweep, states, &grad_scan, &mut grads);
                }
            }
        }
        grads
    }

    pub(crate) fn zero_grads(&self) -> OracleScanGrads<T> {
        let zeros = |input: &Option<Vec<f64>>| vec![0.0; input.as_ref().map_or(0, Vec::len)];
        OracleScanGrads {
            u: vec![0.0; self.u.len()],
            delta: vec![0.0; self.delta.len()],
            a: vec![T::real(0.0); self.a.len()],
            b: vec![T::real(0.0); self.b.len()],
            c: vec![T::real(0.0); self.c.len()],
            d: zeros(&self.d),
            z: zeros(&self.z),
            delta_bias: zeros(&self.delta_bias),
        }
    }

    /// `(out + d·u)·silu(z)`.
    pub(crate) fn gated(&self, out: f64, at: usize, channel: usize) -> f64 {
        self.skipped(out, at, channel) * self.z.as_ref().map_or(1.0, |z| silu(z[at]))
    }

    /// One channel's `Σ c·h` by token (`2·Re` of it where complex), averaged over the sweeps, and
    /// for each sweep the states `[N]` after every step.
    fn channel(&self, batch: usize, channel: usize) -> (Vec<f64>, Vec<Vec<Vec<T>>>) {
        let sweeps = if self.method.form().two_way { 2 } else { 1 };
        let mut y = vec![0.0; self.len];
        let mut all = Vec::new();
        for sweep in 0..sweeps {
            let mut h = vec![T::real(0.0); self.d_state];
            let mut states = Vec::new();
            for step in 0..self.len {
                let token = self.token(step, sweep);
                let at = self.at(batch, token, channel);
                let before = step.checked_sub(1).map(|step| self.token(step, sweep));
                let (delta, _) = self.delta(at, channel);
                for n in 0..self.d_state {
                    let a = self.rate(channel * self.d_state + n);
                    let step = discretize(self.method, self.series, T::real(delta), a);
                    let b = self.b[self.projection(self.b_constant, batch, token, channel, n)];
                    let c = self.c[self.projection(self.c_constant, batch, token, channel, n)];
                    h[n] = step.a_bar * h[n] + (step.b_bar * b).scale(self.u[at]);
                    if let (Some(b_prev), Some(before)) = (step.b_prev, before) {
                        let (b, u) = self.input(batch, before, channel, n);
                        h[n] = h[n] + (b_prev * self.b[b]).scale(self.u[u]);
                    }
                    y[token] += T::OUTPUT * (c * h[n]).re() / sweeps as f64;
                }
                states.push(h.clone());
            }
            all.push(states);
        }
        (y, all)
    }

    /// The adjoint of one sweep over one channel.
    fn pull_channel(
        &self,
        batch: usize,
        channel: usize,
        sweep: usize,
        states: &[Vec<T>],
        grad_scan: &[f64],
        grads: &mut OracleScanGrads<T>,
    ) {
        let mut grad_h = vec![T::real(0.0); self.d_state];
        for step in (0..self.len).rev() {
            let token = self.token(step, sweep);
            let before_it = step.checked_sub(1).map(|step| self.token(step, sweep));
            let at = self.at(batch, token, channel);
            let (delta, slope) = self.delta(at, channel);
            for n in 0..self.d_state {
                let a_at = channel * self.d_state + n;
                let b_at = self.projection(self.b_constant, batch, token, channel, n);
                let c_at = self.projection(self.c_constant, batch, token, channel, n);
                let lin = linearize(self.method, self.series, T::real(delta), self.rate(a_at));
                let before = if step == 0 { T::real(0.0) } else { states[step - 1][n] };
                let (b, c, u) = (self.b[b_at], self.c[c_at], self.u[at]);
                let grad_y = T::OUTPUT * grad_scan[token];
                grads.c[c_at] = grads.c[c_at] + states[step][n].conj().scale(grad_y);
                grad_h[n] = grad_h[n] + c.conj().scale(grad_y);
                let grad_a_bar = grad_h[n] * before.conj();
                let grad_b_bar = (grad_h[n] * b.conj()).scale(u);
                grads.b[b_at] = grads.b[b_at] + (grad_h[n] * lin.value.b_bar.conj()).scale(u);
                grads.u[at] += (grad_h[n] * (lin.value.b_bar * b).conj()).re();
                grads.a[a_at] = grads.a[a_at]
                    + grad_a_bar * lin.d_a.a_bar.conj()
                    + grad_b_bar * lin.d_a.b_bar.conj();
                let mut grad_delta = slope
                    * (grad_a_bar * lin.d_delta.a_bar.conj()
                        + grad_b_bar * lin.d_delta.b_bar.conj())
                    .re();
                if let (Some(b_prev), Some(before)) = (lin.value.b_prev, before_it) {
                    let (b_at, u_at) = self.input(batch, before, channel, n);
                    let (b, u) = (self.b[b_at], self.u[u_at]);
                    grads.b[b_at] = grads.b[b_at] + (grad_h[n] * b_prev.conj()).scale(u);
                    grads.u[u_at] += (grad_h[n] * (b_prev * b).conj()).re();
                    let through = |slope: Option<T>| {
                        (grad_h[n] * b.conj()).scale(u) * slope.unwrap_or_default().conj()
                    };
                    grads.a[a_at] = grads.a[a_at] + through(lin.d_a.b_prev);
                    grad_delta += slope * through(lin.d_delta.b_prev).re();
                }
                grads.delta[at] += grad_delta;
                if self.delta_bias.is_some() {
                    grads.delta_bias[channel] += grad_delta;
                }
                grad_h[n] = grad_h[n] * lin.value.a_bar.conj();
            }
        }
    }

    /// A of a state.
    pub(crate) fn rate(&self, at: usize) -> T {
        self.a[at].at_least(f64::from(LEAST_RATE))
    }

    /// Delta after bias and softplus, and its derivative in the input.
    pub(crate) fn delta(&self, at: usize, channel: usize) -> (f64, f64) {
        let raw = self.delta[at] + self.delta_bias.as_ref().map_or(0.0, |bias| bias[channel]);
        if self.delta_softplus { (softplus(raw), sigmoid(raw)) } else { (raw, 1.0) }
    }

    pub(crate) fn skipped(&self, out: f64, at: usize, channel: usize) -> f64 {
        out + self.d.as_ref().map_or(0.0, |d| d[channel] * self.u[at])
    }

    pub(crate) fn at(&self, batch: usize, token: usize, channel: usize) -> usize {
        (batch * self.len + token) * self.d_inner + channel
    }

    /// Where B of state `n` and u of a token are.
    fn input(&self, batch: usize, token: usize, channel: usize, n: usize) -> (usize, usize) {
        let b = self.projection(self.b_constant, batch, token, channel, n);
        (b, self.at(batch, token, channel))
    }

    pub(crate) fn projection(
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

    pub(crate) fn token(&self, step: usize, sweep: usize) -> usize {
        if self.reverse != (sweep == 1) { self.len - 1 - step } else { step }
    }
}
