//! Compile-time configuration of the complex scan's kernels, coordinates of a unit, and memory
//! layout.

use cubecl::prelude::*;

use crate::discretization::{Discretization, Series};

/// Tokens between saved states, and tokens whose states the backward pass holds at once.
pub(super) const CHUNK: usize = 16;

/// Units of a cube, each a channel.
pub(super) const UNITS: usize = 64;

/// Compile-time choices. A two-way method runs one launch per sweep; what both add to is
/// accumulated in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ComplexPlan {
    pub(super) method: Discretization,
    pub(super) series: Series,
    pub(super) softplus: bool,
    /// Whether this launch walks the tokens from the last to the first.
    pub(super) reverse: bool,
    pub(super) has_d: bool,
    pub(super) has_z: bool,
    pub(super) has_bias: bool,
    pub(super) b_constant: bool,
    pub(super) c_constant: bool,
    /// Whether this is the first launch over the sequence, and the last.
    pub(super) first: bool,
    pub(super) last: bool,
    /// Whether chunk states are saved for the backward pass.
    pub(super) save: bool,
    pub(super) ptx: bool,
}

/// A complex number of a kernel.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct ComplexPair {
    pub(super) re: f32,
    pub(super) im: f32,
}

/// Sizes of a call.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: u32,
    pub(super) len: u32,
    pub(super) d_inner: u32,
    pub(super) d_state: u32,
    pub(super) groups: u32,
    /// Chunk states that earlier launches have saved.
    pub(super) slots_before: u32,
}

/// A unit's batch element and channel.
#[derive(CubeType, Clone, Copy)]
pub(super) struct UnitCoords {
    pub(super) batch: usize,
    pub(super) channel: usize,
    pub(super) group: usize,
    /// The strip of channels in its group.
    pub(super) strip: usize,
    /// Units beyond a group's last channel repeat that channel and write nothing.
    pub(super) active: bool,
}

/// The coordinates of this unit: cubes are `(group × strip of channels, batch)`.
#[cube]
pub(super) fn unit_coords(sizes: &Sizes) -> UnitCoords {
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let strips = per_group.div_ceil(UNITS);
    let cube = CUBE_POS_X as usize;
    let group = cube / strips;
    let strip = cube % strips;
    let within = strip * UNITS + UNIT_POS_X as usize;
    UnitCoords {
        batch: CUBE_POS_Y as usize,
        channel: group * per_group + min(within, per_group - 1),
        group,
        strip,
        active: within < per_group,
    }
}

/// The token of step `step`.
#[cube]
pub(super) fn token_at(step: usize, sizes: &Sizes, #[comptime] plan: ComplexPlan) -> usize {
    if comptime!(plan.reverse) { sizes.len as usize - 1 - step } else { step }
}

/// The unit's channel of a token, in a `[B, L, D]`.
#[cube]
pub(super) fn token_index(token: usize, pos: &UnitCoords, sizes: &Sizes) -> usize {
    (pos.batch * sizes.len as usize + token) * sizes.d_inner as usize + pos.channel
}

/// State `n` of the unit's channel, of part or slot `slot`, in a `[slots, B, N, D]`.
#[cube]
pub(super) fn state_index(slot: usize, n: usize, pos: &UnitCoords, sizes: &Sizes) -> usize {
    let row = (slot * sizes.batch as usize + pos.batch) * sizes.d_state as usize + n;
    row * sizes.d_inner as usize + pos.channel
}

/// State `n` of B or C at a token, in a `[B, L, G, N]`.
#[cube]
pub(super) fn row_index(token: usize, n: usize, pos: &UnitCoords, sizes: &Sizes) -> usize {
    let token = pos.batch * sizes.len as usize + token;
    (token * sizes.groups as usize + pos.group) * sizes.d_state as usize + n
}

/// State `n` of the unit's channel, in a `[D, N]`.
#[cube]
pub(super) fn channel_index(n: usize, pos: &UnitCoords, sizes: &Sizes) -> usize {
    pos.channel * sizes.d_state as usize + n
}

/// State `n` of B or C at a token, in whichever form it has.
#[cube]
pub(super) fn projection<F: Float>(
    re: &[F],
    im: &[F],
    token: usize,
    n: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] constant: bool,
) -> ComplexPair {
    let index = if comptime!(constant) {
        channel_index(n, pos, sizes)
    } else {
        row_index(token, n, pos, sizes)
    };
    ComplexPair { re: f32::cast_from(re[index]), im: f32::cast_from(im[index]) }
}
