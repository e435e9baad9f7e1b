//! Coordinates of a unit, and access to what its cube shares.

use cubecl::prelude::*;

use super::forward_step::{Projections, store_state_terms};
use super::plan::ScanPlan;

/// Strides of a tensor `[B, L, D]` or `[B, L, G, N]` with contiguous rows.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Rows {
    /// From a batch element to the next.
    pub(crate) batch: u32,
    /// From a token to the next.
    pub(crate) token: u32,
}

/// Sizes that are known at the launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) batch: u32,
    /// Batch elements of a direction: all of them, or half where two directions run at once.
    pub(crate) per_direction: u32,
    pub(crate) len: u32,
    pub(crate) d_inner: u32,
    pub(crate) d_state: u32,
    pub(crate) groups: u32,
    /// The first state of this pass.
    pub(crate) first_state: u32,
    /// Tokens of a segment, a multiple of the chunk.
    pub(crate) segment: u32,
    /// The sweep of a two-way method: 0 or 1.
    pub(crate) sweep: u32,
    pub(crate) u: Rows,
    pub(crate) delta: Rows,
    pub(crate) z: Rows,
    pub(crate) grad_y: Rows,
    pub(crate) b: Rows,
    pub(crate) c: Rows,
}

/// A unit's channel, batch element and segment of the sequence.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct UnitCoords {
    pub(crate) batch: usize,
    /// The batch element within its direction, for inputs that both directions share.
    pub(crate) element: usize,
    /// Whether the batch element runs in the direction opposite to the plan's.
    pub(crate) reversed: bool,
    pub(crate) group: usize,
    pub(crate) channel: usize,
    /// The channel in its group, also beyond the last.
    pub(crate) within: usize,
    /// The channel among those of all directions, for the weights.
    pub(crate) weights: usize,
    /// Units beyond the last channel of a group compute on that channel or on zeros, and write
    /// nothing.
    pub(crate) active: bool,
    pub(crate) segment: usize,
    /// Steps of the segment, in the order of the scan.
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// The coordinates of this unit: cubes are `(group × strip of channels, batch, segment)`.
#[cube]
pub(crate) fn unit_coords(sizes: &Sizes, #[comptime] plan: ScanPlan) -> UnitCoords {
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let strips = (per_group + comptime!(plan.units - 1)) / plan.units;
    let group = CUBE_POS_X as usize / strips;
    let within = (CUBE_POS_X as usize % strips) * plan.units + UNIT_POS_X as usize;
    let segment = CUBE_POS_Z as usize;
    let begin = segment * sizes.segment as usize;
    let batch = CUBE_POS_Y as usize;
    let per_direction = sizes.per_direction as usize;
    let reversed =
        if comptime!(plan.bidirectional) { batch >= per_direction } else { false.runtime() };
    let channel = group * per_group + min(within, per_group - 1);
    UnitCoords {
        batch,
        element: if comptime!(plan.bidirectional) { batch % per_direction } else { batch },
        reversed,
        group,
        channel,
        within,
        weights: if comptime!(plan.bidirectional) {
            channel + batch / per_direction * sizes.d_inner as usize
        } else {
            channel
        },
        active: within < per_group,
        segment,
        begin,
        end: min(begin + sizes.segment as usize, sizes.len as usize),
    }
}

/// Permutation of a unit's states: its `p`-th state is state `p ^ order`.
///
/// Adjacent units hold the same states, and in the sums over a plane each gives half of its values
/// to another. In this order the values that a unit gives have the same positions in all units.
#[cube]
pub(crate) fn order(#[comptime] plan: ScanPlan) -> usize {
    // Eight adjacent units have the same order: their reads of a state lie in one memory sector.
    if comptime!(plan.permutes_states()) {
        ((UNIT_POS_X / 2) & 12) as usize
    } else {
        0usize.runtime()
    }
}

