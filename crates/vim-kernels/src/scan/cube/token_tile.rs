//! u and delta of a chunk in shared memory, for the backward scan.
//!
//! A unit loads sixteen bytes of each while the chunk after it is processed: eight channels of a
//! token. That is an eighth of the loads and of their addresses, and the backward step need not
//! load them once more.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::prelude::*;

use super::coords::{Rows, ScanTensors, UnitCoords, token_at, unit_in_cube};
use super::layout::ScanPlan;

/// Channels of sixteen bytes.
const WIDTH: usize = 8;

/// u and delta, `[chunk, units]`, and a unit's part of those of the chunk before.
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
