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
use vim_kernels_core::native::slices::add;

/// `y [B, L, D]`, `last_state [B, D, N]`, and the chunk states, in an order of the kernel's own.
pub struct ScanForward {
    pub y: Vec<f32>,
    pub last_state: Vec<f32>,
    pub chunk_states: Vec<f32>,
}

/// Gradients, shaped as the inputs.
pub struct ScanGrads {
    pub u: Vec<f32>,
    pub delta: Vec<f32>,
    pub a: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
    pub d: Option<Vec<f32>>,
    pub z: Option<Vec<f32>>,
    pub delta_bias: Option<Vec<f32>>,
}

/// Runs the scan; saves chunk states if `save`.
pub fn forward(inputs: ScanInputs<'_>, save: bool) -> ScanForward {
    let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
    let strips = inputs.sizes.strips();
    let saved = if save { saved_len(inputs, &strips) } else { 0 };
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

/// Gradients of every input from `grad_y [B, L, D]`.
pub fn backward(inputs: ScanInputs<'_>, grad_y: &[f32], chunk_states: &[f32]) -> ScanGrads {
    let Sizes { batch, len, d_inner, .. } = inputs.sizes;
    let strips = inputs.sizes.strips();
    let saved = saved_len(inputs, &strips);
    let like = |input: &[f32]| vec![0.0; input.len()];
    let (mut u, mut delta) = (like(inputs.u), like(inputs.delta));
    let mut z = inputs.z.map_or(Vec::new(), like);
    let (mut b, mut c) = (like(inputs.b), like(inputs.c));
    // The gradient of a constant B or C is a total over the batch, like A's.
    let per_token = |values, constant| if constant { &mut [][..] } else { values };
    let totals: Vec<Totals> = u
        .par_chunks_mut(len * d_inner)
        .zip(delta.par_chunks_mut(len * d_inner))
        .zip(parts(&mut z, batch))
        .zip(parts(per_token(&mut b, inputs.spec.b_constant), batch))
        .zip(parts(per_token(&mut c, inputs.spec.c_constant), batch))
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
            let run =
                |&(strip, chunk_states)| backward_strip(inputs, batch, strip, grad_y, chunk_states);
            let done: Vec<StripGrads> = jobs.par_iter().map(run).collect();
            let mut totals = Totals::new(inputs);
            for (&strip, part) in strips.iter().zip(&done) {
                copy_columns(&part.u, u, d_inner, strip);
                copy_columns(&part.delta, delta, d_inner, strip);
                if inputs.z.is_some() {
                    copy_columns(&part.z, z, d_inner, strip);
                }
                totals.add_strip(inputs, strip, part, b, c);
            }
            totals
        })
        .collect();
    // In batch order, whatever the number of threads.
    let mut sum = Totals::new(inputs);
    for total in &totals {
        sum.add(total);
    }
    ScanGrads {
        u,
        delta,
        a: sum.a,
        b: if inputs.spec.b_constant { sum.b } else { b },
        c: if inputs.spec.c_constant { sum.c } else { c },
        d: inputs.d.map(|_| sum.d),
        z: inputs.z.map(|_| z),
        delta_bias: inputs.delta_bias.map(|_| sum.delta_bias),
    }
}

/// Gradients that are sums over the batch.
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
    fn new(inputs: ScanInputs<'_>) -> Self {
        let ScanInputs { sizes, spec, .. } = inputs;
        Self {
            a: vec![0.0; inputs.a.len()],
            b: vec![0.0; if spec.b_constant { inputs.b.len() } else { 0 }],
            c: vec![0.0; if spec.c_constant { inputs.c.len() } else { 0 }],
            d: vec![0.0; sizes.d_inner],
            delta_bias: vec![0.0; sizes.d_inner],
        }
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
        add(&mut self.a[states..], &part.a);
        if spec.b_constant {
            add(&mut self.b[states..], &part.b);
        } else {
            add_group(b, &part.b, sizes, strip.group);
        }
        if spec.c_constant {
            add(&mut self.c[states..], &part.c);
        } else {
            add_group(c, &part.c, sizes, strip.group);
        }
        add(&mut self.d[strip.first..], &part.d);
        add(&mut self.delta_bias[strip.first..], &part.delta_bias);
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
fn saved_len(inputs: ScanInputs<'_>, strips: &[Strip]) -> usize {
    strips.iter().map(|&strip| chunk_states_len(inputs.sizes, inputs.spec, strip)).sum()
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
