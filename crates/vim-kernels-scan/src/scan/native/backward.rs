//! The adjoint of the scan on one strip of channels.
//!
//! With `g[t] = c[t]·dy[t] + a_bar[t+1]·g[t+1]` the gradient of the loss in `h[t]`, every input's
//! gradient is local: `dc += h·dy`, `d(a_bar) = g·h[t-1]`, `d(b_bar) = g·b·u`, and so on. Where a
//! method reads the token before, `b·u` of a token drives two states: its gradient is
//! `b_bar[t]·g[t] + b_prev[t+1]·g[t+1]`. The states are recomputed a chunk at a time, from the last
//! chunk to the first.

use strum::VariantArray;

use super::block::{Block, untranspose};
use super::inputs::{CHUNK, ScanInputs, Strip};
use super::kernel::Wanted;
use crate::discretization::{Discretization, PerMethod, Series, linearize_at, per_method};
use vim_kernels_core::native::lanes::{LANES, Lanes};
use vim_kernels_core::native::{Kernel, widest};

/// A strip's part of the gradients; empty of those that are not wanted.
pub(super) struct StripGrads {
    /// `[L, channels]`.
    pub(super) u: Vec<f32>,
    /// `[L, channels]`.
    pub(super) delta: Vec<f32>,
    /// `[L, channels]`.
    pub(super) z: Vec<f32>,
    /// `[channels, N]`.
    pub(super) a: Vec<f32>,
    /// `[L, N]`, or `[channels, N]` where B is constant.
    pub(super) b: Vec<f32>,
    /// As `b`.
    pub(super) c: Vec<f32>,
    /// `[channels]`.
    pub(super) d: Vec<f32>,
    /// `[channels]`.
    pub(super) delta_bias: Vec<f32>,
}

/// The `wanted` gradients of the strip from `grad_y`, with the states that the forward pass saved.
pub(super) fn backward_strip(
    inputs: ScanInputs<'_>,
    batch: usize,
    strip: Strip,
    grad_y: &[f32],
    chunk_states: &[f32],
    wanted: Wanted,
) -> StripGrads {
    let job = Job { inputs, batch, strip, grad_y, chunk_states, wanted };
    per_method(inputs.spec.options.method, inputs.spec.options.series, job)
}

#[derive(Clone, Copy)]
struct Job<'a> {
    inputs: ScanInputs<'a>,
    batch: usize,
    strip: Strip,
    grad_y: &'a [f32],
    chunk_states: &'a [f32],
    wanted: Wanted,
}

struct Specialized<'a, const METHOD: usize, const SERIES: usize>(Job<'a>);

impl PerMethod for Job<'_> {
    type Output = StripGrads;

    fn run<const METHOD: usize, const SERIES: usize>(self) -> StripGrads {
        widest(Specialized::<METHOD, SERIES>(self))
    }
}

/// Sums to which a block of sixteen channels adds.
struct Sums<const FMA: bool> {
    /// `[L]`: gradients of u and of delta after softplus.
    u: Vec<Lanes<FMA>>,
    delta: Vec<Lanes<FMA>>,
    /// `[L]`: gradient of the scan's own output.
    y: Vec<Lanes<FMA>>,
    /// `[L]`: the slope of the gate, times the gradient of its product; used with z.
    gate: Vec<Lanes<FMA>>,
    /// `[N]`.
    a: Vec<Lanes<FMA>>,
    /// `[L, N]` over all blocks of the strip, or `[N]` of this block where constant.
    b: Vec<Lanes<FMA>>,
    c: Vec<Lanes<FMA>>,
}

