//! The scan with a full A on a CPU: a task is one channel of one batch element, over all tokens.
//!
//! The forward pass saves the states at the starts of chunks of [`CHUNK`] tokens, `[B, D, chunks,
//! N]`; the backward pass recomputes a chunk and stores the factors of its systems, so a token is
//! factored twice in total, not three times.

mod lu;

use burn::backend::{Flex, tensor::FloatTensor};
use rayon::prelude::*;

use super::{CHUNK, FullScanSpec};
use crate::scan::ScanArguments;
use crate::scan::native::{
    Saved, ScanForward, ScanGrads, ScanInputs, Sizes, Wanted, scan_tensors, tensor_gradients,
};
use lu::{Factors, dot};
use vim_kernels_core::native::slices::{add, add_at};
use vim_kernels_core::op::{Forward, FusedOp};

impl FusedOp<Flex, 8, 1> for FullScanSpec {
    type Inputs = ScanArguments<Flex>;
    type Saved = Saved;

    fn forward(self, arguments: ScanArguments<Flex>, save: bool) -> Forward<Flex, Saved, 1> {
        scan_tensors(arguments, self.0, save, forward)
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        saved: Saved,
        wanted: Wanted,
    ) -> [Option<FloatTensor<Flex>>; 8] {
        tensor_gradients(&grad_y, saved, self.0, wanted, backward)
    }
}

/// Runs the scan; saves chunk states if `save`.
fn forward(inputs: ScanInputs<'_>, save: bool) -> ScanForward {
    let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
    let mut out = ScanForward {
        y: vec![0.0; batch * len * d_inner],
        last_state: vec![0.0; batch * d_inner * d_state],
        chunk_states: Vec::new(),
    };
    let parts: Vec<_> = out
        .y
        .par_chunks_mut(len * d_inner)
        .zip(out.last_state.par_chunks_mut(d_inner * d_state))
        .enumerate()
        .flat_map_iter(|(batch, (y, last_state))| {
            let run = |channel| Channel::new(inputs, batch, channel).forward(save);
            let done: Vec<_> = (0..d_inner).into_par_iter().map(run).collect();
            for (channel, part) in done.iter().enumerate() {
                put_column(y, d_inner, channel, &part.y);
                last_state[channel * d_state..(channel + 1) * d_state].copy_from_slice(&part.h);
            }
            done.into_iter().map(|part| part.chunk_states)
        })
        .collect();
    out.chunk_states = parts.concat();
    out
}

/// The `wanted` gradients from `grad_y [B, L, D]`.
fn backward(
    inputs: ScanInputs<'_>,
    grad_y: &[f32],
    chunk_states: &[f32],
    wanted: Wanted,
) -> ScanGrads {
    let spec = inputs.spec;
    let Sizes { batch, len, d_inner, d_state, groups } = inputs.sizes;
    let size = len * d_inner;
    let saved = chunk_states.len() / (batch * d_inner);
    let mut grads = ScanGrads::zeros(inputs, wanted);
    let rows = groups * len * d_state;
    // One batch element after the other, so that sums over the batch have one order and only one
    // element's parts are in memory.
    for batch in 0..batch {
        let run = |channel| {
            let at = (batch * d_inner + channel) * saved;
            Channel::new(inputs, batch, channel).backward(grad_y, &chunk_states[at..at + saved])
        };
        let done: Vec<ChannelGrads> = (0..d_inner).into_par_iter().map(run).collect();
        let tokens = batch * size..(batch + 1) * size;
        for (channel, part) in done.iter().enumerate() {
            // Nothing of a gradient that is not wanted: it is empty.
            for (all, part) in
                [(&mut grads.u, &part.u), (&mut grads.delta, &part.delta), (&mut grads.z, &part.z)]
            {
                if let Some(all) = all.get_mut(tokens.clone()) {
                    put_column(all, d_inner, channel, part);
                }
            }
            add_at(&mut grads.a, channel * part.a.len(), &part.a);
            for (all, part, constant) in
                [(&mut grads.b, &part.b, spec.b_constant), (&mut grads.c, &part.c, spec.c_constant)]
            {
                if constant {
                    add_at(all, channel * part.len(), part);
                } else if let Some(all) = all.get_mut(batch * rows..(batch + 1) * rows) {
                    add_rows(all, inputs.sizes, channel, part);
                }
            }
            add_at(&mut grads.d, channel, &[part.d]);
            add_at(&mut grads.delta_bias, channel, &[part.delta_bias]);
        }
    }
    grads
}

