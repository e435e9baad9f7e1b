//! Segments of a long sequence: the states at their ends from zero states, and from those the
//! states at their beginnings.

use cubecl::prelude::*;

use super::backward_step::backward_carry_only;
use super::chunk_copies::{
    chunk_buffer_len, commit_chunk_copy, copied_element, copy_chunk_async, wait_chunk,
};
use super::coords::{
    Sizes, elems_per_unit, is_state, load_state_terms, load_tile_regs, projections, state_index,
    store_tile_shared, unit_coords,
};
use super::forward::read_chunk;
use super::forward_step::{decay_over, forward_carry_only, sigmoid, state_terms_len, step_size};
use super::plan::{CHUNK, ScanPlan};

/// Runs every segment from a zero state: writes its final states to `carry`, and the product of the
/// decays over the segment to `product`, both `[segments, B, N, D]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn segment_ends<F: Float, FB: Float>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[FB],
    delta_bias: &[f32],
    carry: &mut [f32],
    product: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
) {
    let pos = unit_coords(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * state_terms_len(plan)));
    load_state_terms(&mut rates, a, &pos, sizes, plan);
    let mut shared = projections::<FB, FB>(b, b, 0usize, &pos, sizes, plan);
    let bias = if comptime!(plan.has_bias) { delta_bias[pos.weights] } else { 0.0f32.runtime() };
    let mut h = Array::<f32>::new(plan.states);
    let mut whole = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        h[n] = 0.0f32;
        whole[n] = 1.0f32;
    }
    let mut next_b = Array::<FB>::new(comptime!(elems_per_unit(plan.tile, plan)));
    if comptime!(!plan.b_constant) {
        load_tile_regs::<FB>(&mut next_b, b, &sizes.b, pos.begin, plan.tile, &pos, sizes, plan);
    }
    // Tokens are loaded a chunk ahead of their use.
    let copied = comptime!(plan.copy_width > 0);
    let mut ahead_u =
        Shared::<[F]>::new_aligned_slice(comptime!(chunk_buffer_len(true, plan)), 16usize);
    let mut ahead_delta =
        Shared::<[F]>::new_aligned_slice(comptime!(chunk_buffer_len(true, plan)), 16usize);
    let mut next_u = Array::<F>::new(CHUNK);
    let mut next_delta = Array::<F>::new(CHUNK);
    if comptime!(copied) {
        copy_chunk_async::<F>(&mut ahead_u, u, pos.batch, &sizes.u, pos.begin, &pos, sizes, plan);
        let rows = &sizes.delta;
        copy_chunk_async::<F>(
            &mut ahead_delta,
            delta,
            pos.batch,
            rows,
            pos.begin,
            &pos,
            sizes,
            plan,
        );
        commit_chunk_copy();
    } else {
        read_chunk::<F>(&mut next_u, u, pos.batch, &sizes.u, pos.begin, &pos, sizes, plan);
        read_chunk::<F>(
            &mut next_delta,
            delta,
            pos.batch,
            &sizes.delta,
            pos.begin,
            &pos,
            sizes,
            plan,
        );
    }
    let mut total = 0.0f32;
    let mut first = pos.begin;
    while first < pos.end {
        sync_cube();
        if comptime!(!plan.b_constant) {
            store_tile_shared::<FB>(&mut shared.b, &next_b, plan.tile, plan);
            load_tile_regs::<FB>(
                &mut next_b,
                b,
                &sizes.b,
                first + plan.tile,
                plan.tile,
                &pos,
                sizes,
                plan,
            );
        }
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < pos.end {
            let begin = first + chunk;
            let mut now_u = Array::<F>::new(CHUNK);
            let mut now_delta = Array::<F>::new(CHUNK);
            let after = begin + CHUNK;
            let rows = &sizes.delta;
            if comptime!(copied) {
                wait_chunk();
                #[unroll]
                for j in 0..CHUNK {
                    now_u[j] = copied_element::<F>(&ahead_u, begin, j, plan);
                    now_delta[j] = copied_element::<F>(&ahead_delta, begin, j, plan);
                }
                copy_chunk_async::<F>(
                    &mut ahead_u,
                    u,
                    pos.batch,
                    &sizes.u,
                    after,
                    &pos,
                    sizes,
                    plan,
                );
                copy_chunk_async::<F>(
                    &mut ahead_delta,
                    delta,
                    pos.batch,
                    rows,
                    after,
                    &pos,
                    sizes,
                    plan,
                );
                commit_chunk_copy();
            } else {
                #[unroll]
                for j in 0..CHUNK {
                    now_u[j] = next_u[j];
                    now_delta[j] = next_delta[j];
                }
                read_chunk::<F>(&mut next_u, u, pos.batch, &sizes.u, after, &pos, sizes, plan);
                read_chunk::<F>(&mut next_delta, delta, pos.batch, rows, after, &pos, sizes, plan);
            }
            #[unroll]
            for j in 0..CHUNK {
                let in_bounds = begin + j < pos.end;
                let size =
                    select(in_bounds, step_size(f32::cast_from(now_delta[j]), bias, plan), 0.0f32);
                let row = (chunk + j) * plan.states;
                let u = f32::cast_from(now_u[j]);
                forward_carry_only(&mut h, &mut whole, &rates, &shared, row, size, u, plan);
                total += size;
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    decay_over(&mut whole, &rates, total, plan);
    if pos.active {
        #[unroll]
        for n in 0..plan.states {
            if is_state(n, sizes, plan) {
                let index = state_index(pos.segment, n, &pos, sizes);
                carry[index] = h[n];
                product[index] = whole[n];
            }
        }
    }
}

/// Turns states at the ends of segments into states at their beginnings: `begins[k] ← s`,
/// `s ← product[k]·s + ends[k]`. One unit for each of the `width` (batch, state, channel); from the
/// last segment on if `backwards`.
#[cube(launch_unchecked)]
pub(crate) fn carry_over(
    ends: &[f32],
    product: &[f32],
    begins: &mut [f32],
    segments: u32,
    width: u32,
    #[comptime] backwards: bool,
) {
    let i = ABSOLUTE_POS;
    let width = width as usize;
    if i < width {
        let segments = segments as usize;
        let mut state = 0.0f32;
        let mut first = 0usize;
        while first < segments {
            // Loaded together, so that their latencies overlap.
            let mut end = Array::<f32>::new(SEGMENTS_AT_ONCE);
            let mut factor = Array::<f32>::new(SEGMENTS_AT_ONCE);
            #[unroll]
            for j in 0..SEGMENTS_AT_ONCE {
                let index = slot_at(min(first + j, segments - 1), segments, backwards) * width + i;
                end[j] = ends[index];
                factor[j] = product[index];
            }
            #[unroll]
            for j in 0..SEGMENTS_AT_ONCE {
                if first + j < segments {
                    begins[slot_at(first + j, segments, backwards) * width + i] = state;
                    state = factor[j] * state + end[j];
                }
            }
            first += SEGMENTS_AT_ONCE;
        }
    }
}

/// Segments that [`carry_over`] loads at once.
const SEGMENTS_AT_ONCE: usize = 16;

#[cube]
fn slot_at(k: usize, segments: usize, #[comptime] backwards: bool) -> usize {
    if comptime!(backwards) { segments - 1 - k } else { k }
}

/// Runs every segment backwards from a zero gradient: writes the gradient that flows out of its
/// first token to `carry`, and the product of the decays to `product`, both `[segments, B, N, D]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn segment_outflows<F: Float, FC: Float>(
    delta: &[F],
    a: &[f32],
    c: &[FC],
    z: &[F],
    delta_bias: &[f32],
    grad_y: &[F],
    carry: &mut [f32],
    product: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FC)] _fc: ElemType,
) {
    let pos = unit_coords(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * state_terms_len(plan)));
    load_state_terms(&mut rates, a, &pos, sizes, plan);
    let mut shared = projections::<FC, FC>(c, c, 0usize, &pos, sizes, plan);
    let bias = if comptime!(plan.has_bias) { delta_bias[pos.weights] } else { 0.0f32.runtime() };
    let mut flow = Array::<f32>::new(plan.states);
    let mut whole = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        flow[n] = 0.0f32;
        whole[n] = 1.0f32;
    }
    let chunks = (pos.end - pos.begin + comptime!(CHUNK - 1)) / CHUNK;
    let mut next_c = Array::<FC>::new(comptime!(elems_per_unit(CHUNK, plan)));
    if comptime!(!plan.c_constant) {
        let last = pos.begin + (chunks - 1) * CHUNK;
        load_tile_regs::<FC>(&mut next_c, c, &sizes.c, last, CHUNK, &pos, sizes, plan);
    }
    let last = pos.begin + (chunks - 1) * CHUNK;
    let mut next_delta = Array::<F>::new(CHUNK);
    let mut next_dy = Array::<F>::new(CHUNK);
    let mut next_z = Array::<F>::new(CHUNK);
    read_chunk::<F>(&mut next_delta, delta, pos.batch, &sizes.delta, last, &pos, sizes, plan);
    read_chunk::<F>(&mut next_dy, grad_y, pos.element, &sizes.grad_y, last, &pos, sizes, plan);
    if comptime!(plan.has_z) {
        read_chunk::<F>(&mut next_z, z, pos.element, &sizes.z, last, &pos, sizes, plan);
    }
    let mut total = 0.0f32;
    for from_end in 0..chunks {
        let begin = pos.begin + (chunks - 1 - from_end) * CHUNK;
        let begin_before = max(begin, pos.begin + CHUNK) - CHUNK;
        sync_cube();
        if comptime!(!plan.c_constant) {
            store_tile_shared::<FC>(&mut shared.c, &next_c, CHUNK, plan);
            load_tile_regs::<FC>(&mut next_c, c, &sizes.c, begin_before, CHUNK, &pos, sizes, plan);
        }
        sync_cube();
        let mut now_delta = Array::<F>::new(CHUNK);
        let mut now_dy = Array::<F>::new(CHUNK);
        let mut now_z = Array::<F>::new(CHUNK);
        #[unroll]
        for j in 0..CHUNK {
            now_delta[j] = next_delta[j];
            now_dy[j] = next_dy[j];
            if comptime!(plan.has_z) {
                now_z[j] = next_z[j];
            }
        }
        let before = begin_before;
        read_chunk::<F>(&mut next_delta, delta, pos.batch, &sizes.delta, before, &pos, sizes, plan);
        read_chunk::<F>(
            &mut next_dy,
            grad_y,
            pos.element,
            &sizes.grad_y,
            before,
            &pos,
            sizes,
            plan,
        );
        if comptime!(plan.has_z) {
            read_chunk::<F>(&mut next_z, z, pos.element, &sizes.z, before, &pos, sizes, plan);
        }
        #[unroll]
        for past in 0..CHUNK {
            let j = comptime!(CHUNK - 1 - past);
            let in_bounds = begin + j < pos.end;
            let size =
                select(in_bounds, step_size(f32::cast_from(now_delta[j]), bias, plan), 0.0f32);
            let mut into = select(in_bounds, f32::cast_from(now_dy[j]), 0.0f32);
            if comptime!(plan.has_z) {
                let z = f32::cast_from(now_z[j]);
                into *= z * sigmoid(z, plan.ptx);
            }
            if comptime!(plan.halved) {
                into *= 0.5f32;
            }
            total += size;
            backward_carry_only(
                &mut flow,
                &mut whole,
                &rates,
                &shared,
                j * plan.states,
                size,
                into,
                plan,
            );
        }
    }
    decay_over(&mut whole, &rates, total, plan);
    if pos.active {
        #[unroll]
        for n in 0..plan.states {
            if is_state(n, sizes, plan) {
                let index = state_index(pos.segment, n, &pos, sizes);
                carry[index] = flow[n];
                product[index] = whole[n];
            }
        }
    }
}
