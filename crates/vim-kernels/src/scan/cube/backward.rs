//! The backward scan: chunks from the last to the first, each recomputed from the state that the
//! forward scan kept at its start.
//!
//! What is summed over channels (the gradients of B and C) or over the batch (those of A, D and
//! the delta bias) leaves as partial sums, which [`super::reduce`] adds in a fixed order: the same bits
//! each time.

#![expect(clippy::manual_div_ceil, reason = "a kernel has the operators, not the method")]

use cubecl::prelude::*;

use super::backward_step::{Adjoint, kept_at, retreat};
use super::channel_sums::{gather, scatter, sums_len};
use super::chunk_states::{abreast_of, read_start, take_start};
use super::coords::{
    Place, Sizes, carried, fetch_rows, is_state, keep, moved, order, part_index, place,
    projections, put_rows, recall, row_index, weight,
};
use super::forward::{read_chunk, token_index};
use super::forward_step::{keep_slope_state, readvance, sigmoid, slope_rates_len, step_size};
use super::plan::{CHUNK, ScanPlan};

/// Runs one pass of the backward scan.
///
/// `carry [segments, B, N, D]` is what flows into the segments from behind. Earlier passes leave
/// their sums in the gradients, and what does not fit there in `rest_* [B, L, D]`. `part_b`, `part_c` are `[ways·strips, B, L, G, N]`, or `[ways·segments·B, N, D]` where constant; `part_a` the
/// latter; `part_d`, `part_bias` are `[segments·B, D]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn scan_backward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[FB],
    c: &[FC],
    d: &[f32],
    z: &[F],
    delta_bias: &[f32],
    grad_y: &[F],
    starts: &[Vector<S, V>],
    carry: &[f32],
    grad_u: &mut [F],
    grad_delta: &mut [F],
    grad_z: &mut [F],
    rest_u: &mut [F],
    rest_delta: &mut [F],
    rest_z: &mut [F],
    part_b: &mut [f32],
    part_c: &mut [f32],
    part_a: &mut [f32],
    part_d: &mut [f32],
    part_bias: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
    #[define(S)] _s: ElemType,
) {
    let at = place(sizes, plan);
    let mut slopes = Array::<f32>::new(comptime!(plan.states * slope_rates_len(plan)));
    let order = order(plan);
    let mut shared = projections::<FB, FC>(b, c, order, &at, sizes, plan);
    let size!(W) = comptime!(plan.beside());
    let mut before = Shared::<[Vector<f32, W>]>::new_slice(comptime!(
        CHUNK * plan.states * plan.units / plan.beside()
    ));
    let mut sums = Shared::<[f32]>::new_slice(comptime!(sums_len(plan)));
    // The tokens' step sizes, which going back needs again.
    let mut steps = Shared::<[f32]>::new_slice(comptime!(CHUNK * plan.units));
    let unit = UNIT_POS_X as usize;
    let skip = if comptime!(plan.has_d && plan.last) { d[at.weights] } else { 0.0f32.runtime() };
    let bias = if comptime!(plan.has_bias) { delta_bias[at.weights] } else { 0.0f32.runtime() };
    let mut adjoint = Adjoint {
        h: Array::<f32>::new(plan.states),
        carry: Array::<f32>::new(plan.states),
        a: Array::<f32>::new(plan.states),
        b: Array::<f32>::new(plan.states),
        c: Array::<f32>::new(plan.states),
    };
    #[unroll]
    for n in 0..plan.states {
        keep_slope_state(&mut slopes, weight::<f32>(a, n ^ order, &at, sizes, plan), n, plan);
        // Units beyond the group's channels must add nothing to the sums.
        adjoint.carry[n] = select(at.active, carried(carry, n ^ order, &at, sizes, plan), 0.0f32);
        adjoint.a[n] = 0.0f32;
        adjoint.b[n] = 0.0f32;
        adjoint.c[n] = 0.0f32;
    }
    let mut total_d = 0.0f32;
    let mut total_bias = 0.0f32;
    let chunks = (at.end - at.begin + comptime!(CHUNK - 1)) / CHUNK;
    // What a chunk begins with is read while the one after it is finished: its first states, u and delta, B and C.
    let last = at.begin + (chunks - 1) * CHUNK;
    let mut next_b = Array::<FB>::new(comptime!(moved(CHUNK, plan)));
    let mut next_c = Array::<FC>::new(comptime!(moved(CHUNK, plan)));
    if comptime!(!plan.b_constant) {
        fetch_rows::<FB>(&mut next_b, b, &sizes.b, last, CHUNK, &at, sizes, plan);
    }
    if comptime!(!plan.c_constant) {
        fetch_rows::<FC>(&mut next_c, c, &sizes.c, last, CHUNK, &at, sizes, plan);
    }
    let mut now_u = Array::<F>::new(CHUNK);
    let mut now_delta = Array::<F>::new(CHUNK);
    read_chunk::<F>(&mut now_u, u, at.batch, &sizes.u, last, &at, sizes, plan);
    read_chunk::<F>(&mut now_delta, delta, at.batch, &sizes.delta, last, &at, sizes, plan);
    let mut next_start = Array::<Vector<S, V>>::new(comptime!(plan.states / plan.abreast()));
    read_start::<S, V>(&mut next_start, starts, last, order, &at, sizes, plan);
    // The states after a chunk: those that the next chunk, which is finished by then, began with.
    let mut after = Array::<f32>::new(plan.states);
    for back in 0..chunks {
        let begin = at.begin + (chunks - 1 - back) * CHUNK;
        let begin_before = max(begin, at.begin + CHUNK) - CHUNK;
        let tokens = min(at.end - begin, CHUNK);
        sync_cube();
        if comptime!(!plan.b_constant) {
            put_rows::<FB>(&mut shared.b, &next_b, CHUNK, plan);
            fetch_rows::<FB>(&mut next_b, b, &sizes.b, begin_before, CHUNK, &at, sizes, plan);
        }
        if comptime!(!plan.c_constant) {
            put_rows::<FC>(&mut shared.c, &next_c, CHUNK, plan);
            fetch_rows::<FC>(&mut next_c, c, &sizes.c, begin_before, CHUNK, &at, sizes, plan);
        }
        sync_cube();
        take_start::<S, V>(&mut adjoint.h, &next_start, plan);
        let mut next = Array::<F>::new(comptime!(4 * plan.ahead()));
        #[unroll]
        for k in 0..comptime!(plan.ahead()) {
            let step = begin + comptime!(CHUNK - 1 - k);
            read_token::<F>(&mut next, k, u, delta, grad_y, z, step, &at, sizes, plan);
        }
        // Forward again, keeping the state before every token. The last token is left out, except in the segment's last chunk.
        // Steps past the end take no time and change nothing, here and backwards.
        #[unroll]
        for j in 0..CHUNK {
            keep_before::<W>(&mut before, &adjoint.h, j, plan);
            let raw = f32::cast_from(now_delta[j]);
            let size = select(j < tokens, step_size(raw, bias, plan), 0.0f32);
            steps[j * plan.units + unit] = size;
            let u = f32::cast_from(now_u[j]);
            if comptime!(j + 1 < CHUNK) || back == 0 {
                readvance(&mut adjoint.h, &slopes, &shared, j * plan.states, size, u, plan);
            } else {
                #[unroll]
                for n in 0..plan.states {
                    adjoint.h[n] = after[n];
                }
            }
        }
        // Backward, a token's inputs read one ahead of their use, and where there is room two tokens at a time, so that what
        // belongs to a token alone and the sums over channels overlap with the other's states.
        for turn in 0..comptime!(CHUNK / plan.together()) {
            #[unroll]
            for k in 0..comptime!(plan.together()) {
                let j = comptime!(CHUNK - 1 - k) - turn * comptime!(plan.together());
                let there = j < tokens;
                let slot = comptime!(4 * (k % plan.ahead()));
                let u_now = f32::cast_from(next[slot]);
                let raw = f32::cast_from(next[comptime!(slot + 1)]);
                let dy = f32::cast_from(next[comptime!(slot + 2)]);
                let z_now = f32::cast_from(next[comptime!(slot + 3)]);
                let here = token_index(min(begin + j, at.end - 1), &at, sizes, plan);
                let step = begin + max(j, comptime!(plan.ahead())) - comptime!(plan.ahead());
                read_token::<F>(
                    &mut next,
                    k % plan.ahead(),
                    u,
                    delta,
                    grad_y,
                    z,
                    step,
                    &at,
                    sizes,
                    plan,
                );
                let size = steps[j * plan.units + unit];
                let logistic =
                    if comptime!(plan.has_z) { sigmoid(z_now, plan.ptx) } else { 1.0f32.runtime() };
                let gate = if comptime!(plan.has_z) { z_now * logistic } else { 1.0f32.runtime() };
                let dy = select(at.active && there, dy, 0.0f32);
                let into = dy * gate;
                let into_scan = if comptime!(plan.halved) { into * 0.5f32 } else { into };
                let grads = retreat::<W>(
                    &mut adjoint,
                    &slopes,
                    &shared,
                    &before,
                    j,
                    j * plan.states,
                    size,
                    u_now,
                    into_scan,
                    plan,
                );
                if comptime!(!(plan.b_constant && plan.c_constant)) {
                    gather(&mut sums, &adjoint, j, plan);
                }
                let mut du = grads.u + skip * into;
                let mut ddelta = grads.delta;
                let mut pre = if comptime!(plan.halved) { grads.y * 0.5f32 } else { grads.y };
                pre += skip * u_now;
                let mut dz = dy * logistic * (1.0f32 + z_now * (1.0f32 - logistic)) * pre;
                if comptime!(!plan.first) {
                    du += recall::<F>(grad_u, rest_u, here, plan);
                    ddelta += recall::<F>(grad_delta, rest_delta, here, plan);
                    if comptime!(plan.has_z) {
                        dz += recall::<F>(grad_z, rest_z, here, plan);
                    }
                }
                if comptime!(plan.last) {
                    total_d += into * u_now;
                    if comptime!(plan.softplus) {
                        ddelta *= sigmoid(raw + bias, plan.ptx);
                    }
                    total_bias += select(at.active && there, ddelta, 0.0f32);
                }
                if at.active && there {
                    if comptime!(plan.last) {
                        grad_u[here] = F::cast_from(du);
                        grad_delta[here] = F::cast_from(ddelta);
                        if comptime!(plan.has_z) {
                            grad_z[here] = F::cast_from(dz);
                        }
                    } else {
                        keep::<F>(grad_u, rest_u, here, du, plan);
                        keep::<F>(grad_delta, rest_delta, here, ddelta, plan);
                        if comptime!(plan.has_z) {
                            keep::<F>(grad_z, rest_z, here, dz, plan);
                        }
                    }
                }
            }
        }
        read_chunk::<F>(&mut now_u, u, at.batch, &sizes.u, begin_before, &at, sizes, plan);
        let raws = &mut now_delta;
        read_chunk::<F>(raws, delta, at.batch, &sizes.delta, begin_before, &at, sizes, plan);
        #[unroll]
        for n in 0..plan.states {
            after[n] = adjoint.h[n];
        }
        read_start::<S, V>(&mut next_start, starts, begin_before, order, &at, sizes, plan);
        if comptime!(!(plan.b_constant && plan.c_constant)) {
            sync_cube();
            scatter(&sums, part_b, part_c, begin, tokens, &at, sizes, plan);
        }
    }
    let segments = (sizes.len as usize + sizes.segment as usize - 1) / sizes.segment as usize;
    let slot = sizes.way as usize * segments + at.segment;
    if at.active {
        #[unroll]
        for n in 0..plan.states {
            if is_state(n, sizes, plan) {
                let index = part_index(slot, n ^ order, &at, sizes);
                part_a[index] = adjoint.a[n];
                if comptime!(plan.b_constant) {
                    part_b[index] = adjoint.b[n];
                }
                if comptime!(plan.c_constant) {
                    part_c[index] = adjoint.c[n];
                }
            }
        }
        if comptime!(plan.last) {
            let batch = sizes.batch as usize;
            let row = at.segment * batch + at.element * (batch / sizes.each as usize);
            let index = row * sizes.d_inner as usize + at.weights;
            part_d[index] = total_d;
            part_bias[index] = total_bias;
        }
    }
}

/// Reads what the backward scan needs of the unit's channel of a token: u, delta, the output's gradient, z; the
/// `place`-th four of `to`.
#[cube]
fn read_token<F: Float>(
    to: &mut Array<F>,
    #[comptime] place: usize,
    u: &[F],
    delta: &[F],
    grad_y: &[F],
    z: &[F],
    step: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let step = min(step, at.end - 1);
    to[comptime!(4 * place)] = u[row_index(step, at.batch, &sizes.u, at, sizes, plan)];
    to[comptime!(4 * place + 1)] = delta[row_index(step, at.batch, &sizes.delta, at, sizes, plan)];
    to[comptime!(4 * place + 2)] =
        grad_y[row_index(step, at.element, &sizes.grad_y, at, sizes, plan)];
    if comptime!(plan.has_z) {
        to[comptime!(4 * place + 3)] = z[row_index(step, at.element, &sizes.z, at, sizes, plan)];
    }
}

/// Keeps the states before the `j`-th token of a chunk.
#[cube]
fn keep_before<W: Size>(
    before: &mut Shared<[Vector<f32, W>]>,
    h: &Array<f32>,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.beside());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        before[kept_at(j, group, plan)] = abreast_of::<W>(h, group, width);
    }
}
