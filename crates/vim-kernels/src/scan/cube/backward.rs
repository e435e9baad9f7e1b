//! The backward scan: chunks from the last to the first, each recomputed from the state that the
//! forward scan saved at its start.
//!
//! Sums over channels (the gradients of B and C) and over the batch (those of A, D and the delta
//! bias) are written as partial sums, which [`super::reduce`] adds in a fixed order: the same bits
//! each time.

#![expect(clippy::manual_div_ceil, reason = "a kernel has the operators, not the method")]

use cubecl::prelude::*;

use super::backward_step::{Adjoint, backward_step, saved_index};
use super::channel_sums::{reduce_over_channels, sums_len, write_bc_partials};
use super::chunk_states::{load_chunk_state, state_vector, unpack_chunk_state};
use super::coords::{
    Sizes, UnitCoords, carried_state, elems_per_unit, is_state, load_split, load_tile_regs, order,
    projections, row_index, state_weight, store_split, store_tile_shared, unit_coords,
    weight_grad_index,
};
use super::forward::{read_chunk, token_index};
use super::forward_step::{
    backward_state_terms_len, recompute_step, sigmoid, step_size, store_backward_state_terms,
};
use super::plan::{CHUNK, ScanPlan};

/// Runs one pass of the backward scan.
///
/// `carry [segments, B, N, D]` is the gradient that flows into each segment from the next. Earlier
/// passes leave their sums in the gradients, and the low bits in `rest_* [B, L, D]`. `part_b`,
/// `part_c` are `[sweeps·strips, B, L, G, N]`, or `[sweeps·segments·B, N, D]` where constant, as is
/// `part_a`; `part_d`, `part_bias` are `[segments·B, D]`.
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
    chunk_states: &[Vector<S, V>],
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
    let pos = unit_coords(sizes, plan);
    let mut slopes = Array::<f32>::new(comptime!(plan.states * backward_state_terms_len(plan)));
    let order = order(plan);
    let mut shared = projections::<FB, FC>(b, c, order, &pos, sizes, plan);
    let size!(W) = comptime!(plan.shared_vector_width());
    let mut before = Shared::<[Vector<f32, W>]>::new_slice(comptime!(
        CHUNK * plan.states * plan.units / plan.shared_vector_width()
    ));
    let mut sums = Shared::<[f32]>::new_slice(comptime!(sums_len(plan)));
    // The tokens' step sizes, used again by the backward steps.
    let mut steps = Shared::<[f32]>::new_slice(comptime!(CHUNK * plan.units));
    let unit = UNIT_POS_X as usize;
    let skip = if comptime!(plan.has_d && plan.last) { d[pos.weights] } else { 0.0f32.runtime() };
    let bias = if comptime!(plan.has_bias) { delta_bias[pos.weights] } else { 0.0f32.runtime() };
    let mut adjoint = Adjoint {
        h: Array::<f32>::new(plan.states),
        carry: Array::<f32>::new(plan.states),
        a: Array::<f32>::new(plan.states),
        b: Array::<f32>::new(plan.states),
        c: Array::<f32>::new(plan.states),
    };
    #[unroll]
    for n in 0..plan.states {
        store_backward_state_terms(
            &mut slopes,
            state_weight::<f32>(a, n ^ order, &pos, sizes, plan),
            n,
            plan,
        );
        // Units beyond the group's channels must add nothing to the sums.
        adjoint.carry[n] =
            select(pos.active, carried_state(carry, n ^ order, &pos, sizes, plan), 0.0f32);
        adjoint.a[n] = 0.0f32;
        adjoint.b[n] = 0.0f32;
        adjoint.c[n] = 0.0f32;
    }
    let mut total_d = 0.0f32;
    let mut total_bias = 0.0f32;
    let chunks = (pos.end - pos.begin + comptime!(CHUNK - 1)) / CHUNK;
    // The inputs of a chunk are loaded while the chunk after it is processed: its first states, u
    // and delta, B and C.
    let last = pos.begin + (chunks - 1) * CHUNK;
    let mut next_b = Array::<FB>::new(comptime!(elems_per_unit(CHUNK, plan)));
    let mut next_c = Array::<FC>::new(comptime!(elems_per_unit(CHUNK, plan)));
    if comptime!(!plan.b_constant) {
        load_tile_regs::<FB>(&mut next_b, b, &sizes.b, last, CHUNK, &pos, sizes, plan);
    }
    if comptime!(!plan.c_constant) {
        load_tile_regs::<FC>(&mut next_c, c, &sizes.c, last, CHUNK, &pos, sizes, plan);
    }
    let mut now_u = Array::<F>::new(CHUNK);
    let mut now_delta = Array::<F>::new(CHUNK);
    read_chunk::<F>(&mut now_u, u, pos.batch, &sizes.u, last, &pos, sizes, plan);
    read_chunk::<F>(&mut now_delta, delta, pos.batch, &sizes.delta, last, &pos, sizes, plan);
    let mut next_chunk_state =
        Array::<Vector<S, V>>::new(comptime!(plan.states / plan.state_vector_width()));
    load_chunk_state::<S, V>(&mut next_chunk_state, chunk_states, last, order, &pos, sizes, plan);
    // The states after a chunk: the first states of the next chunk, which has been processed by
    // then.
    let mut after = Array::<f32>::new(plan.states);
    for from_end in 0..chunks {
        let begin = pos.begin + (chunks - 1 - from_end) * CHUNK;
        let begin_before = max(begin, pos.begin + CHUNK) - CHUNK;
        let tokens = min(pos.end - begin, CHUNK);
        sync_cube();
        if comptime!(!plan.b_constant) {
            store_tile_shared::<FB>(&mut shared.b, &next_b, CHUNK, plan);
            load_tile_regs::<FB>(&mut next_b, b, &sizes.b, begin_before, CHUNK, &pos, sizes, plan);
        }
        if comptime!(!plan.c_constant) {
            store_tile_shared::<FC>(&mut shared.c, &next_c, CHUNK, plan);
            load_tile_regs::<FC>(&mut next_c, c, &sizes.c, begin_before, CHUNK, &pos, sizes, plan);
        }
        sync_cube();
        unpack_chunk_state::<S, V>(&mut adjoint.h, &next_chunk_state, plan);
        let mut next = Array::<F>::new(comptime!(4 * plan.read_ahead()));
        #[unroll]
        for k in 0..comptime!(plan.read_ahead()) {
            let step = begin + comptime!(CHUNK - 1 - k);
            read_token::<F>(&mut next, k, u, delta, grad_y, z, step, &pos, sizes, plan);
        }
        // Recomputes forward, storing the state before every token. The last token is skipped,
        // except in the segment's last chunk. Steps past the end have size zero and change nothing,
        // here and backwards.
        #[unroll]
        for j in 0..CHUNK {
            store_before::<W>(&mut before, &adjoint.h, j, plan);
            let raw = f32::cast_from(now_delta[j]);
            let size = select(j < tokens, step_size(raw, bias, plan), 0.0f32);
            steps[j * plan.units + unit] = size;
            let u = f32::cast_from(now_u[j]);
            if comptime!(j + 1 < CHUNK) || from_end == 0 {
                recompute_step(&mut adjoint.h, &slopes, &shared, j * plan.states, size, u, plan);
            } else {
                #[unroll]
                for n in 0..plan.states {
                    adjoint.h[n] = after[n];
                }
            }
        }
        // Backward; a token's inputs are loaded one ahead of their use. Where registers allow, two
        // tokens at a time, so that the work per token and the sums over channels overlap with the
        // other token's states.
        for turn in 0..comptime!(CHUNK / plan.tokens_per_turn()) {
            #[unroll]
            for k in 0..comptime!(plan.tokens_per_turn()) {
                let j = comptime!(CHUNK - 1 - k) - turn * comptime!(plan.tokens_per_turn());
                let in_bounds = j < tokens;
                let slot = comptime!(4 * (k % plan.read_ahead()));
                let u_now = f32::cast_from(next[slot]);
                let raw = f32::cast_from(next[comptime!(slot + 1)]);
                let dy = f32::cast_from(next[comptime!(slot + 2)]);
                let z_now = f32::cast_from(next[comptime!(slot + 3)]);
                let here = token_index(min(begin + j, pos.end - 1), &pos, sizes, plan);
                let step =
                    begin + max(j, comptime!(plan.read_ahead())) - comptime!(plan.read_ahead());
                read_token::<F>(
                    &mut next,
                    k % plan.read_ahead(),
                    u,
                    delta,
                    grad_y,
                    z,
                    step,
                    &pos,
                    sizes,
                    plan,
                );
                let size = steps[j * plan.units + unit];
                let logistic =
                    if comptime!(plan.has_z) { sigmoid(z_now, plan.ptx) } else { 1.0f32.runtime() };
                let gate = if comptime!(plan.has_z) { z_now * logistic } else { 1.0f32.runtime() };
                let dy = select(pos.active && in_bounds, dy, 0.0f32);
                let into = dy * gate;
                let into_scan = if comptime!(plan.halved) { into * 0.5f32 } else { into };
                let grads = backward_step::<W>(
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
                    reduce_over_channels(&mut sums, &adjoint, j, plan);
                }
                let mut du = grads.u + skip * into;
                let mut ddelta = grads.delta;
                let mut pre = if comptime!(plan.halved) { grads.y * 0.5f32 } else { grads.y };
                pre += skip * u_now;
                let mut dz = dy * logistic * (1.0f32 + z_now * (1.0f32 - logistic)) * pre;
                if comptime!(!plan.first) {
                    du += load_split::<F>(grad_u, rest_u, here, plan);
                    ddelta += load_split::<F>(grad_delta, rest_delta, here, plan);
                    if comptime!(plan.has_z) {
                        dz += load_split::<F>(grad_z, rest_z, here, plan);
                    }
                }
                if comptime!(plan.last) {
                    total_d += into * u_now;
                    if comptime!(plan.softplus) {
                        ddelta *= sigmoid(raw + bias, plan.ptx);
                    }
                    total_bias += select(pos.active && in_bounds, ddelta, 0.0f32);
                }
                if pos.active && in_bounds {
                    if comptime!(plan.last) {
                        grad_u[here] = F::cast_from(du);
                        grad_delta[here] = F::cast_from(ddelta);
                        if comptime!(plan.has_z) {
                            grad_z[here] = F::cast_from(dz);
                        }
                    } else {
                        store_split::<F>(grad_u, rest_u, here, du, plan);
                        store_split::<F>(grad_delta, rest_delta, here, ddelta, plan);
                        if comptime!(plan.has_z) {
                            store_split::<F>(grad_z, rest_z, here, dz, plan);
                        }
                    }
                }
            }
        }
        read_chunk::<F>(&mut now_u, u, pos.batch, &sizes.u, begin_before, &pos, sizes, plan);
        let raws = &mut now_delta;
        read_chunk::<F>(raws, delta, pos.batch, &sizes.delta, begin_before, &pos, sizes, plan);
        #[unroll]
        for n in 0..plan.states {
            after[n] = adjoint.h[n];
        }
        load_chunk_state::<S, V>(
            &mut next_chunk_state,
            chunk_states,
            begin_before,
            order,
            &pos,
            sizes,
            plan,
        );
        if comptime!(!(plan.b_constant && plan.c_constant)) {
            sync_cube();
            write_bc_partials(&sums, part_b, part_c, begin, tokens, &pos, sizes, plan);
        }
    }
    let segments = (sizes.len as usize + sizes.segment as usize - 1) / sizes.segment as usize;
    let slot = sizes.sweep as usize * segments + pos.segment;
    if pos.active {
        #[unroll]
        for n in 0..plan.states {
            if is_state(n, sizes, plan) {
                let index = weight_grad_index(slot, n ^ order, &pos, sizes);
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
            let row = pos.segment * batch + pos.element * (batch / sizes.per_direction as usize);
            let index = row * sizes.d_inner as usize + pos.weights;
            part_d[index] = total_d;
            part_bias[index] = total_bias;
        }
    }
}

/// Loads the inputs of a token in the unit's channel: u, delta, the output's gradient, z; the
/// `place`-th four elements of `to`.
#[cube]
fn read_token<F: Float>(
    to: &mut Array<F>,
    #[comptime] place: usize,
    u: &[F],
    delta: &[F],
    grad_y: &[F],
    z: &[F],
    step: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let step = min(step, pos.end - 1);
    to[comptime!(4 * place)] = u[row_index(step, pos.batch, &sizes.u, pos, sizes, plan)];
    to[comptime!(4 * place + 1)] =
        delta[row_index(step, pos.batch, &sizes.delta, pos, sizes, plan)];
    to[comptime!(4 * place + 2)] =
        grad_y[row_index(step, pos.element, &sizes.grad_y, pos, sizes, plan)];
    if comptime!(plan.has_z) {
        to[comptime!(4 * place + 3)] = z[row_index(step, pos.element, &sizes.z, pos, sizes, plan)];
    }
}

/// Stores the states before the `j`-th token of a chunk.
#[cube]
fn store_before<W: Size>(
    before: &mut Shared<[Vector<f32, W>]>,
    h: &Array<f32>,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.shared_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        before[saved_index(j, group, plan)] = state_vector::<W>(h, group, width);
    }
}
