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

/// Lanes of a plane that hold a sum for B; the other lanes hold one for C.
const HALF: usize = PLANE / 2;

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
    if comptime!(plan.permutes_states()) {
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
        let of_b = sum_in_order(&adjoint.b, lane);
        let of_c = sum_in_order(&adjoint.c, lane);
        let upper = lane & 4 != 0;
        let keep = select(upper, of_c, of_b);
        let send = select(upper, of_b, of_c);
        let sum = keep + plane_shuffle_xor(send, 4u32);
        sums[(unit / PLANE * plan.chunk() + j) * PLANE + unit % PLANE] = sum;
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
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
        #[unroll]
        for round in 0..5usize {
            let half = comptime!(HALF >> round);
            let upper = lane & comptime!(half as u32) != 0;
            #[unroll]
            for i in 0..half {
                let (low, high) = (values[i], values[i + half]);
                let keep = select(upper, high, low);
                let send = select(upper, low, high);
                values[i] = keep + plane_shuffle_xor(send, comptime!(half as u32));
            }
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

/// The sum, over 16 lanes, of the state that [`lane_of`] assigns to this lane. Lanes hold their
/// states in [order](super::coords::order), so that the exchange of groups of four needs no
/// selection.
#[cube]
fn sum_in_order(of: &Array<f32>, lane: u32) -> f32 {
    let mut values = Array::<f32>::new(HALF);
    #[unroll]
    for i in 0..HALF {
        values[i] = of[i];
    }
    #[unroll]
    for round in 0..4usize {
        let half = comptime!(HALF >> (round + 1));
        let across = comptime!((if half >= 4 { 2 * half } else { half }) as u32);
        let upper = lane & across != 0;
        #[unroll]
        for i in 0..half {
            let (low, high) = (values[i], values[i + half]);
            values[i] = if comptime!(half >= 4) {
                low + plane_shuffle_xor(high, across)
            } else {
                let keep = select(upper, high, low);
                let send = select(upper, low, high);
                keep + plane_shuffle_xor(send, across)
            };
        }
    }
    values[0]
}

/// The lane that holds a state's sum, for B or for C.
#[cube]
fn lane_of(state: usize, of_c: bool, #[comptime] plan: ScanPlan) -> usize {
    if comptime!(plan.permutes_states()) {
        state / 4 * 8 + state % 4 + select(of_c, 4usize, 0usize)
    } else {
        state + select(of_c, HALF, 0usize)
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
    if comptime!(plan.permutes_states() && plan.ptx) {
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
                let lane = lane_of(n, of_c, plan);
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

/// [`write_bc_partials`] of four states at a time, which four adjacent lanes hold by [`lane_of`].
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
            let at = walks.partial.at(begin + j) / 4 + four / 2;
            if four % 2 == 0 {
                part_b[at] = sum;
            } else {
                part_c[at] = sum;
            }
        }
    }
}