/// The token of step `step`.
#[cube]
pub(crate) fn token_at(
    step: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> usize {
    let from_behind = sizes.len as usize - 1 - step;
    if comptime!(plan.bidirectional) {
        let reverse = if comptime!(plan.reverse) { !pos.reversed } else { pos.reversed };
        select(reverse, from_behind, step)
    } else if comptime!(plan.reverse) {
        from_behind
    } else {
        step
    }
}

/// Index of the token of `step` in the unit's channel of batch element `element` of a tensor.
#[cube]
pub(crate) fn row_index(
    step: usize,
    element: usize,
    rows: &Rows,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> usize {
    let token = token_at(step, pos, sizes, plan);
    element * rows.batch as usize + pos.channel + token * rows.token as usize
}

/// Index of `[segment, batch, state, channel]` in a buffer of states.
#[cube]
pub(crate) fn state_index(slot: usize, state: usize, pos: &UnitCoords, sizes: &Sizes) -> usize {
    let row = (slot * sizes.batch as usize + pos.batch) * sizes.d_state as usize
        + sizes.first_state as usize
        + state;
    row * sizes.d_inner as usize + pos.channel
}

/// Whether a unit's state exists: the last pass may have states to spare.
#[cube]
pub(crate) fn is_state(state: usize, sizes: &Sizes, #[comptime] plan: ScanPlan) -> bool {
    if comptime!(plan.ragged) {
        sizes.first_state as usize + state < sizes.d_state as usize
    } else {
        true.runtime()
    }
}

/// A state at the beginning of the segment: 0 if it does not exist, or if the sequence is not cut.
#[cube]
pub(crate) fn carried_state(
    carry: &[f32],
    state: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> f32 {
    if comptime!(plan.segmented) {
        let mut value = 0.0f32;
        if is_state(state, sizes, plan) {
            value = carry[state_index(pos.segment, state, pos, sizes)];
        }
        value
    } else {
        0.0f32.runtime()
    }
}

/// Index of the unit's part of a weight's gradient in `[slot, element, directions, N, D]`.
#[cube]
pub(crate) fn weight_grad_index(
    slot: usize,
    state: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
) -> usize {
    let (batch, per_direction, d_inner) =
        (sizes.batch as usize, sizes.per_direction as usize, sizes.d_inner as usize);
    let row = slot * batch + pos.element * (batch / per_direction) + pos.weights / d_inner;
    (row * sizes.d_state as usize + sizes.first_state as usize + state) * d_inner + pos.channel
}

/// `from[channel, state]`, or 0 for a state that does not exist.
#[cube]
pub(crate) fn state_weight<F: Float>(
    from: &[F],
    state: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> f32 {
    let n = sizes.first_state as usize + state;
    let base = pos.weights * sizes.d_state as usize;
    if comptime!(plan.ragged) {
        let last = sizes.d_state as usize - 1;
        let value = f32::cast_from(from[base + min(n, last)]);
        select(n <= last, value, 0.0f32)
    } else {
        f32::cast_from(from[base + n])
    }
}

/// The terms of the unit's states for the forward scan.
#[cube]
pub(crate) fn load_state_terms(
    rates: &mut Array<f32>,
    a: &[f32],
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    #[unroll]
    for n in 0..plan.states {
        store_state_terms(rates, state_weight::<f32>(a, n, pos, sizes, plan), n, plan);
    }
}

/// Shared rows and registers of B and C, read in `order`; constant ones are loaded here.
#[cube]
pub(crate) fn projections<FB: Float, FC: Float>(
    b: &[FB],
    c: &[FC],
    order: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> Projections {
    let shared_b = comptime!(if plan.b_constant { 1 } else { plan.tile * plan.states });
    let shared_c = comptime!(if plan.c_constant { 1 } else { plan.tile * plan.states });
    let mut own_b = Array::<f32>::new(comptime!(if plan.b_constant { plan.states } else { 1 }));
    let mut own_c = Array::<f32>::new(comptime!(if plan.c_constant { plan.states } else { 1 }));
    if comptime!(plan.b_constant) {
        #[unroll]
        for n in 0..plan.states {
            own_b[n] = state_weight::<FB>(b, n, pos, sizes, plan);
        }
    }
    if comptime!(plan.c_constant) {
        #[unroll]
        for n in 0..plan.states {
            own_c[n] = state_weight::<FC>(c, n, pos, sizes, plan);
        }
    }
    Projections {
        b: Shared::<[f32]>::new_slice(shared_b),
        c: Shared::<[f32]>::new_slice(shared_c),
        own_b,
        own_c,
        order,
    }
}

/// The sum that [`store_split`] stored.
#[cube]
pub(crate) fn load_split<F: Float>(
    sum: &mut [F],
    rest: &mut [F],
    index: usize,
    #[comptime] plan: ScanPlan,
) -> f32 {
    let saved = f32::cast_from(sum[index]);
    if comptime!(plan.split) { saved + f32::cast_from(rest[index]) } else { saved }
}

/// Stores a sum for the next pass. Where its type has 8 bits of significand, the remainder is
/// stored in `rest`, which keeps at least 16 bits.
#[cube]
pub(crate) fn store_split<F: Float>(
    sum: &mut [F],
    rest: &mut [F],
    index: usize,
    value: f32,
    #[comptime] plan: ScanPlan,
) {
    let saved = F::cast_from(value);
    sum[index] = saved;
    if comptime!(plan.split) {
        rest[index] = F::cast_from(value - f32::cast_from(saved));
    }
}

/// Elements of B or C that a unit copies for `count` steps.
pub(crate) fn elems_per_unit(count: usize, plan: ScanPlan) -> usize {
    (count * plan.states).div_ceil(plan.units)
}

/// Loads the unit's share of the rows of B or C of the `count` steps from `first` on; zeros past
/// the segment. The values stay in their type, so that nothing waits for them before
/// [`store_tile_shared`].
#[cube]
pub(crate) fn load_tile_regs<F: Float>(
    to: &mut Array<F>,
    from: &[F],
    rows: &Rows,
    first: usize,
    #[comptime] count: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    #[unroll]
    for k in 0..comptime!(elems_per_unit(count, plan)) {
        let i = UNIT_POS_X as usize + k * plan.units;
        let step = first + i / plan.states;
        let n = sizes.first_state as usize + i % plan.states;
        let mut in_bounds = step < pos.end;
        if comptime!(plan.ragged) {
            in_bounds = in_bounds && n < sizes.d_state as usize;
        }
        to[k] = F::new(0.0f32);
        if in_bounds {
            let token = token_at(step, pos, sizes, plan) * rows.token as usize;
            let row = pos.batch * rows.batch as usize + token;
            to[k] = from[row + pos.group * sizes.d_state as usize + n];
        }
    }
}

/// Stores what [`load_tile_regs`] loaded in shared memory.
#[cube]
pub(crate) fn store_tile_shared<F: Float>(
    to: &mut Shared<[f32]>,
    from: &Array<F>,
    #[comptime] count: usize,
    #[comptime] plan: ScanPlan,
) {
    #[unroll]
    for k in 0..comptime!(elems_per_unit(count, plan)) {
        let i = UNIT_POS_X as usize + k * plan.units;
        if comptime!((k + 1) * plan.units <= count * plan.states) || i < count * plan.states {
            to[i] = f32::cast_from(from[k]);
        }
    }
}
