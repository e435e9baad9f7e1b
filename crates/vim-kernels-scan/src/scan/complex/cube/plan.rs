//! Compile-time configuration of the complex scan's kernels, coordinates of a unit, and memory
//! layout.

use cubecl::prelude::*;

use crate::discretization::LEAST_RATE;
use crate::scan::ScanSpec;

pub(super) use crate::scan::complex::{CHUNK, UNITS};

/// Compile-time choices. A two-way method runs one launch per sweep; what both add to is
/// accumulated in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ComplexPlan {
    pub(super) spec: ScanSpec,
    /// Whether this launch walks the tokens from the last to the first.
    pub(super) reverse: bool,
    /// Whether this is the first launch over the sequence, and the last.
    pub(super) first: bool,
    pub(super) last: bool,
    /// Whether chunk states are saved for the backward pass.
    pub(super) save: bool,
}

impl ComplexPlan {
    pub(super) fn new(spec: ScanSpec, sweep: usize, save: bool) -> Self {
        Self {
            spec,
            reverse: spec.options.reverse ^ (sweep == 1),
            first: sweep == 0,
            last: sweep + 1 == spec.sweeps(),
            save,
        }
    }
}

/// The arguments, dense; shapes as in [`crate::selective_scan()`], A, B and C in two parts.
#[derive(CubeType, CubeLaunch)]
pub(super) struct ComplexTensors<F: Float, FB: Float, FC: Float> {
    pub(super) u: Box<[F]>,
    pub(super) delta: Box<[F]>,
    a_re: Box<[f32]>,
    a_im: Box<[f32]>,
    pub(super) b_re: Box<[FB]>,
    pub(super) b_im: Box<[FB]>,
    pub(super) c_re: Box<[FC]>,
    pub(super) c_im: Box<[FC]>,
    pub(super) d: Box<[f32]>,
    pub(super) z: Box<[F]>,
    pub(super) delta_bias: Box<[f32]>,
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
#[expand(derive(Clone, Copy))]
pub(super) struct Sizes {
    pub(super) batch: u32,
    pub(super) len: u32,
    pub(super) d_inner: u32,
    pub(super) d_state: u32,
    pub(super) groups: u32,
    /// Chunk states that earlier launches have saved.
    pub(super) slots_before: u32,
}

/// A unit's batch element and channel, in a call of these sizes.
#[derive(CubeType, Clone, Copy)]
pub(super) struct UnitCoords {
    pub(super) sizes: Sizes,
    #[cube(comptime)]
    pub(super) plan: ComplexPlan,
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
pub(super) fn unit_coords(sizes: Sizes, #[comptime] plan: ComplexPlan) -> UnitCoords {
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let strips = per_group.div_ceil(UNITS);
    let cube = CUBE_POS_X as usize;
    let group = cube / strips;
    let strip = cube % strips;
    let within = strip * UNITS + UNIT_POS_X as usize;
    UnitCoords {
        sizes,
        plan,
        batch: CUBE_POS_Y as usize,
        channel: group * per_group + min(within, per_group - 1),
        group,
        strip,
        active: within < per_group,
    }
}

/// The token of step `step`.
#[cube]
pub(super) fn token_at(step: usize, pos: &UnitCoords) -> usize {
    if comptime!(pos.plan.reverse) { pos.sizes.len as usize - 1 - step } else { step }
}

/// The unit's channel of a token, in a `[B, L, D]`.
#[cube]
pub(super) fn token_index(token: usize, pos: &UnitCoords) -> usize {
    (pos.batch * pos.sizes.len as usize + token) * pos.sizes.d_inner as usize + pos.channel
}

/// State `n` of the unit's channel, of part or slot `slot`, in a `[slots, B, N, D]`.
#[cube]
pub(super) fn state_index(slot: usize, n: usize, pos: &UnitCoords) -> usize {
    let row = (slot * pos.sizes.batch as usize + pos.batch) * pos.sizes.d_state as usize + n;
    row * pos.sizes.d_inner as usize + pos.channel
}

/// State `n` of B or C at a token, in a `[B, L, G, N]`.
#[cube]
pub(super) fn row_index(token: usize, n: usize, pos: &UnitCoords) -> usize {
    let token = pos.batch * pos.sizes.len as usize + token;
    (token * pos.sizes.groups as usize + pos.group) * pos.sizes.d_state as usize + n
}

/// State `n` of the unit's channel, in a `[D, N]`.
#[cube]
pub(super) fn channel_index(n: usize, pos: &UnitCoords) -> usize {
    pos.channel * pos.sizes.d_state as usize + n
}

/// A of state `n`.
#[cube]
pub(super) fn rate<F: Float, FB: Float, FC: Float>(
    tensors: &ComplexTensors<F, FB, FC>,
    n: usize,
    pos: &UnitCoords,
) -> ComplexPair {
    let index = channel_index(n, pos);
    let re = tensors.a_re[index];
    ComplexPair { re: select(re < LEAST_RATE, LEAST_RATE, re), im: tensors.a_im[index] }
}

/// State `n` of B or C at a token, in whichever form it has.
#[cube]
pub(super) fn projection<F: Float>(
    re: &[F],
    im: &[F],
    token: usize,
    n: usize,
    pos: &UnitCoords,
    #[comptime] constant: bool,
) -> ComplexPair {
    let index = if comptime!(constant) { channel_index(n, pos) } else { row_index(token, n, pos) };
    ComplexPair { re: f32::cast_from(re[index]), im: f32::cast_from(im[index]) }
}