impl<const METHOD: usize, const SERIES: usize> Kernel for Specialized<'_, METHOD, SERIES> {
    type Output = StripGrads;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> StripGrads {
        let Job { inputs, batch, strip, grad_y, wanted, .. } = self.0;
        let (sizes, spec, channels) = (inputs.sizes, inputs.spec, strip.channels);
        let zeros = |input: usize, len: usize| vec![0.0; if wanted[input] { len } else { 0 }];
        let rows = |constant: bool| if constant { channels } else { sizes.len } * sizes.d_state;
        let mut out = StripGrads {
            u: zeros(0, sizes.len * channels),
            delta: zeros(1, sizes.len * channels),
            a: zeros(2, channels * sizes.d_state),
            b: zeros(3, rows(spec.b_constant)),
            c: zeros(4, rows(spec.c_constant)),
            d: zeros(5, channels),
            z: zeros(6, inputs.z.map_or(0, |_| sizes.len * channels)),
            delta_bias: zeros(7, channels),
        };
        let vectors = |constant: bool| if constant { 1 } else { sizes.len } * sizes.d_state;
        let tokens = vec![Lanes::ZERO; sizes.len];
        let mut sums = Sums::<FMA> {
            u: tokens.clone(),
            delta: tokens.clone(),
            y: tokens.clone(),
            gate: tokens,
            a: vec![Lanes::ZERO; sizes.d_state],
            b: vec![Lanes::ZERO; vectors(spec.b_constant)],
            c: vec![Lanes::ZERO; vectors(spec.c_constant)],
        };
        let mut block = Block::<FMA>::new(inputs);
        for (index, (first, width)) in strip.blocks().enumerate() {
            block.load(inputs, batch, first, width);
            for token in 0..sizes.len {
                let grad = inputs.columns::<FMA>(grad_y, batch, token, first, width);
                sums.y[token] = grad;
                if let Some(z) = inputs.z {
                    let z = inputs.columns::<FMA>(z, batch, token, first, width);
                    let [gate, slope] = z.silu_and_slope();
                    sums.y[token] = grad * gate;
                    sums.gate[token] = grad * slope;
                }
                sums.u[token] = Lanes::ZERO;
                sums.delta[token] = Lanes::ZERO;
            }
            sums.a.fill(Lanes::ZERO);
            if spec.b_constant {
                sums.b.fill(Lanes::ZERO);
            }
            if spec.c_constant {
                sums.c.fill(Lanes::ZERO);
            }
            for sweep in 0..spec.sweeps() {
                self.sweep(&mut block, &mut sums, index, sweep);
            }

            let (mut d, mut delta_bias) = (Lanes::ZERO, Lanes::ZERO);
            for token in 0..sizes.len {
                let at = token * channels + first - strip.first;
                let (u, grad_y_scan) = (block.u[token], sums.y[token]);
                let y = block.d.fma(u, block.y[token]);
                put(sums.gate[token] * y, &mut out.z, at, width);
                let grad_delta = sums.delta[token] * block.delta_slope[token];
                put(grad_delta, &mut out.delta, at, width);
                put(block.d.fma(grad_y_scan, sums.u[token]), &mut out.u, at, width);
                d = grad_y_scan.fma(u, d);
                delta_bias += grad_delta;
            }
            let block_at = first - strip.first;
            put(d, &mut out.d, block_at, width);
            put(delta_bias, &mut out.delta_bias, block_at, width);
            let states = block_at * sizes.d_state;
            let of_states = [(&sums.a, &mut out.a, true), (&sums.b, &mut out.b, spec.b_constant)];
            let of_states = of_states.into_iter().chain([(&sums.c, &mut out.c, spec.c_constant)]);
            for (from, to, _) in of_states.filter(|(_, to, is_whole)| *is_whole && !to.is_empty()) {
                untranspose(from, &mut to[states..]);
            }
        }
        if !spec.b_constant {
            reduce(&sums.b, &mut out.b);
        }
        if !spec.c_constant {
            reduce(&sums.c, &mut out.c);
        }
        out
    }
}

/// Stores `width` lanes at `at` of `to`, unless it is empty.
#[inline(always)]
fn put<const FMA: bool>(lanes: Lanes<FMA>, to: &mut [f32], at: usize, width: usize) {
    if !to.is_empty() {
        lanes.store(&mut to[at..at + width]);
    }
}

/// The sum of each vector's lanes.
fn reduce<const FMA: bool>(from: &[Lanes<FMA>], to: &mut [f32]) {
    for (from, to) in from.iter().zip(to) {
        *to = from.sum();
    }
}

