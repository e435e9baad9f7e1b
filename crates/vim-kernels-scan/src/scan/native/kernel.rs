//! The fused scan on a CPU: inputs, outputs, and the loops over batch and channels.
//!
//! One task is a strip of up to 64 channels of one batch element; it runs the recurrence over all
//! tokens with sixteen channels to a vector and the N states in the first-level cache, and returns
//! its part of the outputs, which is then copied into place. The forward pass saves the states at
//! the starts of chunks of [`CHUNK`](super::inputs::CHUNK) tokens, `⌈L/CHUNK⌉·B·D·N` numbers (twice
//! for a two-way method); the backward pass recomputes the rest a chunk at a time.

use rayon::prelude::*;

use super::backward::{StripGrads, backward_strip};
use super::forward::{StripForward, forward_strip};
use super::inputs::{ScanInputs, Sizes, Strip, chunk_states_len};
use crate::scan::ScanSpec;
use vim_kernels_core::native::slices::{add, add_at};

/// `y [B, L, D]`, `last_state [B, D, N]`, and the chunk states, in an order of the kernel's own.
pub struct ScanForward {
    pub y: Vec<f32>,
    pub last_state: Vec<f32>,
    pub chunk_states: Vec<f32>,
}

/// Gradients, shaped as the inputs; empty of an input that is absent, or whose gradient is not
/// wanted.
pub struct ScanGrads {
    pub u: Vec<f32>,
    pub delta: Vec<f32>,
    pub a: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
    pub d: Vec<f32>,
    pub z: Vec<f32>,
    pub delta_bias: Vec<f32>,
}

impl ScanGrads {
    /// In the order of the operation's inputs.
    pub fn into_array(self) -> [Vec<f32>; 8] {
        let Self { u, delta, a, b, c, d, z, delta_bias } = self;
        [u, delta, a, b, c, d, z, delta_bias]
    }

    /// Zeros for the gradients that are `wanted` of inputs that are there.
    pub(crate) fn zeros(inputs: ScanInputs<'_>, wanted: Wanted) -> Self {
        let ScanInputs { u, delta, a, b, c, d, z, delta_bias, .. } = inputs;
        let all = [Some(u), Some(delta), Some(a), Some(b), Some(c), d, z, delta_bias];
        let mut zeros = all.into_iter().zip(wanted).map(|(input, wanted)| {
            vec![0.0; if wanted { input.map_or(0, <[f32]>::len) } else { 0 }]
        });
        let mut next = || zeros.next().expect("invariant: eight inputs");
        Self {
            u: next(),
            delta: next(),
            a: next(),
            b: next(),
            c: next(),
            d: next(),
            z: next(),
            delta_bias: next(),
        }
    }
}

/// Which gradients are wanted, in the order of the operation's inputs.
pub(crate) type Wanted = [bool; 8];

/// Runs the scan; saves chunk states if `save`.
pub fn forward(inputs: ScanInputs<'_>, save: bool) -> ScanForward {
    let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
    let strips = inputs.sizes.strips();
    let saved = if save { saved_len(inputs.sizes, inputs.spec, &strips) } else { 0 };
    let mut out = ScanForward {
        y: vec![0.0; batch * len * d_inner],
        last_state: vec![0.0; batch * d_inner * d_state],
        chunk_states: vec![0.0; batch * saved],
    };
    out.y
        .par_chunks_mut(len * d_inner)
        .zip(out.last_state.par_chunks_mut(d_inner * d_state))
        .zip(parts(&mut out.chunk_states, batch))
        .enumerate()
        .for_each(|(batch, ((y, last_state), mut chunk_states))| {
            let run = |&strip| forward_strip(inputs, batch, strip, save);
            let done: Vec<StripForward> = strips.par_iter().map(run).collect();
            for (&strip, part) in strips.iter().zip(done) {
                copy_columns(&part.y, y, d_inner, strip);
                let states = strip.first * d_state..(strip.first + strip.channels) * d_state;
                last_state[states].copy_from_slice(&part.last_state);
                let (mine, rest) = chunk_states.split_at_mut(part.chunk_states.len());
                mine.copy_from_slice(&part.chunk_states);
                chunk_states = rest;
            }
        });
    out
}

