//! The sums of a token's gradients of B and C over a cube's channels, in a fixed order.

use cubecl::prelude::*;

use super::backward_step::Adjoint;
use super::coords::{UnitCoords, is_state, unit_in_cube};
use super::layout::{MAX_STATE_VECTOR, PLANE, ScanPlan};
use super::walk::Walks;

/// Shared memory of [`reduce_over_channels`], in floats.
pub(super) fn sums_len(plan: ScanPlan) -> usize {
    if plan.pairs_channels() || plan.spec.b_constant && plan.spec.c_constant {
        1
    } else if plan.planes {
        plan.units / PLANE * plan.chunk() * 2 * HALF
    } else {
        plan.chunk() * 2 * plan.states + 2 * plan.states * plan.units
    }
}

/// A plane's sums for B; those for C follow.
const HALF: usize = PLANE / 2;

/// The sum over the plane's channels of one of the token's gradients of B and C, of units that have
/// states of [two channels](super::pairs).
#[cube]
pub(super) fn sum_over_plane(adjoint: &Adjoint, #[comptime] plan: ScanPlan) -> f32 {
    let lane = UNIT_POS_X % comptime!(PLANE as u32);
    // Units with the same states exchange. By their order, each gives its last four.
    let half = comptime!(plan.states_per_channel() / 2);
    let mut values = Array::<f32>::new(comptime!(2 * half));
    #[unroll]
    for n in 0..half {
        values[n] = adjoint.b[n] + plane_shuffle_xor(adjoint.b[n + half], 2u32);
        values[n + half] = adjoint.c[n] + plane_shuffle_xor(adjoint.c[n + half], 2u32);
    }
    halve(&mut values, 4usize, 4u32, lane);
    halve(&mut values, 2usize, 16u32, lane);
    halve(&mut values, 1usize, 8u32, lane);
    values[0]
}

/// Keeps the unit's [sum](sum_over_plane) of the `j`-th token in place of the first states before
/// that token, which all units of the plane have read.
#[cube]
pub(super) fn keep_sum<W: Size>(
    before: &mut Shared<[Vector<f32, W>]>,
    sum: f32,
    order: usize,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let lane = UNIT_POS_X as usize % PLANE;
    let value = order + lane / 8 + (lane & 4) * comptime!(HALF / 4);
    let plane = unit_in_cube(plan) / PLANE;
    let sums = before.with_vector_size_mut::<Const<1>>();
    sums[first_saved(j, plane, plan) * MAX_STATE_VECTOR + value] = Vector::new(sum);
}

/// Index of the first vector that a plane stores for the `j`-th token of a chunk.
#[cube]
fn first_saved(j: usize, plane: usize, #[comptime] plan: ScanPlan) -> usize {
    j * comptime!(plan.spec.sweeps() * plan.saved_vectors() * plan.units) + plane * PLANE
}

/// Sums the gradients of B and C of the `j`-th token over the cube's channels, or over each
/// plane's.
#[cube]
pub(super) fn reduce_over_channels(
    sums: &mut Shared<[f32]>,
    adjoint: &Adjoint,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let unit = unit_in_cube(plan);
    if comptime!(plan.planes) {
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
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
pub(super) fn write_bc_partials<W: Size>(
    sums: &Shared<[f32]>,
    before: &Shared<[Vector<f32, W>]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    walks: &Walks,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    if comptime!(plan.pairs_channels()) {
        write_in_fours::<W>(before, part_b, part_c, begin, tokens, walks, plan);
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

/// [`write_bc_partials`] of the sums that [`keep_sum`] kept, four states at a time.
#[cube]
fn write_in_fours<W: Size>(
    before: &Shared<[Vector<f32, W>]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    walks: &Walks,
    #[comptime] plan: ScanPlan,
) {
    let part_b = part_b.as_vectorized_mut().with_vector_size_mut::<W>();
    let part_c = part_c.as_vectorized_mut().with_vector_size_mut::<W>();
    let per_token = comptime!(2 * HALF / MAX_STATE_VECTOR);
    #[unroll]
    for round in 0..comptime!((plan.chunk() * per_token).div_ceil(plan.units)) {
        let i = unit_in_cube(plan) + round * plan.units;
        let (j, four) = (i / per_token, i % per_token);
        if j < tokens {
            let mut sum = Vector::<f32, W>::new(0.0f32);
            #[unroll]
            for plane in 0..comptime!(plan.units / PLANE) {
                sum += before[first_saved(j, plane, plan) + four];
            }
            let of_c = four >= comptime!(per_token / 2);
            let at = walks.partial.at(begin + j) / MAX_STATE_VECTOR + four % (per_token / 2);
            if of_c {
                part_c[at] = sum;
            } else {
                part_b[at] = sum;
            }
        }
    }
}
