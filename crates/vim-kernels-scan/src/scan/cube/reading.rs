//! How a unit of the backward scan reads: which states of which channels it has, where its steps
//! lie in memory, and the chunk whose u and delta are in shared memory.
//!
//! A unit has all states of its channel, or half of two channels'. Adjacent units share their two
//! channels where [`ScanPlan::pairs_channels`]: each holds the same states of both, first of its
//! own channel. The gradients of B and C, sums over channels, are then added over the two in
//! registers, half as many values of B and C are read, and half as many sums are exchanged within
//! the plane. What belongs to a token but not to a state is computed for the unit's own channel;
//! numbers that the other channel's states need, and the sums over states, pass from one unit to
//! the other.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::coords::{Rows, ScanTensors, UnitCoords, token_at, unit_in_cube};
use super::layout::ScanPlan;
use vim_kernels_core::Traced;

#[cube]
pub(super) fn from_neighbour(value: f32) -> f32 {
    plane_shuffle_xor(value, 1u32)
}

/// Channel, place in the channel and number of each of a unit's `states`, which are of one channel
/// or, half each, of two. States that read the same B and C follow each other.
pub(super) fn places(states: usize, channels: usize) -> impl Iterator<Item = [usize; 3]> {
    let per_channel = states / channels;
    (0..states).map(move |i| {
        let (channel, place) = (i % channels, i / channels);
        [channel, place, channel * per_channel + place]
    })
}

/// A number of the unit's channel, and that of the other if it has states of two `channels`.
pub(super) fn of_channels<'a>(
    scope: &'a Scope,
    own: Traced<'a>,
    channels: usize,
) -> Vec<Traced<'a>> {
    let other = (channels == 2).then(|| {
        let value = from_neighbour::expand(scope, own.clone().value());
        own.with(value)
    });
    [own].into_iter().chain(other).collect()
}

/// What the unit's states belong to.
#[derive(CubeType)]
pub(super) struct Shares {
    own: UnitCoords,
    other: UnitCoords,
    /// The `p`-th state of a channel is state `p ^ order`.
    pub(super) order: usize,
}

#[cube]
impl Shares {
    pub(super) fn new(own: UnitCoords) -> Shares {
        Shares { own, other: neighbour(&own), order: order(own.plan) }
    }

    /// Coordinates of the channel of the `n`-th state.
    pub(super) fn coords(&self, #[comptime] n: usize) -> UnitCoords {
        if comptime!(n < self.own.plan.states_per_channel()) { self.own } else { self.other }
    }

    /// The number of the `n`-th state in its channel.
    pub(super) fn state(&self, #[comptime] n: usize) -> usize {
        comptime!(n % self.own.plan.states_per_channel()) ^ self.order
    }
}

/// The coordinates of the adjacent unit.
#[cube]
fn neighbour(of: &UnitCoords) -> UnitCoords {
    let within = of.within ^ 1;
    let per_group = of.sizes.d_inner as usize / of.sizes.groups as usize;
    let channel = of.group * per_group + min(within, per_group - 1);
    UnitCoords {
        sizes: of.sizes,
        plan: of.plan,
        batch: of.batch,
        element: of.element,
        reversed: of.reversed,
        group: of.group,
        channel,
        within,
        weights: of.weights + channel - of.channel,
        active: within < per_group,
        segment: of.segment,
        begin: of.begin,
        end: of.end,
    }
}

/// Permutation of a unit's states where it has half of two channels'. By the lane's lowest bit they
/// are the first or the last eight; by the next one, the first or the last four of these come
/// first: of two units that exchange sums, each gives those behind.
#[cube]
fn order(#[comptime] plan: ScanPlan) -> usize {
    if comptime!(plan.pairs_channels()) {
        ((UNIT_POS_X & 1) * 8 + (UNIT_POS_X & 2) * 2) as usize
    } else {
        0usize.runtime()
    }
}

/// Step `s` lies at `first + s·stride`: one multiplication where [`token_at`] has to tell the
/// directions apart. In a walk from the last token on the stride is negative; the arithmetic wraps.
#[derive(CubeType)]
pub(super) struct Walk {
    first: usize,
    stride: usize,
}

#[cube]
impl Walk {
    /// The walk where token `t` lies at `start + t·stride`.
    fn new(start: usize, stride: usize, pos: &UnitCoords) -> Walk {
        let plan = comptime!(pos.plan);
        let turned = comptime!(plan.mirrored != plan.reverse);
        let down = if comptime!(plan.spec.bidirectional) {
            if comptime!(turned) { !pos.reversed } else { pos.reversed }
        } else {
            turned.runtime()
        };
        Walk {
            first: start + token_at(0usize, pos) * stride,
            stride: select(down, 0usize - stride, stride),
        }
    }

