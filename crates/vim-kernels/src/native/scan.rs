//! The fused scan on a CPU: what goes in, what comes out, and the loops over batch and channels.
//!
//! One task is a strip of up to 64 channels of one batch element; it runs the recurrence over all
//! tokens with eight channels to a vector and the N states in the first-level cache, and returns
//! its part of the outputs, which is then copied into place. The forward pass keeps the states at
//! the starts of chunks of [`CHUNK`](super::inputs::CHUNK) tokens, `⌈L/CHUNK⌉·B·D·N` numbers (twice for a two-way
//! method); the backward pass recomputes the rest a chunk at a time.

use std::ops::Range;

use rayon::prelude::*;

use super::inputs::{ScanInputs, starts_len};
use super::scan_backward::{StripGrads, backward_strip};
use super::scan_forward::{StripForward, forward_strip};
use super::strip::{Sizes, Strip};

/// `y [B, L, D]`, `last_state [B, D, N]`, and the states at chunk starts, in an order of the kernel's own.
pub(crate) struct ScanForward {
    pub(crate) y: Vec<f32>,
    pub(crate) last_state: Vec<f32>,
    pub(crate) starts: Vec<f32>,
}

/// Gradients, shaped as the inputs.
pub(crate) struct ScanGrads {
    pub(crate) u: Vec<f32>,
    pub(crate) delta: Vec<f32>,
    pub(crate) a: Vec<f32>,
    pub(crate) b: Vec<f32>,
    pub(crate) c: Vec<f32>,
    pub(crate) d: Option<Vec<f32>>,
    pub(crate) z: Option<Vec<f32>>,
    pub(crate) delta_bias: Option<Vec<f32>>,
}

/// Runs the scan; keeps chunk starts if `save`.
pub(crate) fn forward(inputs: ScanInputs<'_>, save: bool) -> ScanForward {
    let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
    let jobs = jobs(inputs);
    let saved = if save { jobs.last().map_or(0, |job| job.starts.end) } else { 0 };
    let mut out = ScanForward {
        y: vec![0.0; batch * len * d_inner],
        last_state: vec![0.0; batch * d_inner * d_state],
        starts: vec![0.0; saved],
    };
    for round in jobs.chunks(round_len(inputs.sizes)) {
        let parts: Vec<_> =
            round.par_iter().map(|job| forward_strip(inputs, job.batch, job.strip, save)).collect();
        for (job, StripForward { y, last_state, starts }) in round.iter().zip(parts) {
            copy_columns(&y, batch_of(&mut out.y, job.batch, len * d_inner), d_inner, job.strip);
            let state = (job.batch * d_inner + job.strip.first) * d_state;
            out.last_state[state..state + last_state.len()].copy_from_slice(&last_state);
            if save {
                out.starts[job.starts.clone()].copy_from_slice(&starts);
            }
        }
    }
    out
}

/// Pulls `grad_y [B, L, D]` back to every input.
pub(crate) fn backward(inputs: ScanInputs<'_>, grad_y: &[f32], starts: &[f32]) -> ScanGrads {
    let Sizes { len, d_inner, d_state, .. } = inputs.sizes;
    let like = |input: &[f32]| vec![0.0; input.len()];
    let mut grads = ScanGrads {
        u: like(inputs.u),
        delta: like(inputs.delta),
        a: like(inputs.a),
        b: like(inputs.b),
        c: like(inputs.c),
        d: inputs.d.map(like),
        z: inputs.z.map(like),
        delta_bias: inputs.delta_bias.map(like),
    };
    for round in jobs(inputs).chunks(round_len(inputs.sizes)) {
        let parts: Vec<_> = round
            .par_iter()
            .map(|job| {
                backward_strip(inputs, job.batch, job.strip, grad_y, &starts[job.starts.clone()])
            })
            .collect();
        for (&Job { batch, strip, .. }, part) in round.iter().zip(parts) {
            let StripGrads { u, delta, z, a, b, c, d, delta_bias } = part;
            let block = len * d_inner;
            copy_columns(&u, batch_of(&mut grads.u, batch, block), d_inner, strip);
            copy_columns(&delta, batch_of(&mut grads.delta, batch, block), d_inner, strip);
            if let Some(to) = &mut grads.z {
                copy_columns(&z, batch_of(to, batch, block), d_inner, strip);
            }
            add(&mut grads.a[strip.first * d_state..], &a);
            add_projection(&mut grads.b, &b, inputs.spec.b_constant, inputs.sizes, batch, strip);
            add_projection(&mut grads.c, &c, inputs.spec.c_constant, inputs.sizes, batch, strip);
            if let Some(to) = &mut grads.d {
                add(&mut to[strip.first..], &d);
            }
            if let Some(to) = &mut grads.delta_bias {
                add(&mut to[strip.first..], &delta_bias);
            }
        }
    }
    grads
}

/// One task, and where its saved states lie.
struct Job {
    batch: usize,
    strip: Strip,
    starts: Range<usize>,
}

/// Every task, in the order in which sums over them are taken.
fn jobs(inputs: ScanInputs<'_>) -> Vec<Job> {
    let mut end = 0;
    let strips = inputs.sizes.strips();
    (0..inputs.sizes.batch)
        .flat_map(|batch| strips.iter().map(move |&strip| (batch, strip)))
        .map(|(batch, strip)| {
            let start = end;
            end += starts_len(inputs.sizes, inputs.spec, strip);
            Job { batch, strip, starts: start..end }
        })
        .collect()
}

/// Tasks whose results are held at once: enough to keep every thread busy. The results are merged
/// in the order of the tasks, so the number of threads does not change a bit of them.
fn round_len(sizes: Sizes) -> usize {
    (4 * rayon::current_num_threads()).max(sizes.strips().len())
}

fn batch_of(all: &mut [f32], batch: usize, block: usize) -> &mut [f32] {
    &mut all[batch * block..(batch + 1) * block]
}

/// Adds a strip's gradient of B or C: `[L, N]` of its group, or `[channels, N]` where constant.
fn add_projection(
    to: &mut [f32],
    from: &[f32],
    constant: bool,
    sizes: Sizes,
    batch: usize,
    strip: Strip,
) {
    if constant {
        add(&mut to[strip.first * sizes.d_state..], from);
        return;
    }
    for (token, row) in from.chunks_exact(sizes.d_state).enumerate() {
        let at = sizes.row(batch, token, strip.group);
        add(&mut to[at..at + sizes.d_state], row);
    }
}

fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// Copies a strip's `[L, channels]` into its columns of `[L, D]`.
fn copy_columns(from: &[f32], to: &mut [f32], d_inner: usize, strip: Strip) {
    for (from, to) in from.chunks_exact(strip.channels).zip(to.chunks_exact_mut(d_inner)) {
        to[strip.first..strip.first + strip.channels].copy_from_slice(from);
    }
}