/// Writes a channel's `[L]` into `[L, D]`.
fn put_column(to: &mut [f32], d_inner: usize, channel: usize, from: &[f32]) {
    for (row, from) in to.chunks_exact_mut(d_inner).zip(from) {
        row[channel] = *from;
    }
}

/// Adds a channel's `[L, N]` to its group's rows of `[L, G, N]`.
fn add_rows(to: &mut [f32], sizes: Sizes, channel: usize, from: &[f32]) {
    let Sizes { d_inner, d_state, groups, .. } = sizes;
    let group = channel / (d_inner / groups);
    for (to, from) in to.chunks_exact_mut(groups * d_state).zip(from.chunks_exact(d_state)) {
        add(&mut to[group * d_state..(group + 1) * d_state], from);
    }
}

/// One channel of one batch element.
struct Channel<'a> {
    inputs: ScanInputs<'a>,
    batch: usize,
    channel: usize,
    /// `[N, N]`.
    a: &'a [f32],
}

/// `y [L]`, the final state `[N]`, and the chunk states `[chunks, N]`.
struct ChannelForward {
    y: Vec<f32>,
    h: Vec<f32>,
    chunk_states: Vec<f32>,
}

/// A channel's part of the gradients: `[L]`, but `a [N, N]`, and `b` and `c` `[L, N]` or `[N]`.
struct ChannelGrads {
    u: Vec<f32>,
    delta: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    d: f32,
    z: Vec<f32>,
    delta_bias: f32,
}

/// The inputs of a token to a channel.
struct TokenInputs<'a> {
    at: usize,
    token: usize,
    u: f32,
    delta: f32,
    /// The derivative of `delta` in its input.
    slope: f32,
    b: &'a [f32],
    c: &'a [f32],
}

impl<'a> Channel<'a> {
    fn new(inputs: ScanInputs<'a>, batch: usize, channel: usize) -> Self {
        let size = inputs.sizes.d_state * inputs.sizes.d_state;
        Self { inputs, batch, channel, a: &inputs.a[channel * size..(channel + 1) * size] }
    }