    /// The unit's channel of batch element `element` of a tensor.
    fn of_rows<F: Float>(rows: &Rows<F>, element: usize, pos: &UnitCoords) -> Walk {
        Walk::new(element * rows.batch as usize + pos.channel, rows.token as usize, pos)
    }

    pub(super) fn at(&self, step: usize) -> usize {
        self.first + step * self.stride
    }
}

/// The walks through what a backward scan reads for each token, and through what it writes.
#[derive(CubeType)]
pub(super) struct Walks {
    u: Walk,
    delta: Walk,
    dy: Walk,
    z: Walk,
    /// Dense `[B, L, D]`, in the unit's channel.
    pub(super) out: Walk,
    /// Rows of partial gradients of B and C, `[strips, B, L, G, N]`, from the pass's first state.
    pub(super) partial: Walk,
}

#[cube]
pub(super) fn walks<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    pos: &UnitCoords,
) -> Walks {
    let plan = comptime!(pos.plan);
    let sizes = &pos.sizes;
    let (len, d_inner) = (sizes.len as usize, sizes.d_inner as usize);
    let (groups, d_state) = (sizes.groups as usize, sizes.d_state as usize);
    let strips = (d_inner / groups + comptime!(plan.units - 1)) / plan.units;
    let strip = CUBE_POS_X as usize % strips;
    let part = (strip * sizes.batch as usize + pos.batch) * len * groups + pos.group;
    Walks {
        u: Walk::of_rows::<F>(&tensors.u, pos.batch, pos),
        delta: Walk::of_rows::<F>(&tensors.delta, pos.batch, pos),
        dy: Walk::of_rows::<F>(grad_y, pos.element, pos),
        z: Walk::of_rows::<F>(&tensors.z, pos.element, pos),
        out: Walk::new(pos.batch * len * d_inner + pos.channel, d_inner, pos),
        partial: Walk::new(part * d_state + sizes.first_state as usize, groups * d_state, pos),
    }
}

/// Inputs of each token that is read ahead: u, delta, the output's gradient and z.
const INPUTS: usize = 4;

/// The inputs of the next tokens of the backward loop, in their storage type: nothing waits for
/// them before their use. Those of z are unset where there is no gate. Where the method reads the
/// token before, its u is behind them all.
#[derive(CubeType)]
pub(super) struct InputsAhead<F: Float> {
    values: Array<F>,
}

#[cube]
impl<F: Float> InputsAhead<F> {
    pub(super) fn new(#[comptime] plan: ScanPlan) -> InputsAhead<F> {
        let len = comptime!(plan.inputs_len(INPUTS) * plan.read_ahead());
        InputsAhead::<F> { values: Array::<F>::new(len) }
    }

    /// The `place`-th token.
    pub(super) fn token(
        &self,
        #[comptime] place: usize,
        #[comptime] plan: ScanPlan,
    ) -> TokenInputs {
        let u = f32::cast_from(self.values[comptime!(INPUTS * place)]);
        TokenInputs {
            u,
            before: if comptime!(plan.two_taps()) {
                f32::cast_from(self.values[comptime!(INPUTS * plan.read_ahead() + place)])
            } else {
                u
            },
            delta: f32::cast_from(self.values[comptime!(INPUTS * place + 1)]),
            dy: f32::cast_from(self.values[comptime!(INPUTS * place + 2)]),
            z: f32::cast_from(self.values[comptime!(INPUTS * place + 3)]),
        }
    }
}

/// The inputs of a token.
#[derive(CubeType)]
pub(super) struct TokenInputs {
    pub(super) u: f32,
    /// u of the token before, where the method reads it.
    pub(super) before: f32,
    /// Before bias and softplus.
    pub(super) delta: f32,
    /// The gradient of the output.
    pub(super) dy: f32,
    pub(super) z: f32,
}

/// Loads the inputs of the token of `step` in the unit's channel as the `place`-th of `to`, without
/// u and delta where [`read_from_tile`] reads these.
#[cube]
pub(super) fn read_token<F: Float, FB: Float, FC: Float>(
    to: &mut InputsAhead<F>,
    #[comptime] place: usize,
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    step: usize,
    walks: &Walks,
    #[comptime] plan: ScanPlan,
) {
    if comptime!(!plan.tiles_tokens()) {
        to.values[comptime!(INPUTS * place)] = tensors.u.data[walks.u.at(step)];
        to.values[comptime!(INPUTS * place + 1)] = tensors.delta.data[walks.delta.at(step)];
    }
    if comptime!(plan.two_taps() && !plan.tiles_tokens()) {
        let before = tensors.u.data[walks.u.at(max(step, 1usize) - 1)];
        to.values[comptime!(INPUTS * plan.read_ahead() + place)] =
            select(step > 0, before, F::new(0.0f32));
    }
    to.values[comptime!(INPUTS * place + 2)] = grad_y.data[walks.dy.at(step)];
    if comptime!(plan.spec.has_z) {
        to.values[comptime!(INPUTS * place + 3)] = tensors.z.data[walks.z.at(step)];
    }
}

