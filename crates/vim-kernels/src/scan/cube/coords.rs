//! Where a unit works, and how it reads what its cube shares.

use cubecl::prelude::*;

use super::forward_step::{Projections, store_state_terms};
use super::plan::ScanPlan;

/// Where a tensor `[B, L, D]` or `[B, L, G, N]` keeps its rows, whose elements follow each other.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Rows {
    /// From a batch element to the next.
    pub(crate) batch: u32,
    /// From a token to the next.
    pub(crate) token: u32,
}

/// Sizes of a call that are known when it is launched.
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
    /// Which scan of a two-way method this is.
    pub(crate) sweep: u32,
    pub(crate) u: Rows,
    pub(crate) delta: Rows,
    pub(crate) z: Rows,
    pub(crate) grad_y: Rows,
    pub(crate) b: Rows,
    pub(crate) c: Rows,
}

/// A unit's channel, its batch element and its segment of the sequence.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct UnitCoords {
    pub(crate) batch: usize,
    /// The batch element within its direction: where both directions read the same.
    pub(crate) element: usize,
    /// Whether the batch element walks the other way than the plan says.
    pub(crate) reversed: bool,
    pub(crate) group: usize,
    pub(crate) channel: usize,
    /// The channel in its group, also beyond the last.
    pub(crate) within: usize,
    /// The channel among those of all directions: where its weights are.
    pub(crate) weights: usize,
    /// Units beyond the last channel of a group compute along, on that channel or on zeros, and write nothing.
    pub(crate) active: bool,
    pub(crate) segment: usize,
    /// Steps of the segment, in the order of the scan.
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// The place of this unit: cubes are `(group × strip of channels, batch, segment)`.
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

/// What a unit's states are numbered by: the `p`-th that it holds is state `p ^ order`.
///
/// Neighbouring units hold the same states, and in the sums over a plane each gives half of what it holds
/// to another. In this order what it gives away lies in the same place in all units.
#[cube]
pub(crate) fn order(#[comptime] plan: ScanPlan) -> usize {
    // Eight units beside each other have the same order: what they read of a state lies in one sector of memory.
    if comptime!(plan.permutes_states()) {
        ((UNIT_POS_X / 2) & 12) as usize
    } else {
        0usize.runtime()
    }
}

/// The token that comes `step`-th.
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

/// Where the token of `step` stands in the unit's channel of batch element `element` of a tensor.
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

/// Where `[segment, batch, state, channel]` stands in a buffer of states.
#[cube]
pub(crate) fn state_index(slot: usize, state: usize, pos: &UnitCoords, sizes: &Sizes) -> usize {
    let row = (slot * sizes.batch as usize + pos.batch) * sizes.d_state as usize
        + sizes.first_state as usize
        + state;
    row * sizes.d_inner as usize + pos.channel
}

/// Whether a unit's state is one: the last pass may hold more than are left.
#[cube]
pub(crate) fn is_state(state: usize, sizes: &Sizes, #[comptime] plan: ScanPlan) -> bool {
    if comptime!(plan.ragged) {
        sizes.first_state as usize + state < sizes.d_state as usize
    } else {
        true.runtime()
    }
}

/// What a segment begins with of a state: 0 of one that is not, and where the sequence is not cut.
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

/// Where the unit's part of a weight's gradient stands in `[slot, element, directions, N, D]`.
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

/// `from[channel, state]`, or 0 for a state that is not.
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

/// The rates of the unit's states, in the form that the forward scan keeps.
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

/// Shared rows and own copies of B and C, read in `order`; what does not vary by token is read here.
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

/// What [`keep`] kept.
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

/// Keeps a sum for the next pass: where its type has 8 bits of significand, what they leave goes to `rest`, so that 16 bits
/// and more are kept in the bytes of one number of the activations' type beside the result's own.
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

/// Values of B or of C that a unit moves from `count` steps into shared memory.
pub(crate) fn elems_per_unit(count: usize, plan: ScanPlan) -> usize {
    (count * plan.states).div_ceil(plan.units)
}

/// Reads the unit's share of the rows of B or C of the `count` steps from `first` on; zeros past the segment. They
/// stay in their type, so that nothing waits for them before [`store_tile_shared`] does.
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

/// Puts what [`load_tile_regs`] read where all units of the cube read it.
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
