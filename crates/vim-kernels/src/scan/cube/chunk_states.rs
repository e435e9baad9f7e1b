//! The states at the starts of chunks, which the forward scan saves for the backward scan, in
//! vectors of four of a unit's states where it holds a multiple of four.

use cubecl::prelude::*;

use super::coords::{Sizes, UnitCoords, is_state};
use super::plan::{CHUNK, ScanPlan};

/// Index of the `group`-th vector of the unit's states at the start of the chunk of `step` in
/// `[sweeps, chunks, B, N/V, D]`, with V = [`ScanPlan::state_vector_width`].
#[cube]
fn chunk_state_index(
    step: usize,
    group: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> usize {
    let width = comptime!(plan.state_vector_width());
    let chunks = (sizes.len as usize + comptime!(CHUNK - 1)) / CHUNK;
    let slot = sizes.sweep as usize * chunks + step / CHUNK;
    let row = (slot * sizes.batch as usize + pos.batch) * (sizes.d_state as usize / width);
    let first = sizes.first_state as usize / width;
    (row + first + group) * sizes.d_inner as usize + pos.channel
}

/// The `group`-th vector of `width` states of a unit.
#[cube]
pub(super) fn state_vector<W: Size>(
    h: &Array<f32>,
    #[comptime] group: usize,
    #[comptime] width: usize,
) -> Vector<f32, W> {
    let mut states = Vector::<f32, W>::empty();
    #[unroll]
    for i in 0..width {
        states.insert(i, h[comptime!(group * width + i)]);
    }
    states
}

/// Saves the states at the start of the chunk of `step`.
#[cube]
pub(super) fn store_chunk_state<S: Float, V: Size>(
    chunk_states: &mut [Vector<S, V>],
    h: &Array<f32>,
    step: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.state_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        if is_state(group * width, sizes, plan) {
            let states = state_vector::<V>(h, group, width);
            chunk_states[chunk_state_index(step, group, pos, sizes, plan)] =
                Vector::cast_from(states);
        }
    }
}

/// Loads the saved states in their storage type: nothing waits for them before their use.
#[cube]
pub(super) fn load_chunk_state<S: Float, V: Size>(
    to: &mut Array<Vector<S, V>>,
    chunk_states: &[Vector<S, V>],
    step: usize,
    order: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.state_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        to[group] = if is_state(group * width, sizes, plan) {
            chunk_states[chunk_state_index(step, group ^ (order / width), pos, sizes, plan)]
        } else {
            Vector::new(S::new(0.0))
        };
    }
}

/// The loaded states as f32; 0 for a state that does not exist.
#[cube]
pub(super) fn unpack_chunk_state<S: Float, V: Size>(
    h: &mut Array<f32>,
    from: &Array<Vector<S, V>>,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.state_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        let states = Vector::<f32, V>::cast_from(from[group]);
        #[unroll]
        for i in 0..width {
            h[comptime!(group * width + i)] = states.extract(i);
        }
    }
}