/// The `wanted` gradients from `grad_y [B, L, D]`.
pub fn backward(
    inputs: ScanInputs<'_>,
    grad_y: &[f32],
    chunk_states: &[f32],
    wanted: Wanted,
) -> ScanGrads {
    let Sizes { batch, d_inner, .. } = inputs.sizes;
    let strips = inputs.sizes.strips();
    let saved = saved_len(inputs.sizes, inputs.spec, &strips);
    let mut grads = ScanGrads::zeros(inputs, wanted);
    let ScanGrads { u, delta, b, c, z, .. } = &mut grads;
    // The gradient of a constant B or C is a total over the batch, like A's.
    let per_token = |values, constant| if constant { &mut [][..] } else { values };
    let totals: Vec<Totals> = parts(u, batch)
        .into_par_iter()
        .zip(parts(delta, batch))
        .zip(parts(z, batch))
        .zip(parts(per_token(b, inputs.spec.b_constant), batch))
        .zip(parts(per_token(c, inputs.spec.c_constant), batch))
        .enumerate()
        .map(|(batch, ((((u, delta), z), b), c))| {
            let mut offset = batch * saved;
            let jobs: Vec<_> = strips
                .iter()
                .map(|&strip| {
                    let start = offset;
                    offset += chunk_states_len(inputs.sizes, inputs.spec, strip);
                    (strip, &chunk_states[start..offset])
                })
                .collect();
            let run = |&(strip, chunk_states)| {
                backward_strip(inputs, batch, strip, grad_y, chunk_states, wanted)
            };
            let done: Vec<StripGrads> = jobs.par_iter().map(run).collect();
            let mut totals = Totals::new(inputs, wanted);
            for (&strip, part) in strips.iter().zip(&done) {
                copy_columns(&part.u, u, d_inner, strip);
                copy_columns(&part.delta, delta, d_inner, strip);
                copy_columns(&part.z, z, d_inner, strip);
                totals.add_strip(inputs, strip, part, b, c);
            }
            totals
        })
        .collect();
    // In batch order, whatever the number of threads.
    let mut sum = Totals::new(inputs, wanted);
    for total in &totals {
        sum.add(total);
    }
    let Totals { a, b, c, d, delta_bias } = sum;
    let grads = if inputs.spec.b_constant { ScanGrads { b, ..grads } } else { grads };
    let grads = if inputs.spec.c_constant { ScanGrads { c, ..grads } } else { grads };
    ScanGrads { a, d, delta_bias, ..grads }
}

/// Gradients that are sums over the batch; empty of those that are not wanted.
struct Totals {
    a: Vec<f32>,
    /// Empty unless B is constant.
    b: Vec<f32>,
    /// Empty unless C is constant.
    c: Vec<f32>,
    d: Vec<f32>,
    delta_bias: Vec<f32>,
}

impl Totals {
    fn new(inputs: ScanInputs<'_>, [_, _, a, b, c, d, _, delta_bias]: Wanted) -> Self {
        let ScanInputs { spec, .. } = inputs;
        let wanted =
            [false, false, a, b && spec.b_constant, c && spec.c_constant, d, false, delta_bias];
        let ScanGrads { a, b, c, d, delta_bias, .. } = ScanGrads::zeros(inputs, wanted);
        Self { a, b, c, d, delta_bias }
    }

    /// Adds a strip's gradients; those of B and C go to `b` and `c [L, G, N]` if they vary.
    fn add_strip(
        &mut self,
        inputs: ScanInputs<'_>,
        strip: Strip,
        part: &StripGrads,
        b: &mut [f32],
        c: &mut [f32],
    ) {
        let ScanInputs { sizes, spec, .. } = inputs;
        let states = strip.first * sizes.d_state;
        add_at(&mut self.a, states, &part.a);
        if spec.b_constant {
            add_at(&mut self.b, states, &part.b);
        } else {
            add_group(b, &part.b, sizes, strip.group);
        }
        if spec.c_constant {
            add_at(&mut self.c, states, &part.c);
        } else {
            add_group(c, &part.c, sizes, strip.group);
        }
        add_at(&mut self.d, strip.first, &part.d);
        add_at(&mut self.delta_bias, strip.first, &part.delta_bias);
    }

    fn add(&mut self, other: &Self) {
        add(&mut self.a, &other.a);
        add(&mut self.b, &other.b);
        add(&mut self.c, &other.c);
        add(&mut self.d, &other.d);
        add(&mut self.delta_bias, &other.delta_bias);
    }
}

/// Floats that a batch element saves.
pub(crate) fn saved_len(sizes: Sizes, spec: ScanSpec, strips: &[Strip]) -> usize {
    strips.iter().map(|&strip| chunk_states_len(sizes, spec, strip)).sum()
}

/// `values` in `count` equal parts, or `count` empty ones if it is empty.
fn parts(values: &mut [f32], count: usize) -> Vec<&mut [f32]> {
    if values.is_empty() {
        return (0..count).map(|_| &mut [][..]).collect();
    }
    let len = values.len() / count;
    values.chunks_mut(len).collect()
}

/// Adds `[L, N]` of a group to `[L, G, N]`.
fn add_group(to: &mut [f32], from: &[f32], sizes: Sizes, group: usize) {
    let Sizes { groups, d_state, .. } = sizes;
    for (to, from) in to.chunks_exact_mut(groups * d_state).zip(from.chunks_exact(d_state)) {
        add(&mut to[group * d_state..(group + 1) * d_state], from);
    }
}

/// Copies a strip's `[L, channels]` into its columns of `[L, D]`.
fn copy_columns(from: &[f32], to: &mut [f32], d_inner: usize, strip: Strip) {
    for (from, to) in from.chunks_exact(strip.channels).zip(to.chunks_exact_mut(d_inner)) {
        to[strip.first..strip.first + strip.channels].copy_from_slice(from);
    }
}