/// Reads u and delta of the chunk's `j`-th token where they are in shared memory; the last of
/// `inputs` is u of the token before the chunk.
#[cube]
pub(super) fn read_from_tile<F: Float>(
    to: &mut InputsAhead<F>,
    #[comptime] place: usize,
    tile: &TokenTile<F>,
    inputs: &Array<F>,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    if comptime!(plan.tiles_tokens()) {
        if comptime!(plan.two_taps()) {
            let before = tile_element::<F>(&tile.u, max(j, 1usize) - 1, plan);
            to.values[comptime!(INPUTS * plan.read_ahead() + place)] =
                select(j > 0, before, inputs[plan.chunk()]);
        }
        to.values[comptime!(INPUTS * place)] = tile_element::<F>(&tile.u, j, plan);
        to.values[comptime!(INPUTS * place + 1)] = tile_element::<F>(&tile.delta, j, plan);
    }
}

/// Channels of sixteen bytes.
const WIDTH: usize = 8;

/// u and delta of a chunk in shared memory, `[chunk, units]`, and a unit's part of those of the
/// chunk before.
///
/// A unit loads sixteen bytes of each while the chunk after it is processed: eight channels of a
/// token. That is an eighth of the loads and of their addresses, and the backward step need not
/// load them once more.
#[derive(CubeType)]
pub(super) struct TokenTile<F: Float> {
    pub(super) u: Shared<[Vector<F, Const<8>>]>,
    pub(super) delta: Shared<[Vector<F, Const<8>>]>,
    next: Array<Vector<F, Const<8>>>,
}

/// Vectors of a tile, of which no unit has more than one.
fn tile_len(plan: ScanPlan) -> usize {
    if plan.tiles_tokens() { plan.chunk() * plan.units / WIDTH } else { 1 }
}

/// Begins to read the chunk from step `first` on.
#[cube]
pub(super) fn token_tile<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    first: usize,
    pos: &UnitCoords,
) -> TokenTile<F> {
    let plan = comptime!(pos.plan);
    let mut tile = TokenTile::<F> {
        u: Shared::<[Vector<F, Const<8>>]>::new_slice(comptime!(tile_len(plan))),
        delta: Shared::<[Vector<F, Const<8>>]>::new_slice(comptime!(tile_len(plan))),
        next: Array::<Vector<F, Const<8>>>::new(2usize),
    };
    load_tokens::<F, FB, FC>(&mut tile, tensors, first, pos);
    tile
}

/// Stores the chunk that was being read in shared memory.
#[cube]
pub(super) fn store_tokens<F: Float>(tile: &mut TokenTile<F>, #[comptime] plan: ScanPlan) {
    let unit = unit_in_cube(plan);
    if comptime!(plan.tiles_tokens()) {
        if comptime!(tile_len(plan) >= plan.units) || unit < comptime!(tile_len(plan)) {
            tile.u[unit] = tile.next[0];
            tile.delta[unit] = tile.next[1];
        }
    }
}

/// Begins to read the chunk from step `first` on. Past the segment its last token is repeated, and
/// past the group's channels its last eight are.
#[cube]
pub(super) fn load_tokens<F: Float, FB: Float, FC: Float>(
    tile: &mut TokenTile<F>,
    tensors: &ScanTensors<F, FB, FC>,
    first: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    if comptime!(plan.tiles_tokens()) {
        let unit = unit_in_cube(plan);
        let per_token = comptime!(plan.units / WIDTH);
        let per_group = pos.sizes.d_inner as usize / pos.sizes.groups as usize;
        let within = min(pos.within - unit + unit % per_token * WIDTH, per_group - WIDTH);
        let channel = pos.group * per_group + within;
        let token = token_at(min(first + unit / per_token, pos.end - 1), pos);
        tile.next[0] = load_vector::<F>(&tensors.u, channel, token, pos);
        tile.next[1] = load_vector::<F>(&tensors.delta, channel, token, pos);
    }
}

#[cube]
fn load_vector<F: Float>(
    from: &Rows<F>,
    channel: usize,
    token: usize,
    pos: &UnitCoords,
) -> Vector<F, Const<8>> {
    let at = pos.batch * from.batch as usize + channel + token * from.token as usize;
    from.data.as_vectorized().with_vector_size::<Const<8>>()[at / WIDTH]
}

/// The unit's channel of the `j`-th token of the chunk.
#[cube]
pub(super) fn tile_element<F: Float>(
    from: &Shared<[Vector<F, Const<8>>]>,
    j: usize,
    #[comptime] plan: ScanPlan,
) -> F {
    from.with_vector_size::<Const<1>>()[j * plan.units + unit_in_cube(plan)].extract(0usize)
}