impl<const METHOD: usize, const SERIES: usize> Specialized<'_, METHOD, SERIES> {
    /// One sweep over the tokens, backwards: chunk by chunk from the last.
    #[inline(always)]
    fn sweep<const FMA: bool>(
        &self,
        block: &mut Block<FMA>,
        sums: &mut Sums<FMA>,
        index: usize,
        sweep: usize,
    ) {
        let Job { inputs, batch, strip, chunk_states, .. } = self.0;
        let (sizes, spec) = (inputs.sizes, inputs.spec);
        let d_state = sizes.d_state;
        let chunks = sizes.len.div_ceil(CHUNK);
        // What flows into a token from the one after it: into its state, and into its b·u.
        let mut g = vec![Lanes::ZERO; d_state];
        let taps = const { Discretization::VARIANTS[METHOD].form().previous.is_some() };
        let mut tap = vec![Lanes::ZERO; if taps { d_state } else { 0 }];
        // The states before each token of a chunk, and after its last.
        let mut history = vec![Lanes::ZERO; (CHUNK + 1) * d_state];
        let mut decays = vec![Lanes::ZERO; CHUNK * d_state];
        for chunk in (0..chunks).rev() {
            let saved = ((index * spec.sweeps() + sweep) * chunks + chunk) * d_state * LANES;
            for (n, h) in history[..d_state].iter_mut().enumerate() {
                *h = Lanes::load(&chunk_states[saved + n * LANES..saved + (n + 1) * LANES]);
            }
            let steps = chunk * CHUNK..((chunk + 1) * CHUNK).min(sizes.len);
            for (i, step) in steps.clone().enumerate() {
                history.copy_within(i * d_state..(i + 1) * d_state, (i + 1) * d_state);
                let token = spec.token(sizes.len, step, sweep);
                let h = &mut history[(i + 1) * d_state..(i + 2) * d_state];
                let row = &mut decays[i * d_state..(i + 1) * d_state];
                let y = block.step::<METHOD, SERIES>(inputs, batch, strip, token, h, row);
                block.y[token] += y;
            }
            for (i, step) in steps.enumerate().rev() {
                let token = spec.token(sizes.len, step, sweep);
                let states = &history[i * d_state..(i + 2) * d_state];
                let row = &decays[i * d_state..(i + 1) * d_state];
                self.pull(block, sums, token, states, row, [&mut g, &mut tap]);
            }
        }
    }

    /// One token of the adjoint: `states` holds h before and after it, `decays` its `a_bar`.
    #[inline(always)]
    fn pull<const FMA: bool>(
        &self,
        block: &Block<FMA>,
        sums: &mut Sums<FMA>,
        token: usize,
        states: &[Lanes<FMA>],
        decays: &[Lanes<FMA>],
        [g, tap]: [&mut [Lanes<FMA>]; 2],
    ) {
        let Job { inputs, batch, strip, .. } = self.0;
        let spec = inputs.spec;
        let d_state = inputs.sizes.d_state;
        let method = const { Discretization::VARIANTS[METHOD] };
        let series = const { Series::VARIANTS[SERIES] };
        let (delta, u) = (block.delta[token], block.u[token]);
        let dy = sums.y[token] * Lanes::splat(spec.sweep_weight());
        let [b, c] = block.projections(inputs, batch, token, strip);
        let (b_before, u_before) = block.before::<METHOD>(inputs, batch, token, strip);
        let b_row = if spec.b_constant { 0 } else { token * d_state };
        let c_row = if spec.c_constant { 0 } else { token * d_state };
        // Slices of one length, so that no index needs a check.
        let (before, after) = states.split_at(d_state);
        let (g, a) = (&mut g[..d_state], &block.a[..d_state]);
        let (before, after) = (&before[..d_state], &after[..d_state]);
        let decays = &decays[..d_state];
        let grad_a = &mut sums.a[..d_state];
        let grad_b = &mut sums.b[b_row..][..d_state];
        let grad_c = &mut sums.c[c_row..][..d_state];
        let (mut grad_u, mut grad_delta) = (Lanes::ZERO, Lanes::ZERO);
        for n in 0..d_state {
            let (b, c) = (b.at(n), c.at(n));
            let step = linearize_at(method, series, delta, a[n], decays[n]);
            let grad_h = c.fma(dy, g[n]);
            grad_c[n] = dy.fma(after[n], grad_c[n]);
            let mut grad_drive = grad_h * step.value.b_bar;
            if let (Some(b_prev), Some(tap)) = (step.value.b_prev, tap.get_mut(n)) {
                grad_drive += *tap;
                *tap = grad_h * b_prev;
            }
            grad_b[n] = grad_drive.fma(u, grad_b[n]);
            grad_u = grad_drive.fma(b, grad_u);
            let grad_a_bar = grad_h * before[n];
            let grad_b_bar = grad_h * (b * u);
            grad_delta =
                grad_a_bar.fma(step.d_delta.a_bar, grad_b_bar.fma(step.d_delta.b_bar, grad_delta));
            grad_a[n] = grad_a_bar.fma(step.d_a.a_bar, grad_b_bar.fma(step.d_a.b_bar, grad_a[n]));
            if let (Some(d_delta), Some(d_a)) = (step.d_delta.b_prev, step.d_a.b_prev) {
                let grad_b_prev = grad_h * (b_before.at(n) * u_before);
                grad_delta = grad_b_prev.fma(d_delta, grad_delta);
                grad_a[n] = grad_b_prev.fma(d_a, grad_a[n]);
            }
            g[n] = grad_h * step.value.a_bar;
        }
        sums.u[token] += grad_u;
        sums.delta[token] += grad_delta;
    }
}
