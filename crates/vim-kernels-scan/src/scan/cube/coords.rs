//! Arguments and coordinates of a unit, and access to what its cube reads and shares.

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::layout::{Projected, ScanPlan};
use crate::scan::ScanArguments;
use vim_kernels_core::cube::dense;
use vim_kernels_core::cube::strides::{fits_u32_index, in_rows};

/// A tensor `[B, L, D]` or `[B, L, G, N]` with contiguous rows.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Rows<F: Float> {
    pub(crate) data: Box<[F]>,
    /// Stride from a batch element to the next.
    pub(crate) batch: u32,
    /// Stride from a token to the next.
    pub(crate) token: u32,
}

/// The arguments of a scan, shapes as in [`crate::selective_scan()`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct ScanTensors<F: Float, FB: Float, FC: Float> {
    pub(crate) u: Rows<F>,
    pub(crate) delta: Rows<F>,
    pub(crate) a: Box<[f32]>,
    pub(crate) b: Rows<FB>,
    pub(crate) c: Rows<FC>,
    pub(crate) d: Box<[f32]>,
    pub(crate) z: Rows<F>,
    pub(crate) delta_bias: Box<[f32]>,
}

/// As [`in_rows`] for B and C, whose rows are groups of states.
fn in_groups(tensor: CubeTensor) -> CubeTensor {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let follow = strides[3] == 1 && (shape[2] == 1 || strides[2] == shape[3]);
    if follow && fits_u32_index(&tensor) { tensor } else { dense(tensor) }
}

impl ScanArguments<CubeBackend> {
    pub(super) fn dense(self) -> Self {
        Self {
            u: in_rows(self.u),
            delta: in_rows(self.delta),
            a: dense(self.a),
            b: in_groups(self.b),
            c: in_groups(self.c),
            d: dense(self.d),
            z: in_rows(self.z),
            delta_bias: dense(self.delta_bias),
        }
    }

    pub(super) fn launch<F: Float, FB: Float, FC: Float>(&self) -> ScanTensorsLaunch<F, FB, FC> {
        ScanTensorsLaunch::new(
            rows_launch(&self.u),
            rows_launch(&self.delta),
            self.a.clone().into_buffer_arg(),
            rows_launch(&self.b),
            rows_launch(&self.c),
            self.d.clone().into_buffer_arg(),
            rows_launch(&self.z),
            self.delta_bias.clone().into_buffer_arg(),
        )
    }
}

pub(super) fn rows_launch<F: Float>(of: &CubeTensor) -> RowsLaunch<F> {
    let strides = of.meta.strides();
    RowsLaunch::new(of.clone().into_buffer_arg(), strides[0] as u32, strides[1] as u32)
}

/// Sizes that are known at the launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
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
}

