//! The forward scan: one unit per channel, its states in registers, B and C of a tile of tokens in
//! shared memory, the tokens one after the other. Of a long sequence [segments](super::segments)
//! run side by side.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::prelude::*;

use super::chunks::{before, store_chunk_state, take_chunk, tokens_ahead};
use super::coords::{
    ScanTensors, Sizes, UnitCoords, is_state, load_split, load_tile, state_weight, store_split,
    token_index, turn_tile, unit_bias, unit_coords, unit_skip, unit_states,
};
use super::forward_step::{forward_step, projections, sigmoid, step_size, unit_state_terms};
use super::layout::{CHUNK, Projected, ScanPlan};

/// Runs one pass: `carry [segments, B, N, D]`, the states at the beginning of the segments;
/// `rest [B, L, D]`, the low bits of the sum that earlier passes leave in y; `chunk_states [chunks,
/// B, N/V, D, V]`, saved for the backward pass; `largest [1]`, the bits of the largest |delta·a| so
/// far. Buffers that the plan does not use have one element or vector.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these outputs")]
pub(crate) fn scan_forward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    tensors: &ScanTensors<F, FB, FC>,
    carry: &[f32],
    y: &mut [F],
    rest: &mut [F],
    last_state: &mut [f32],
    chunk_states: &mut [Vector<S, V>],
    largest: &[Atomic<u32>],
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC, S)] _types: [ElemType; 4],
) {
    let pos = unit_coords(sizes, plan);
    let rates = unit_state_terms(&tensors.a, &pos);
    let mut shared = projections::<FB, FC>(&tensors.b.data, &tensors.c.data, 0usize, &pos);
    let skip = unit_skip(&tensors.d, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let mut h = unit_states(carry, &pos);
    // Tokens are loaded a chunk ahead of their use, B and C a tile ahead.
    let mut ahead = tokens_ahead::<F, FB, FC>(tensors, plan.gated(), &pos);
    let (b, c) = comptime!((Projected::B, Projected::C));
    let mut next_b = Array::<FB>::new(comptime!(plan.tile_elems_per_unit(b)));
    let mut next_c = Array::<FC>::new(comptime!(plan.tile_elems_per_unit(c)));
    load_tile::<FB>(&mut next_b, &tensors.b, pos.begin, b, &pos);
    load_tile::<FC>(&mut next_c, &tensors.c, pos.begin, c, &pos);
    let mut longest = 0.0f32;
    let mut first = pos.begin;
    while first < pos.end {
        let after = first + plan.tile;
        sync_cube();
        turn_tile(&mut shared.b, &mut next_b, &tensors.b, after, b, &pos);
        turn_tile(&mut shared.c, &mut next_c, &tensors.c, after, c, &pos);
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < pos.end {
            let begin = first + chunk;
            if comptime!(plan.save) {
                if pos.active {
                    store_chunk_state::<S, V>(chunk_states, &h, begin, &pos);
                }
            }
            let now = take_chunk::<F, FB, FC>(&mut ahead, tensors, begin, plan.gated(), &pos);
            // What the passes before left, before the first token is written: a load does not pass
            // a store that it may depend on.
            let mut left = Array::<f32>::new(CHUNK);
            if comptime!(!plan.first) {
                #[unroll]
                for j in 0..CHUNK {
                    let index = token_index(min(begin + j, pos.end - 1), &pos);
                    left[j] = load_split::<F>(y, rest, index, plan);
                }
            }
            // Steps past the end have size zero and change nothing: without a branch between
            // tokens, their softplus and gates overlap.
            #[unroll]
            for j in 0..CHUNK {
                let in_bounds = begin + j < pos.end;
                if comptime!(plan.save && j > 0 && j % plan.chunk() == 0) {
                    if pos.active && in_bounds {
                        store_chunk_state::<S, V>(chunk_states, &h, begin + j, &pos);
                    }
                }
                let u = f32::cast_from(now.u[j]);
                let raw = f32::cast_from(now.delta[j]);
                let size = select(in_bounds, step_size(raw, bias, plan), 0.0f32);
                if comptime!(plan.watches()) {
                    longest = max(longest, size.abs());
                }
                let row = (chunk + j) * plan.states;
                let before = before::<F>(&now.u, j, CHUNK, u, plan);
                let sum = forward_step(&mut h, &rates, &shared, row, size, u, before, plan);
                let z = f32::cast_from(now.z[j]);
                let sum = if comptime!(plan.two_way()) { sum * 0.5f32 } else { sum };
                let sum = if comptime!(plan.first) { sum } else { sum + left[j] };
                write_token::<F>(y, rest, sum, u, z, skip, begin + j, in_bounds, &pos);
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    if comptime!(plan.watches()) {
        note_argument(largest, &tensors.a, longest, &pos);
    }
    if comptime!(plan.leaves_state) {
        if pos.active && pos.end == sizes.len as usize {
            #[unroll]
            for n in 0..plan.states {
                if is_state(n, &pos) {
                    let state = sizes.first_state as usize + n;
                    let row = pos.batch * sizes.d_inner as usize + pos.channel;
                    last_state[row * sizes.d_state as usize + state] = h[n];
                }
            }
        }
    }
}

/// Notes the largest |delta·a| of the unit, whose longest step is `longest`. A unit without a
/// channel of its own has the last one's.
#[cube]
fn note_argument(largest: &[Atomic<u32>], a: &[f32], longest: f32, pos: &UnitCoords) {
    let plan = comptime!(pos.plan);
    let mut fastest = 0.0f32;
    #[unroll]
    for n in 0..plan.states {
        fastest = max(fastest, state_weight::<f32>(a, n, pos).abs());
    }
    // Non-negative floats order as their bits do, and NaN lies above infinity. The word only grows:
    // units that do not exceed what they find have nothing to do, and those are all but a few of a
    // training.
    let argument = u32::reinterpret(longest * fastest);
    if argument <= comptime!(f32::INFINITY.to_bits()) && argument > largest[0].load() {
        largest[0].fetch_max(argument);
    }
}

/// Writes the output of a token from `sum`, that of all passes so far.
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
) {
    let plan = comptime!(pos.plan);
    let index = token_index(min(step, pos.end - 1), pos);
    if comptime!(plan.last) {
        let mut out = sum + skip * u;
        if comptime!(plan.spec.has_z) {
            out *= z * sigmoid(z, plan.ptx);
        }
        if pos.active && in_bounds {
            y[index] = F::cast_from(out);
        }
    } else {
        if pos.active && in_bounds {
            store_split::<F>(y, rest, index, sum, plan);
        }
    }
}
