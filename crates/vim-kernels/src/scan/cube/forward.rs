//! The forward scan: one unit per channel, its states in registers, B and C of a tile of tokens in
//! shared memory, the tokens one after the other.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::prelude::*;

use super::chunk_copies::{
    chunk_buffer_len, commit_chunk_copy, copied_element, copy_chunk_async, wait_chunk,
};
use super::chunk_states::store_chunk_state;
use super::coords::{
    Rows, Sizes, UnitCoords, carried_state, elems_per_unit, is_state, load_split, load_state_terms,
    load_tile_regs, projections, row_index, store_split, store_tile_shared, token_at, unit_coords,
};
use super::forward_step::{forward_step, sigmoid, state_terms_len, step_size};
use super::plan::{CHUNK, ScanPlan};

/// Runs one pass. Shapes as in [`crate::selective_scan()`], and `carry [segments, B, N, D]`, the
/// states at the beginning of the segments; `rest [B, L, D]`, the low bits of the sum that earlier
/// passes leave in y; `chunk_states [sweeps, chunks, B, N/V, D, V]`, saved for the backward pass.
/// Buffers that the plan does not use have one element or vector.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn scan_forward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[FB],
    c: &[FC],
    d: &[f32],
    z: &[F],
    delta_bias: &[f32],
    carry: &[f32],
    y: &mut [F],
    rest: &mut [F],
    last_state: &mut [f32],
    chunk_states: &mut [Vector<S, V>],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
    #[define(S)] _s: ElemType,
) {
    let pos = unit_coords(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * state_terms_len(plan)));
    load_state_terms(&mut rates, a, &pos, sizes, plan);
    let mut shared = projections::<FB, FC>(b, c, 0usize, &pos, sizes, plan);
    let skip = if comptime!(plan.has_d && plan.last) { d[pos.weights] } else { 0.0f32.runtime() };
    let bias = if comptime!(plan.has_bias) { delta_bias[pos.weights] } else { 0.0f32.runtime() };
    let mut h = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        h[n] = carried_state(carry, n, &pos, sizes, plan);
    }
    // Tokens are loaded a chunk ahead of their use, B and C a tile ahead.
    let gated = comptime!(plan.has_z && plan.last);
    let copied = comptime!(plan.copy_width > 0);
    let mut ahead = CopiedTokens::<F> {
        u: Shared::<[F]>::new_aligned_slice(comptime!(chunk_buffer_len(true, plan)), 16usize),
        delta: Shared::<[F]>::new_aligned_slice(comptime!(chunk_buffer_len(true, plan)), 16usize),
        z: Shared::<[F]>::new_aligned_slice(comptime!(chunk_buffer_len(gated, plan)), 16usize),
    };
    let mut next = TokenRegisters::<F>::new();
    if comptime!(copied) {
        copy_tokens_async::<F>(&mut ahead, u, delta, z, pos.begin, &pos, sizes, plan);
    } else {
        read_chunk::<F>(&mut next.u, u, pos.batch, &sizes.u, pos.begin, &pos, sizes, plan);
        read_chunk::<F>(
            &mut next.delta,
            delta,
            pos.batch,
            &sizes.delta,
            pos.begin,
            &pos,
            sizes,
            plan,
        );
        if comptime!(gated && plan.has_spare_registers()) {
            read_chunk::<F>(&mut next.z, z, pos.element, &sizes.z, pos.begin, &pos, sizes, plan);
        }
    }
    let mut next_b = Array::<FB>::new(comptime!(elems_per_unit(plan.tile, plan)));
    let mut next_c = Array::<FC>::new(comptime!(elems_per_unit(plan.tile, plan)));
    if comptime!(!plan.b_constant) {
        load_tile_regs::<FB>(&mut next_b, b, &sizes.b, pos.begin, plan.tile, &pos, sizes, plan);
    }
    if comptime!(!plan.c_constant) {
        load_tile_regs::<FC>(&mut next_c, c, &sizes.c, pos.begin, plan.tile, &pos, sizes, plan);
    }
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
        if comptime!(!plan.c_constant) {
            store_tile_shared::<FC>(&mut shared.c, &next_c, plan.tile, plan);
            load_tile_regs::<FC>(
                &mut next_c,
                c,
                &sizes.c,
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
            if comptime!(plan.save) {
                if pos.active {
                    store_chunk_state::<S, V>(chunk_states, &h, begin, &pos, sizes, plan);
                }
            }
            let mut now = TokenRegisters::<F>::new();
            if comptime!(copied) {
                wait_chunk();
                #[unroll]
                for j in 0..CHUNK {
                    now.u[j] = copied_element::<F>(&ahead.u, begin, j, plan);
                    now.delta[j] = copied_element::<F>(&ahead.delta, begin, j, plan);
                    if comptime!(gated) {
                        now.z[j] = copied_element::<F>(&ahead.z, begin, j, plan);
                    }
                }
                copy_tokens_async::<F>(&mut ahead, u, delta, z, begin + CHUNK, &pos, sizes, plan);
            } else {
                #[unroll]
                for j in 0..CHUNK {
                    now.u[j] = next.u[j];
                    now.delta[j] = next.delta[j];
                    if comptime!(gated && plan.has_spare_registers()) {
                        now.z[j] = next.z[j];
                    }
                }
                read_chunk::<F>(
                    &mut next.u,
                    u,
                    pos.batch,
                    &sizes.u,
                    begin + CHUNK,
                    &pos,
                    sizes,
                    plan,
                );
                read_chunk::<F>(
                    &mut next.delta,
                    delta,
                    pos.batch,
                    &sizes.delta,
                    begin + CHUNK,
                    &pos,
                    sizes,
                    plan,
                );
                // The gate is needed last: it is not loaded ahead if registers are short.
                if comptime!(gated && plan.has_spare_registers()) {
                    read_chunk::<F>(
                        &mut next.z,
                        z,
                        pos.element,
                        &sizes.z,
                        begin + CHUNK,
                        &pos,
                        sizes,
                        plan,
                    );
                } else if comptime!(gated) {
                    read_chunk::<F>(&mut now.z, z, pos.element, &sizes.z, begin, &pos, sizes, plan);
                }
            }
            // Steps past the end have size zero and change nothing: without a branch between
            // tokens, their softplus and gates overlap.
            #[unroll]
            for j in 0..CHUNK {
                let in_bounds = begin + j < pos.end;
                let u = f32::cast_from(now.u[j]);
                let raw = f32::cast_from(now.delta[j]);
                let size = select(in_bounds, step_size(raw, bias, plan), 0.0f32);
                let row = (chunk + j) * plan.states;
                let sum = forward_step(&mut h, &rates, &shared, row, size, u, plan);
                let z = f32::cast_from(now.z[j]);
                write_token::<F>(y, rest, sum, u, z, skip, begin + j, in_bounds, &pos, sizes, plan);
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    if comptime!(plan.leaves_state) {
        if pos.active && pos.end == sizes.len as usize {
            #[unroll]
            for n in 0..plan.states {
                if is_state(n, sizes, plan) {
                    let state = sizes.first_state as usize + n;
                    let row = pos.batch * sizes.d_inner as usize + pos.channel;
                    last_state[row * sizes.d_state as usize + state] = h[n];
                }
            }
        }
    }
}

/// Index of the token of `step` in a `[B, L, D]`, in the unit's channel.
#[cube]
pub(crate) fn token_index(
    step: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> usize {
    let token = pos.batch * sizes.len as usize + token_at(step, pos, sizes, plan);
    token * sizes.d_inner as usize + pos.channel
}

/// Writes the output of a token from `Σ c·h`, or this pass's part of it.
#[cube]
fn write_token<F: Float>(
    y: &mut [F],
    rest: &mut [F],
    sum: f32,
    u: f32,
    z: f32,
    skip: f32,
    step: usize,
    in_bounds: bool,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let index = token_index(min(step, pos.end - 1), pos, sizes, plan);
    let mut out = if comptime!(plan.halved) { sum * 0.5f32 } else { sum };
    if comptime!(!plan.first) {
        out += load_split::<F>(y, rest, index, plan);
    }
    if comptime!(plan.last) {
        out += skip * u;
        if comptime!(plan.has_z) {
            out *= z * sigmoid(z, plan.ptx);
        }
        if pos.active && in_bounds {
            y[index] = F::cast_from(out);
        }
    } else {
        if pos.active && in_bounds {
            store_split::<F>(y, rest, index, out, plan);
        }
    }
}

/// Two chunks of the cube's channels, one of them in flight.
#[derive(CubeType)]
struct CopiedTokens<F: Float> {
    u: Shared<[F]>,
    delta: Shared<[F]>,
    z: Shared<[F]>,
}

/// Begins to copy the chunk from step `first` on.
#[cube]
fn copy_tokens_async<F: Float>(
    to: &mut CopiedTokens<F>,
    u: &[F],
    delta: &[F],
    z: &[F],
    first: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    copy_chunk_async::<F>(&mut to.u, u, pos.batch, &sizes.u, first, pos, sizes, plan);
    copy_chunk_async::<F>(&mut to.delta, delta, pos.batch, &sizes.delta, first, pos, sizes, plan);
    if comptime!(plan.has_z && plan.last) {
        copy_chunk_async::<F>(&mut to.z, z, pos.element, &sizes.z, first, pos, sizes, plan);
    }
    commit_chunk_copy();
}

/// A chunk of tokens in a unit's channel, in their storage type: nothing waits for them before
/// their use.
#[derive(CubeType)]
struct TokenRegisters<F: Float> {
    u: Array<F>,
    delta: Array<F>,
    z: Array<F>,
}

#[cube]
impl<F: Float> TokenRegisters<F> {
    fn new() -> TokenRegisters<F> {
        TokenRegisters::<F> {
            u: Array::<F>::new(CHUNK),
            delta: Array::<F>::new(CHUNK),
            z: Array::<F>::new(CHUNK),
        }
    }
}

/// Loads the unit's channel of a chunk of tokens of batch element `element`; past the segment its
/// last token is repeated.
#[cube]
pub(crate) fn read_chunk<F: Float>(
    to: &mut Array<F>,
    from: &[F],
    element: usize,
    rows: &Rows,
    first: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    #[unroll]
    for j in 0..CHUNK {
        let step = min(first + j, pos.end - 1);
        to[j] = from[row_index(step, element, rows, pos, sizes, plan)];
    }
}
