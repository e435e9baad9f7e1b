//! Where a unit works, and the inputs of a token to its channel.

use cubecl::prelude::*;

use super::{Plan, UNITS};

/// The arguments, dense; shapes as in [`crate::full_scan()`].
#[derive(CubeType, CubeLaunch)]
pub(super) struct FullTensors<F: Float, P: Float, Q: Float> {
    pub(super) u: Box<[F]>,
    pub(super) delta: Box<[F]>,
    pub(super) a: Box<[f32]>,
    pub(super) b: Box<[P]>,
    pub(super) c: Box<[Q]>,
    pub(super) d: Box<[f32]>,
    pub(super) z: Box<[F]>,
    pub(super) delta_bias: Box<[f32]>,
}

#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Sizes {
    pub(super) len: usize,
    pub(super) d_inner: usize,
    pub(super) groups: usize,
    /// Blocks that share a group's channels.
    pub(super) blocks: usize,
}

/// The channel and the state of a unit.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct UnitCoords {
    /// The team's number in the block.
    pub(super) unit: usize,
    /// The state; spare units have numbers from N on.
    pub(super) n: usize,
    pub(super) batch: usize,
    pub(super) group: usize,
    /// The block's number in its group.
    pub(super) block: usize,
    pub(super) channel: usize,
    /// Whether the channel exists: the last block of a group may have spare teams.
    pub(super) live: bool,
    /// Whether the channel and the state exist.
    pub(super) state: bool,
}

/// The coordinates of this unit.
#[cube]
pub(super) fn unit_coords(sizes: &Sizes, #[comptime] plan: Plan) -> UnitCoords {
    let unit = UNIT_POS_X as usize;
    let team = comptime!(plan.team);
    let n = unit % team;
    let cube = CUBE_POS_X as usize;
    let group = cube / sizes.blocks;
    let block = cube % sizes.blocks;
    let per_group = sizes.d_inner / sizes.groups;
    let inside = block * comptime!(plan.teams()) + unit / team;
    let live = inside < per_group;
    UnitCoords {
        unit,
        n,
        batch: CUBE_POS_Y as usize,
        group,
        block,
        // Spare teams read an existing channel and write nothing.
        channel: group * per_group + select(live, inside, 0usize),
        live,
        state: live && n < comptime!(plan.n),
    }
}

/// Waits for the units of the team.
#[cube]
pub(super) fn sync_team(#[comptime] plan: Plan) {
    if comptime!(plan.planes) {
        sync_plane();
    } else {
        sync_cube();
    }
}

/// The token that comes `step`-th.
#[cube]
pub(super) fn token_of(step: usize, len: usize, #[comptime] plan: Plan) -> usize {
    if comptime!(plan.spec.options.reverse) { len - 1 - step } else { step }
}

/// Index of B or C of the unit's state at a token: in `[B, L, G, N]`, or in `[D, N]` if constant.
#[cube]
pub(super) fn projection_index(
    token: usize,
    place: &UnitCoords,
    sizes: &Sizes,
    #[comptime] constant: bool,
    #[comptime] plan: Plan,
) -> usize {
    let n = select(place.state, place.n, 0usize);
    let row = if comptime!(constant) { place.channel } else { token * sizes.groups + place.group };
    row * plan.n + n
}

/// The row of `I − half·A` of the unit's state.
#[cube]
pub(super) fn system_row(
    row: &mut Array<f32>,
    a: &Array<f32>,
    half: f32,
    place: &UnitCoords,
    #[comptime] plan: Plan,
) {
    #[unroll]
    for j in 0..plan.n {
        row[j] = select(place.n == j, 1.0f32, 0.0f32) - half * a[j];
    }
}

/// Sum of a channel's N values in `values`, by every unit of the team, in the order of the states.
#[cube]
pub(super) fn team_sum(
    values: &Shared<[f32]>,
    offset: usize,
    place: &UnitCoords,
    #[comptime] plan: Plan,
) -> f32 {
    let first = offset + place.unit - place.n;
    let mut sum = 0.0f32;
    #[unroll]
    for m in 0..comptime!(plan.n) {
        sum += values[first + m];
    }
    sum
}

/// Shared memory for `count` floats per unit.
#[cube]
pub(super) fn per_unit(#[comptime] count: usize) -> Shared<[f32]> {
    Shared::<[f32]>::new_slice(comptime!(count * UNITS))
}

/// 1/(1 + e⁻ˣ).
#[cube]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0f32 / (1.0f32 + f32::exp(-x))
}

/// ln(1 + eˣ), to full precision where it is small, and NaN for NaN.
#[cube]
pub(super) fn softplus(x: f32) -> f32 {
    let e = f32::exp(-f32::abs(x));
    let w = 1.0f32 + e;
    // ln(1 + e) = ln(w)·e/(w − 1): the rounding of w cancels.
    let tail = select(w == 1.0f32, e, f32::ln(w) * (e / (w - 1.0f32)));
    select(x > 0.0f32, x, 0.0f32) + tail
}
