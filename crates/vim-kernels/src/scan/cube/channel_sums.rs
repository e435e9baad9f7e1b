//! The sums of a token's gradients of B and C over a cube's channels, in a fixed order.

use cubecl::prelude::*;

use super::backward_step::Adjoint;
use super::coords::{UnitCoords, is_state, unit_in_cube};
use super::layout::{PLANE, ScanPlan};
use super::walk::Walks;

/// Shared memory of [`reduce_over_channels`], in floats.
pub(super) fn sums_len(plan: ScanPlan) -> usize {
    if plan.spec.b_constant && plan.spec.c_constant {
        1
    } else if plan.planes {
        plan.units / PLANE * plan.chunk() * 2 * HALF
    } else {
        plan.chunk() * 2 * plan.states + 2 * plan.states * plan.units
    }
}

/// A plane's sums for B; those for C follow.
const HALF: usize = PLANE / 2;

/// Sums the gradients of B and C of the `j`-th token over the cube's channels, or over each
/// plane's.
#[cube]
pub(super) fn reduce_over_channels(
    sums: &mut Shared<[f32]>,
    adjoint: &Adjoint,
    order: usize,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let unit = unit_in_cube(plan);
    let lane = UNIT_POS_X % comptime!(PLANE as u32);
    if comptime!(plan.pairs_channels()) {
        // Units of the same half of the states exchange. By their order, each gives the same four.
        let mut values = Array::<f32>::new(8usize);
        #[unroll]
        for n in 0..4usize {
            values[n] = adjoint.b[n] + plane_shuffle_xor(adjoint.b[n + 4], 2u32);
            values[n + 4] = adjoint.c[n] + plane_shuffle_xor(adjoint.c[n + 4], 2u32);
        }
        halve(&mut values, 4usize, 4u32, lane);
        halve(&mut values, 2usize, 16u32, lane);
        halve(&mut values, 1usize, 8u32, lane);
        let state = order + (lane / 8) as usize;
        let value = state + (lane & 4) as usize * comptime!(HALF / 4);
        sums[(unit / PLANE * plan.chunk() + j) * PLANE + value] = values[0];
    } else if comptime!(plan.planes) {
        // Each round exchanges half of the values with the opposite lane and adds: after five, lane
        // i has the sum of value i over the plane.
        let mut values = Array::<f32>::new(PLANE);
        #[unroll]
        for n in 0..HALF {
            let in_bounds = comptime!(n < plan.states);
            values[n] = if comptime!(in_bounds && !plan.spec.b_constant) {
                adjoint.b[n]
            } else {
                0.0f32.runtime()
            };
            values[HALF + n] = if comptime!(in_bounds && !plan.spec.c_constant) {
                adjoint.c[n]
            } else {
                0.0f32.runtime()
            };
        }
        #[unroll]
        for round in 0..5usize {
            let half = comptime!(HALF >> round);
            halve(&mut values, half, comptime!(half as u32), lane);
        }
        sums[(unit / PLANE * plan.chunk() + j) * PLANE + unit % PLANE] = values[0];
    } else {
        let scratch = comptime!(plan.chunk() * 2 * plan.states);
        #[unroll]
        for n in 0..plan.states {
            sums[scratch + n * plan.units + unit] =
                if comptime!(plan.spec.b_constant) { 0.0f32.runtime() } else { adjoint.b[n] };
            sums[scratch + (plan.states + n) * plan.units + unit] =
                if comptime!(plan.spec.c_constant) { 0.0f32.runtime() } else { adjoint.c[n] };
        }
        sync_cube();
        let mut value = unit;
        while value < comptime!(2 * plan.states) {
            let mut sum = 0.0f32;
            for i in 0..plan.units {
                sum += sums[scratch + value * plan.units + i];
            }
            sums[j * 2 * plan.states + value] = sum;
            value += plan.units;
        }
        sync_cube();
    }
}

/// Exchanges half of `2·half` values with the lane `across`, and adds what it gives.
#[cube]
fn halve(values: &mut Array<f32>, #[comptime] half: usize, #[comptime] across: u32, lane: u32) {
    let upper = lane & across != 0;
    #[unroll]
    for i in 0..half {
        let (low, high) = (values[i], values[i + half]);
        let keep = select(upper, high, low);
        let send = select(upper, low, high);
        values[i] = keep + plane_shuffle_xor(send, across);
    }
}

/// Writes the sums of a chunk of `tokens` from step `begin` on as partial gradients of B and C.
#[cube]
pub(super) fn write_bc_partials(
    sums: &Shared<[f32]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    walks: &Walks,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    if comptime!(plan.pairs_channels()) {
        write_in_fours(sums, part_b, part_c, begin, tokens, walks, plan);
    } else {
        let mut i = UNIT_POS_X as usize;
        while i < tokens * 2 * plan.states {
            let j = i / comptime!(2 * plan.states);
            let value = i % comptime!(2 * plan.states);
            let of_c = value >= plan.states;
            let n = if of_c { value - plan.states } else { value };
            let mut sum = 0.0f32;
            if comptime!(plan.planes) {
                let lane = n + select(of_c, HALF, 0usize);
                #[unroll]
                for plane in 0..comptime!(plan.units / PLANE) {
                    sum += sums[(plane * plan.chunk() + j) * PLANE + lane];
                }
            } else {
                sum = sums[i];
            }
            if is_state(n, pos) {
                let at = walks.partial.at(begin + j) + n;
                if of_c {
                    if comptime!(!plan.spec.c_constant) {
                        part_c[at] = sum;
                    }
                } else if comptime!(!plan.spec.b_constant) {
                    part_b[at] = sum;
                }
            }
            i += plan.units;
        }
    }
}

/// [`write_bc_partials`] of four states at a time.
#[cube]
fn write_in_fours(
    sums: &Shared<[f32]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    walks: &Walks,
    #[comptime] plan: ScanPlan,
) {
    let part_b = part_b.as_vectorized_mut().with_vector_size_mut::<Const<4>>();
    let part_c = part_c.as_vectorized_mut().with_vector_size_mut::<Const<4>>();
    let per_token = comptime!(PLANE / 4);
    let all = comptime!(plan.chunk() * per_token);
    #[unroll]
    for round in 0..comptime!(all.div_ceil(plan.units)) {
        let i = unit_in_cube(plan) + round * plan.units;
        let (j, four) = (i / per_token, i % per_token);
        if j < tokens {
            let mut sum = Vector::<f32, Const<4>>::new(0.0f32);
            #[unroll]
            for plane in 0..comptime!(plan.units / PLANE) {
                let first = (plane * plan.chunk() + j) * PLANE + four * 4;
                let mut part = Vector::<f32, Const<4>>::empty();
                #[unroll]
                for n in 0..4usize {
                    part.insert(n, sums[first + n]);
                }
                sum += part;
            }
            let at = walks.partial.at(begin + j) / 4 + four % 4;
            if four < 4 {
                part_b[at] = sum;
            } else {
                part_c[at] = sum;
            }
        }
    }
}
