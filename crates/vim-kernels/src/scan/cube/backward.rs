//! The backward scan: chunks from the last to the first, each recomputed from the state that the
//! forward scan saved at its start. Of a long sequence [segments](super::segments) run side by
//! side. Of a two-way method one pass takes [both ways](super::two_way).
//!
//! Sums over channels (the gradients of B and C) and over the batch (those of A, D and the delta
//! bias) are written as [partial sums](super::partial_sums), which are added in a fixed order: the
//! same bits each time.

use cubecl::prelude::*;

use super::backward_step::{Adjoint, backward_step};
use super::channel_sums::{
    keep_sum, reduce_over_channels, sum_over_plane, sums_len, write_bc_partials,
};
use super::chunks::{filled, load_chunk_state, read_chunk, store_before, unpack_chunk_state};
use super::coords::{
    Rows, ScanTensors, Sizes, carried_state, is_state, load_split, load_tile, projections,
    state_weight, store_split, turn_tile, unit_bias, unit_coords, unit_in_cube, unit_skip,
    weight_grad_index,
};
use super::forward_step::{recompute_step, sigmoid, step_size, store_state_terms};
use super::layout::ScanPlan;
use super::partial_sums::PartialSums;
use super::segments::{into_states, read_gradients};
use super::shares::Shares;
use super::token_tile::{load_tokens, store_tokens, tile_element, token_tile};
use super::two_way::recompute_both_ways;
use super::walk::{read_token, walks};

/// The gradients that one pass writes, and the low bits of what it leaves for the next, `rest_* [B,
/// L, D]`.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct TokenGradTensors<F: Float> {
    pub(crate) u: Box<[F]>,
    pub(crate) delta: Box<[F]>,
    pub(crate) z: Box<[F]>,
    pub(crate) rest_u: Box<[F]>,
    pub(crate) rest_delta: Box<[F]>,
    pub(crate) rest_z: Box<[F]>,
}