/// A unit's channel, batch element and segment of the sequence, in a call of these sizes.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct UnitCoords {
    pub(crate) sizes: Sizes,
    #[cube(comptime)]
    pub(crate) plan: ScanPlan,
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
pub(crate) fn unit_coords(sizes: Sizes, #[comptime] plan: ScanPlan) -> UnitCoords {
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let strips = (per_group + comptime!(plan.units - 1)) / plan.units;
    let group = CUBE_POS_X as usize / strips;
    let within = (CUBE_POS_X as usize % strips) * plan.units + UNIT_POS_X as usize;
    let segment = CUBE_POS_Z as usize + comptime!(plan.first_segment);
    let begin = segment * sizes.segment as usize;
    let batch = CUBE_POS_Y as usize;
    let per_direction = sizes.per_direction as usize;
    let reversed =
        if comptime!(plan.spec.bidirectional) { batch >= per_direction } else { false.runtime() };
    let channel = group * per_group + min(within, per_group - 1);
    UnitCoords {
        sizes,
        plan,
        batch,
        element: if comptime!(plan.spec.bidirectional) { batch % per_direction } else { batch },
        reversed,
        group,
        channel,
        within,
        weights: if comptime!(plan.spec.bidirectional) {
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

/// The unit's number in its cube, masked where that shows the compiler that an index does not wrap:
/// then it leaves constant parts of the index to the instruction.
#[cube]
pub(super) fn unit_in_cube(#[comptime] plan: ScanPlan) -> usize {
    let unit = UNIT_POS_X as usize;
    if comptime!(plan.units.is_power_of_two()) { unit % plan.units } else { unit }
}

/// The token of step `step`.
#[cube]
pub(crate) fn token_at(step: usize, pos: &UnitCoords) -> usize {
    let plan = comptime!(pos.plan);
    let step = if comptime!(plan.mirrored) { pos.begin + pos.end - 1 - step } else { step };
    let from_behind = pos.sizes.len as usize - 1 - step;
    if comptime!(plan.spec.bidirectional) {
        let reverse = if comptime!(plan.reverse) { !pos.reversed } else { pos.reversed };
        select(reverse, from_behind, step)
    } else if comptime!(plan.reverse) {
        from_behind
    } else {
        step
    }
}

/// The token of `step` in the unit's channel of batch element `element` of a tensor.
#[cube]
pub(crate) fn read_row<F: Float>(
    from: &Rows<F>,
    step: usize,
    element: usize,
    pos: &UnitCoords,
) -> F {
    let token = token_at(step, pos);
    from.data[element * from.batch as usize + pos.channel + token * from.token as usize]
}

/// The input before `step`, of the unit's channel; 0 before the first token.
#[cube]
pub(crate) fn input_before<F: Float>(u: &Rows<F>, step: usize, pos: &UnitCoords) -> F {
    let value = read_row::<F>(u, max(step, 1usize) - 1, pos.batch, pos);
    select(step > 0, value, F::new(0.0f32))
}

/// Index of the token of `step` in a dense `[B, L, D]`, in the unit's channel.
#[cube]
pub(crate) fn token_index(step: usize, pos: &UnitCoords) -> usize {
    let token = pos.batch * pos.sizes.len as usize + token_at(step, pos);
    token * pos.sizes.d_inner as usize + pos.channel
}

/// Index of `[segment, batch, state, channel]` in a buffer of states.
#[cube]
pub(crate) fn state_index(slot: usize, state: usize, pos: &UnitCoords) -> usize {
    let row = (slot * pos.sizes.batch as usize + pos.batch) * pos.sizes.d_state as usize
        + pos.sizes.first_state as usize
        + state;
    row * pos.sizes.d_inner as usize + pos.channel
}

/// Whether a unit's state exists: the last pass may have states to spare.
#[cube]
pub(crate) fn is_state(state: usize, pos: &UnitCoords) -> bool {
    if comptime!(pos.plan.ragged) {
        pos.sizes.first_state as usize + state < pos.sizes.d_state as usize
    } else {
        true.runtime()
    }
}

/// A state at the beginning of the segment: 0 if it does not exist, or if the sequence is not cut.
#[cube]
pub(crate) fn carried_state(carry: &[f32], state: usize, pos: &UnitCoords) -> f32 {
    if comptime!(pos.plan.segmented) {
        let mut value = 0.0f32;
        if is_state(state, pos) {
            value = carry[state_index(pos.segment, state, pos)];
        }
        value
    } else {
        0.0f32.runtime()
    }
}

/// The states at the beginning of the segment.
#[cube]
pub(crate) fn unit_states(carry: &[f32], pos: &UnitCoords) -> Array<f32> {
    let mut states = Array::<f32>::new(pos.plan.states);
    #[unroll]
    for n in 0..pos.plan.states {
        states[n] = carried_state(carry, n, pos);
    }
    states
}

/// Index of the unit's part of a weight's gradient in `[slot, element, directions, N, D]`.
#[cube]
pub(crate) fn weight_grad_index(slot: usize, state: usize, pos: &UnitCoords) -> usize {
    let batch = pos.sizes.batch as usize;
    let d_inner = pos.sizes.d_inner as usize;
    let directions = batch / pos.sizes.per_direction as usize;
    let row = slot * batch + pos.element * directions + pos.weights / d_inner;
    let state = pos.sizes.first_state as usize + state;
    (row * pos.sizes.d_state as usize + state) * d_inner + pos.channel
}

/// `from[channel, state]`, or 0 for a state that does not exist.
#[cube]
pub(crate) fn state_weight<F: Float>(from: &[F], state: usize, pos: &UnitCoords) -> f32 {
    let n = pos.sizes.first_state as usize + state;
    let base = pos.weights * pos.sizes.d_state as usize;
    if comptime!(pos.plan.ragged) {
        let last = pos.sizes.d_state as usize - 1;
        let value = f32::cast_from(from[base + min(n, last)]);
        select(n <= last, value, 0.0f32)
    } else {
        f32::cast_from(from[base + n])
    }
}

/// The bias of the unit's delta.
#[cube]
pub(crate) fn unit_bias(delta_bias: &[f32], pos: &UnitCoords) -> f32 {
    if comptime!(pos.plan.spec.has_delta_bias) { delta_bias[pos.weights] } else { 0.0f32.runtime() }
}

/// The gain of the unit's skip connection.
#[cube]
pub(crate) fn unit_skip(d: &[f32], pos: &UnitCoords) -> f32 {
    if comptime!(pos.plan.skips()) { d[pos.weights] } else { 0.0f32.runtime() }
}

/// The unit's share of the rows of B or C of the tile from step `first` on; zeros past the segment
/// and before the first token, and nothing where they are constant. The values stay in their type,
/// so that nothing waits for them before [`turn_tile`].
#[cube]
pub(crate) fn load_tile<F: Float>(
    to: &mut Array<F>,
    from: &Rows<F>,
    first: usize,
    #[comptime] of: Projected,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    if comptime!(!plan.constant(of)) {
        #[unroll]
        for k in 0..comptime!(plan.tile_elems_per_unit(of)) {
            let i = UNIT_POS_X as usize + k * plan.units;
            let row = first + i / plan.states;
            let before = comptime!(plan.rows_before(of));
            let step = if comptime!(before > 0) { max(row, before) - before } else { row };
            let n = pos.sizes.first_state as usize + i % plan.states;
            let mut in_bounds = step < pos.end;
            if comptime!(before > 0) {
                in_bounds = in_bounds && row >= before;
            }
            if comptime!(plan.ragged) {
                in_bounds = in_bounds && n < pos.sizes.d_state as usize;
            }
            to[k] = F::new(0.0f32);
            if in_bounds {
                let token = token_at(step, pos) * from.token as usize;
                let row = pos.batch * from.batch as usize + token;
                to[k] = from.data[row + pos.group * pos.sizes.d_state as usize + n];
            }
        }
    }
}

/// Stores the tile that [`load_tile`] loaded in shared memory, and loads the one from `first` on.
#[cube]
pub(crate) fn turn_tile<F: Float>(
    shared: &mut Shared<[f32]>,
    next: &mut Array<F>,
    from: &Rows<F>,
    first: usize,
    #[comptime] of: Projected,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    if comptime!(!plan.constant(of)) {
        let count = comptime!(plan.tile_len(of));
        #[unroll]
        for k in 0..comptime!(plan.tile_elems_per_unit(of)) {
            let i = UNIT_POS_X as usize + k * plan.units;
            if comptime!((k + 1) * plan.units <= count) || i < count {
                shared[i] = f32::cast_from(next[k]);
            }
        }
    }
    load_tile::<F>(next, from, first, of, pos);
}

/// The sum that [`store_split`] stored; in a first pass, the other direction's whole output.
#[cube]
pub(crate) fn load_split<F: Float>(
    sum: &mut [F],
    rest: &mut [F],
    index: usize,
    #[comptime] plan: ScanPlan,
) -> f32 {
    let saved = f32::cast_from(sum[index]);
    if comptime!(plan.split && !plan.first) { saved + f32::cast_from(rest[index]) } else { saved }
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

/// Writes the gradients of a token, or what this pass has of them for the next.
#[cube]
pub(crate) fn write_token<F: Float>(
    grads: &mut TokenGradTensors<F>,
    here: usize,
    du: f32,
    ddelta: f32,
    dz: f32,
    #[comptime] plan: ScanPlan,
) {
    if comptime!(plan.wanted[0]) {
        write_one::<F>(&mut grads.u, &mut grads.rest_u, here, du, plan);
    }
    if comptime!(plan.wanted[1] || (plan.wants_delta() && !plan.last)) {
        write_one::<F>(&mut grads.delta, &mut grads.rest_delta, here, ddelta, plan);
    }
    if comptime!(plan.spec.has_z && plan.wanted[6]) {
        write_one::<F>(&mut grads.z, &mut grads.rest_z, here, dz, plan);
    }
}

/// Writes one of them.
#[cube]
fn write_one<F: Float>(
    grads: &mut [F],
    rest: &mut [F],
    here: usize,
    value: f32,
    #[comptime] plan: ScanPlan,
) {
    if comptime!(plan.last) {
        grads[here] = F::cast_from(value);
    } else {
        store_split::<F>(grads, rest, here, value, plan);
    }
}