    fn token(&self, step: usize) -> TokenInputs<'a> {
        let ScanInputs { sizes, spec, .. } = self.inputs;
        let Sizes { len, d_inner, d_state, groups, .. } = sizes;
        let token = spec.token(len, step, 0);
        let at = (self.batch * len + token) * d_inner + self.channel;
        let raw = self.inputs.delta[at] + self.inputs.delta_bias.map_or(0.0, |b| b[self.channel]);
        let (delta, slope) =
            if spec.options.delta_softplus { (softplus(raw), sigmoid(raw)) } else { (raw, 1.0) };
        let row = sizes.row(self.batch, token, self.channel / (d_inner / groups));
        let projection = |all: &'a [f32], constant| {
            let first = if constant { self.channel * d_state } else { row };
            &all[first..first + d_state]
        };
        TokenInputs {
            at,
            token,
            u: self.inputs.u[at],
            delta,
            slope,
            b: projection(self.inputs.b, spec.b_constant),
            c: projection(self.inputs.c, spec.c_constant),
        }
    }

    /// One step: factors the token's system, writes the midpoint to `s` and the new state to `h`.
    fn step(&self, token: &TokenInputs<'_>, factors: &mut Factors, h: &mut [f32], s: &mut [f32]) {
        let half_delta = 0.5 * token.delta;
        factors.factor(self.a, half_delta);
        let drive = half_delta * token.u;
        for n in 0..h.len() {
            s[n] = h[n] + drive * token.b[n];
        }
        factors.solve(s);
        for n in 0..h.len() {
            h[n] = 2.0 * s[n] - h[n];
        }
    }

    /// `c·h + d·u`.
    fn skipped(&self, token: &TokenInputs<'_>, h: &[f32]) -> f32 {
        dot(token.c, h) + self.inputs.d.map_or(0.0, |d| d[self.channel] * token.u)
    }

    fn forward(&self, save: bool) -> ChannelForward {
        let Sizes { len, d_state, .. } = self.inputs.sizes;
        let mut factors = Factors::new(d_state);
        let (mut h, mut s) = (vec![0.0; d_state], vec![0.0; d_state]);
        let (mut y, mut chunk_states) = (vec![0.0; len], Vec::new());
        for step in 0..len {
            if save && step % CHUNK == 0 {
                chunk_states.extend_from_slice(&h);
            }
            let token = self.token(step);
            self.step(&token, &mut factors, &mut h, &mut s);
            let gate = self.inputs.z.map_or(1.0, |z| z[token.at] * sigmoid(z[token.at]));
            y[token.token] = self.skipped(&token, &h) * gate;
        }
        ChannelForward { y, h, chunk_states }
    }

    fn backward(&self, grad_y: &[f32], chunk_states: &[f32]) -> ChannelGrads {
        let Sizes { len, d_state, .. } = self.inputs.sizes;
        let spec = self.inputs.spec;
        let rows = |constant: bool| if constant { d_state } else { len * d_state };
        let mut grads = ChannelGrads {
            u: vec![0.0; len],
            delta: vec![0.0; len],
            a: vec![0.0; d_state * d_state],
            b: vec![0.0; rows(spec.b_constant)],
            c: vec![0.0; rows(spec.c_constant)],
            d: 0.0,
            z: vec![0.0; len],
            delta_bias: 0.0,
        };
        let mut factors: Vec<_> = (0..CHUNK).map(|_| Factors::new(d_state)).collect();
        let mut states = vec![0.0; CHUNK * d_state];
        let mut midpoints = vec![0.0; CHUNK * d_state];
        let mut g = vec![0.0; d_state];
        for (chunk, start) in chunk_states.chunks_exact(d_state).enumerate().rev() {
            let first = chunk * CHUNK;
            let steps = CHUNK.min(len - first);
            let mut h = start.to_vec();
            for i in 0..steps {
                let part = i * d_state..(i + 1) * d_state;
                let token = self.token(first + i);
                self.step(&token, &mut factors[i], &mut h, &mut midpoints[part.clone()]);
                states[part].copy_from_slice(&h);
            }
            for i in (0..steps).rev() {
                let part = i * d_state..(i + 1) * d_state;
                let token = self.token(first + i);
                let (h, s) = (&states[part.clone()], &midpoints[part]);
                self.pull(&token, grad_y[token.at], &factors[i], h, s, &mut g, &mut grads);
            }
        }
        grads
    }

    /// One token of the adjoint: replaces the gradient `g` of the state after it by that of the
    /// state before it, `2q − g` with `(I − M)ᵀ·q = g`.
    #[expect(
        clippy::too_many_arguments,
        reason = "a token's part of the adjoint touches all of it"
    )]
    fn pull(
        &self,
        token: &TokenInputs<'_>,
        mut grad: f32,
        factors: &Factors,
        h: &[f32],
        s: &[f32],
        g: &mut [f32],
        grads: &mut ChannelGrads,
    ) {
        let ScanInputs { sizes: Sizes { d_state, .. }, spec, .. } = self.inputs;
        let t = token.token;
        if let Some(z) = self.inputs.z {
            let (z, gate) = (z[token.at], sigmoid(z[token.at]));
            grads.z[t] = grad * self.skipped(token, h) * gate * (1.0 + z * (1.0 - gate));
            grad *= z * gate;
        }
        grads.d += grad * token.u;
        let c_row = if spec.c_constant { 0 } else { t * d_state };
        let b_row = if spec.b_constant { 0 } else { t * d_state };
        for n in 0..d_state {
            grads.c[c_row + n] += grad * h[n];
            g[n] += grad * token.c[n];
        }
        let mut q = g.to_vec();
        factors.solve_transposed(&mut q);
        let drive = token.delta * token.u;
        let mut grad_delta = 0.0;
        for n in 0..d_state {
            grads.b[b_row + n] += drive * q[n];
            let row = n * d_state..(n + 1) * d_state;
            let gain = token.delta * q[n];
            for (grad, s) in grads.a[row.clone()].iter_mut().zip(s) {
                *grad += gain * s;
            }
            grad_delta += q[n] * (dot(&self.a[row], s) + token.b[n] * token.u);
            g[n] = 2.0 * q[n] - g[n];
        }
        let skip = self.inputs.d.map_or(0.0, |d| d[self.channel] * grad);
        grads.u[t] = token.delta * dot(token.b, &q) + skip;
        grads.delta[t] = grad_delta * token.slope;
        grads.delta_bias += grads.delta[t];
    }
}

/// ln(1 + eˣ), without overflow.
fn softplus(x: f32) -> f32 {
    // `max` drops a NaN; the other term keeps it.
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// 1/(1 + e⁻ˣ).
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