/// Runs one pass of the backward scan. `carry [segments, B, N, D]` is the gradient that flows into
/// each segment from the next. Of a two-way method, `returning`, of the same shape, is the state of
/// the reverse way that comes into each segment from the next, and `chunk_flows`, of the shape of
/// `chunk_states`, the gradient that flows into each chunk from the tokens before.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "what the forward scan left, and the gradients")]
pub(crate) fn scan_backward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    chunk_states: &[Vector<S, V>],
    carry: &[f32],
    chunk_flows: &[Vector<S, V>],
    returning: &[f32],
    grads: &mut TokenGradTensors<F>,
    part: &mut PartialSums,
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC, S)] _types: [ElemType; 4],
) {
    let pos = unit_coords(sizes, plan);
    let b_constant = comptime!(plan.spec.b_constant);
    let c_constant = comptime!(plan.spec.c_constant);
    let shares = Shares::new(pos);
    let mut slopes = Array::<f32>::new(comptime!(plan.states * plan.state_terms_len(true)));
    #[unroll]
    for n in 0..plan.states {
        let a = state_weight::<f32>(&tensors.a, shares.state(n), &shares.coords(n));
        store_state_terms(&mut slopes, a, n, true, plan);
    }
    let mut shared = projections::<FB, FC>(&tensors.b.data, &tensors.c.data, shares.order, &pos);
    let size!(W) = comptime!(plan.shared_vector_width());
    let mut before = Shared::<[Vector<f32, W>]>::new_slice(comptime!(
        plan.chunk() * plan.spec.sweeps() * plan.saved_vectors() * plan.units
    ));
    let mut sums = Shared::<[f32]>::new_slice(comptime!(sums_len(plan)));
    // The tokens' step sizes, used again by the backward steps.
    let mut steps = Shared::<[f32]>::new_slice(comptime!(plan.chunk() * plan.units));
    let unit = unit_in_cube(plan);
    let walks = walks::<F, FB, FC>(tensors, grad_y, &pos);
    let skip = unit_skip(&tensors.d, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let mut adjoint = Adjoint {
        h: Array::<f32>::new(plan.states),
        carry: Array::<f32>::new(plan.states),
        returning: filled(0.0f32, plan),
        a: filled(0.0f32, plan),
        b: filled(0.0f32, plan),
        c: filled(0.0f32, plan),
    };
    #[unroll]
    for n in 0..plan.states {
        let (state, at) = (shares.state(n), shares.coords(n));
        // Units beyond the group's channels must add nothing to the sums.
        adjoint.carry[n] = select(at.active, carried_state(carry, state, &at), 0.0f32);
        if comptime!(plan.two_way()) {
            adjoint.returning[n] = carried_state(returning, state, &at);
        }
    }
    let mut total_d = 0.0f32;
    let mut total_bias = 0.0f32;
    let chunks = (pos.end - pos.begin + comptime!(plan.chunk() - 1)) / plan.chunk();
    // The inputs of a chunk are loaded while the chunk after it is processed: its first states, u
    // and delta, B and C.
    let last = pos.begin + (chunks - 1) * plan.chunk();
    let mut next_b = Array::<FB>::new(comptime!(plan.tile_elems_per_unit()));
    let mut next_c = Array::<FC>::new(comptime!(plan.tile_elems_per_unit()));
    load_tile::<FB>(&mut next_b, &tensors.b, last, b_constant, &pos);
    load_tile::<FC>(&mut next_c, &tensors.c, last, c_constant, &pos);
    let mut now_u = Array::<F>::new(plan.chunk());
    let mut now_delta = Array::<F>::new(plan.chunk());
    let mut tile = token_tile::<F, FB, FC>(tensors, last, &pos);
    if comptime!(!plan.tiles_tokens()) {
        read_chunk::<F>(&mut now_u, &tensors.u, pos.batch, last, plan.chunk(), &pos);
        read_chunk::<F>(&mut now_delta, &tensors.delta, pos.batch, last, plan.chunk(), &pos);
    }
    let mut next_chunk_state =
        Array::<Vector<S, V>>::new(comptime!(plan.states / plan.state_vector_width()));
    load_chunk_state::<S, V>(&mut next_chunk_state, chunk_states, last, &shares, plan);
    let mut now_dy = Array::<F>::new(plan.chunk());
    let mut now_z = Array::<F>::new(plan.chunk());
    let mut next_flow =
        Array::<Vector<S, V>>::new(comptime!(plan.states / plan.state_vector_width()));
    let mut flow = Array::<f32>::new(plan.states);
    if comptime!(plan.two_way()) {
        read_gradients::<F>(&mut now_dy, &mut now_z, grad_y, &tensors.z, last, plan.chunk(), &pos);
        load_chunk_state::<S, V>(&mut next_flow, chunk_flows, last, &shares, plan);
    }
    // The next tokens of the backward loop. Past the end the last one is repeated.
    let mut next = Array::<F>::new(comptime!(4 * plan.read_ahead()));
    #[unroll]
    for k in 0..comptime!(plan.read_ahead()) {
        let step = min(last + comptime!(plan.chunk() - 1 - k), pos.end - 1);
        read_token(&mut next, k, tensors, grad_y, step, &walks, plan);
    }
    // The states after a chunk: the first states of the next chunk, which has been processed by
    // then.
    let mut after = Array::<f32>::new(plan.states);
    for from_end in 0..chunks {
        let begin = pos.begin + (chunks - 1 - from_end) * plan.chunk();
        let begin_before = max(begin, pos.begin + plan.chunk()) - plan.chunk();
        let tokens = min(pos.end - begin, plan.chunk());
        // All units have done with the tile by the barrier before the sums were written.
        turn_tile(&mut shared.b, &mut next_b, &tensors.b, begin_before, b_constant, &pos);
        turn_tile(&mut shared.c, &mut next_c, &tensors.c, begin_before, c_constant, &pos);
        store_tokens::<F>(&mut tile, plan);
        sync_cube();
        unpack_chunk_state::<S, V>(&mut adjoint.h, &next_chunk_state, plan);
        if comptime!(plan.two_way()) {
            unpack_chunk_state::<S, V>(&mut flow, &next_flow, plan);
            // That of a unit beyond the group's channels is the last channel's.
            #[unroll]
            for n in 0..plan.states {
                flow[n] = select(shares.coords(n).active, flow[n], 0.0f32);
            }
        }
        // All before the states where there are registers, loads before stores: none waits then.
        let mut deltas = Array::<f32>::new(plan.chunk());
        if comptime!(plan.tiles_tokens()) {
            #[unroll]
            for j in 0..plan.chunk() {
                now_u[j] = tile_element::<F>(&tile.u, j, plan);
                now_delta[j] = tile_element::<F>(&tile.delta, j, plan);
            }
            #[unroll]
            for j in 0..plan.chunk() {
                // A unit beyond the group's channels has those of another than its A.
                let size = step_size(f32::cast_from(now_delta[j]), bias, plan);
                deltas[j] = select(pos.active && j < tokens, size, 0.0f32);
            }
            #[unroll]
            for j in 0..plan.chunk() {
                steps[j * plan.units + unit] = deltas[j];
            }
        }
        // Recomputes forward, storing the state before every token. The last token is skipped,
        // except in the segment's last chunk. Steps past the end have size zero and change nothing,
        // here and backwards.
        #[unroll]
        for j in 0..plan.chunk() {
            // Stored after the step where registers allow: what it reads need not wait for them.
            let mut kept = Array::<f32>::new(plan.states);
            #[unroll]
            for n in 0..plan.states {
                kept[n] = adjoint.h[n];
            }
            if comptime!(!plan.tiles_tokens()) {
                store_before::<W>(&mut before, &kept, j, 0usize, plan);
                let raw = f32::cast_from(now_delta[j]);
                deltas[j] = select(j < tokens, step_size(raw, bias, plan), 0.0f32);
                steps[j * plan.units + unit] = deltas[j];
            }
            if comptime!(plan.two_way()) {
                store_before::<W>(&mut before, &flow, j, plan.saved_vectors(), plan);
            }
            let size = deltas[j];
            let u = f32::cast_from(now_u[j]);
            if comptime!(plan.two_way() && j + 1 < plan.chunk()) {
                let in_bounds = pos.active && j < tokens;
                let into = into_states::<F>(now_dy[j], now_z[j], in_bounds, plan);
                let at = j * plan.states;
                recompute_both_ways(
                    &mut adjoint.h,
                    &mut flow,
                    &slopes,
                    &shared,
                    at,
                    size,
                    u,
                    into,
                    plan,
                );
            } else if comptime!(j + 1 < plan.chunk()) || from_end == 0 {
                recompute_step(&mut adjoint.h, &slopes, &shared, j * plan.states, size, u, plan);
            } else {
                #[unroll]
                for n in 0..plan.states {
                    adjoint.h[n] = after[n];
                }
            }
            if comptime!(plan.tiles_tokens()) {
                store_before::<W>(&mut before, &kept, j, 0usize, plan);
            }
        }
        // What the chunk before needs arrives during the backward loop.
        let from = chunk_states;
        if comptime!(plan.tiles_tokens()) {
            load_tokens::<F, FB, FC>(&mut tile, tensors, begin_before, &pos);
            load_chunk_state::<S, V>(&mut next_chunk_state, from, begin_before, &shares, plan);
        }
        // Backward; a token's inputs are loaded one ahead of their use. Where registers allow, two
        // tokens at a time, so that the work per token and the sums over channels overlap with the
        // other token's states.
        for turn in 0..comptime!(plan.chunk() / plan.tokens_per_turn()) {
            // Masked for the same reason as `unit_in_cube`: both are powers of two.
            let first = comptime!(plan.chunk() - plan.tokens_per_turn());
            let first = (first - turn * comptime!(plan.tokens_per_turn())) & first;
            let mut token_sums = Array::<f32>::new(plan.tokens_per_turn());
            #[unroll]
            for k in 0..comptime!(plan.tokens_per_turn()) {
                let j = first + comptime!(plan.tokens_per_turn() - 1 - k);
                let in_bounds = j < tokens;
                let slot = comptime!(4 * (k % plan.read_ahead()));
                if comptime!(plan.tiles_tokens()) {
                    next[slot] = tile_element::<F>(&tile.u, j, plan);
                    next[comptime!(slot + 1)] = tile_element::<F>(&tile.delta, j, plan);
                }
                let u_now = f32::cast_from(next[slot]);
                let raw = f32::cast_from(next[comptime!(slot + 1)]);
                let dy = f32::cast_from(next[comptime!(slot + 2)]);
                let z_now = f32::cast_from(next[comptime!(slot + 3)]);
                // Where nothing is read from there, it may be past the end.
                let step = begin + j;
                let here = if comptime!(plan.first) { step } else { min(step, pos.end - 1) };
                let here = walks.out.at(here);
                let ahead = comptime!(plan.read_ahead());
                let step = min(max(step, pos.begin + ahead) - ahead, pos.end - 1);
                read_token(&mut next, k % ahead, tensors, grad_y, step, &walks, plan);
                let size = steps[j * plan.units + unit];
                let logistic = if comptime!(plan.spec.has_z) {
                    sigmoid(z_now, plan.ptx)
                } else {
                    1.0f32.runtime()
                };
                let gate =
                    if comptime!(plan.spec.has_z) { z_now * logistic } else { 1.0f32.runtime() };
                let dy = select(pos.active && in_bounds, dy, 0.0f32);
                let into = dy * gate;
                let into_scan = if comptime!(plan.two_way()) { into * 0.5f32 } else { into };
                let step_grads = backward_step::<W>(
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
                if comptime!(plan.pairs_channels()) {
                    token_sums[k] = sum_over_plane(&adjoint, plan);
                } else if comptime!(!(b_constant && c_constant)) {
                    reduce_over_channels(&mut sums, &adjoint, j, plan);
                }
                let mut du = step_grads.u + skip * into;
                let mut ddelta = step_grads.delta;
                let mut pre =
                    if comptime!(plan.two_way()) { step_grads.y * 0.5f32 } else { step_grads.y };
                pre += skip * u_now;
                let mut dz = dy * logistic * (1.0f32 + z_now * (1.0f32 - logistic)) * pre;
                if comptime!(!plan.first) {
                    du += load_split::<F>(&mut grads.u, &mut grads.rest_u, here, plan);
                    ddelta += load_split::<F>(&mut grads.delta, &mut grads.rest_delta, here, plan);
                    if comptime!(plan.spec.has_z) {
                        dz += load_split::<F>(&mut grads.z, &mut grads.rest_z, here, plan);
                    }
                }
                if comptime!(plan.last) {
                    total_d += into * u_now;
                    if comptime!(plan.spec.options.delta_softplus) {
                        ddelta *= sigmoid(raw + bias, plan.ptx);
                    }
                    total_bias += select(pos.active && in_bounds, ddelta, 0.0f32);
                }
                if pos.active && in_bounds {
                    if comptime!(plan.last) {
                        grads.u[here] = F::cast_from(du);
                        grads.delta[here] = F::cast_from(ddelta);
                        if comptime!(plan.spec.has_z) {
                            grads.z[here] = F::cast_from(dz);
                        }
                    } else {
                        store_split::<F>(&mut grads.u, &mut grads.rest_u, here, du, plan);
                        store_split::<F>(
                            &mut grads.delta,
                            &mut grads.rest_delta,
                            here,
                            ddelta,
                            plan,
                        );
                        if comptime!(plan.spec.has_z) {
                            store_split::<F>(&mut grads.z, &mut grads.rest_z, here, dz, plan);
                        }
                    }
                }
            }
            if comptime!(plan.pairs_channels()) {
                // Behind the loads of all tokens of the turn, which stores would keep apart.
                sync_plane();
                #[unroll]
                for k in 0..comptime!(plan.tokens_per_turn()) {
                    let j = first + comptime!(plan.tokens_per_turn() - 1 - k);
                    keep_sum::<W>(&mut before, token_sums[k], shares.order, j, plan);
                }
            }
        }
        if comptime!(!plan.tiles_tokens()) {
            let (u, delta, first) = (&tensors.u, &tensors.delta, begin_before);
            read_chunk::<F>(&mut now_u, u, pos.batch, first, plan.chunk(), &pos);
            read_chunk::<F>(&mut now_delta, delta, pos.batch, first, plan.chunk(), &pos);
        }
        if comptime!(plan.two_way()) {
            read_gradients::<F>(
                &mut now_dy,
                &mut now_z,
                grad_y,
                &tensors.z,
                begin_before,
                plan.chunk(),
                &pos,
            );
            load_chunk_state::<S, V>(&mut next_flow, chunk_flows, begin_before, &shares, plan);
        }
        #[unroll]
        for n in 0..plan.states {
            after[n] = adjoint.h[n];
        }
        if comptime!(!plan.tiles_tokens()) {
            load_chunk_state::<S, V>(&mut next_chunk_state, from, begin_before, &shares, plan);
        }
        if comptime!(!(b_constant && c_constant)) {
            sync_cube();
            write_bc_partials::<W>(
                &sums,
                &before,
                &mut part.b,
                &mut part.c,
                begin,
                tokens,
                &walks,
                &pos,
            );
        }
    }
    #[unroll]
    for n in 0..plan.states {
        let (state, at) = (shares.state(n), shares.coords(n));
        if at.active && is_state(state, &at) {
            let index = weight_grad_index(pos.segment, state, &at);
            part.a[index] = adjoint.a[n];
            if comptime!(b_constant) {
                part.b[index] = adjoint.b[n];
            }
            if comptime!(c_constant) {
                part.c[index] = adjoint.c[n];
            }
        }
    }
    if comptime!(plan.last) && pos.active {
        let batch = sizes.batch as usize;
        let row = pos.segment * batch + pos.element * (batch / sizes.per_direction as usize);
        let index = row * sizes.d_inner as usize + pos.weights;
        part.d[index] = total_d;
        part.bias[index] = total_bias;
    }
}
