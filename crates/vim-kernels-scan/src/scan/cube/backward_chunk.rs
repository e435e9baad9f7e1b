//! The inputs of a chunk of the backward scan, which are loaded while the chunk after it is
//! processed.

use cubecl::prelude::*;

use super::chunks::{load_chunk_state, read_chunk};
use super::coords::{Rows, ScanTensors, UnitCoords, input_before, load_tile, turn_tile};
use super::forward_step::Projections;
use super::layout::Projected;
use super::reading::{Shares, TokenTile, store_tokens, token_tile};
use super::segments::read_gradients;

/// The inputs of a chunk.
#[derive(CubeType)]
pub(super) struct ChunkAhead<F: Float, FB: Float, FC: Float, S: Float, V: Size> {
    pub(super) b: Array<FB>,
    pub(super) c: Array<FC>,
    /// u and delta; those of the tile are copied here. Behind u is that of the token before the
    /// chunk, where the method reads it.
    pub(super) u: Array<F>,
    pub(super) delta: Array<F>,
    pub(super) tile: TokenTile<F>,
    /// The states at its start.
    pub(super) states: Array<Vector<S, V>>,
    /// Of a two-way method: the gradients of the outputs and the gates, and the gradient that flows
    /// into the chunk from the tokens before.
    pub(super) dy: Array<F>,
    pub(super) z: Array<F>,
    pub(super) flows: Array<Vector<S, V>>,
}

/// Begins to read the segment's last chunk, from step `first` on.
#[cube]
pub(super) fn last_chunk<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    chunk_states: &[Vector<S, V>],
    chunk_flows: &[Vector<S, V>],
    first: usize,
    shares: &Shares,
    pos: &UnitCoords,
) -> ChunkAhead<F, FB, FC, S, V> {
    let plan = comptime!(pos.plan);
    let vectors = comptime!(plan.states / plan.state_vector_width());
    let (of_b, of_c) = comptime!((Projected::B, Projected::C));
    let mut b = Array::<FB>::new(comptime!(plan.tile_elems_per_unit(of_b)));
    let mut c = Array::<FC>::new(comptime!(plan.tile_elems_per_unit(of_c)));
    load_tile::<FB>(&mut b, &tensors.b, first, of_b, pos);
    load_tile::<FC>(&mut c, &tensors.c, first, of_c, pos);
    let mut u = Array::<F>::new(comptime!(plan.inputs_len(plan.chunk())));
    let mut delta = Array::<F>::new(plan.chunk());
    let tile = token_tile::<F, FB, FC>(tensors, first, pos);
    if comptime!(!plan.tiles_tokens()) {
        read_chunk::<F>(&mut u, &tensors.u, pos.batch, first, plan.chunk(), pos);
        read_chunk::<F>(&mut delta, &tensors.delta, pos.batch, first, plan.chunk(), pos);
    }
    if comptime!(plan.two_taps()) {
        u[plan.chunk()] = input_before::<F>(&tensors.u, first, pos);
    }
    let mut states = Array::<Vector<S, V>>::new(vectors);
    load_chunk_state::<S, V>(&mut states, chunk_states, first, shares, plan);
    let mut dy = Array::<F>::new(plan.chunk());
    let mut z = Array::<F>::new(plan.chunk());
    let mut flows = Array::<Vector<S, V>>::new(vectors);
    if comptime!(plan.two_way()) {
        read_gradients::<F>(&mut dy, &mut z, grad_y, &tensors.z, first, plan.chunk(), pos);
        load_chunk_state::<S, V>(&mut flows, chunk_flows, first, shares, plan);
    }
    ChunkAhead::<F, FB, FC, S, V> { b, c, u, delta, tile, states, dy, z, flows }
}

/// Reads, of the chunk from step `first` on, what is not read before the backward loop.
#[cube]
pub(super) fn read_before<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    ahead: &mut ChunkAhead<F, FB, FC, S, V>,
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    chunk_flows: &[Vector<S, V>],
    first: usize,
    shares: &Shares,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let count = comptime!(plan.chunk());
    if comptime!(!plan.tiles_tokens()) {
        read_chunk::<F>(&mut ahead.u, &tensors.u, pos.batch, first, count, pos);
        read_chunk::<F>(&mut ahead.delta, &tensors.delta, pos.batch, first, count, pos);
    }
    if comptime!(plan.two_taps()) {
        ahead.u[count] = input_before::<F>(&tensors.u, first, pos);
    }
    if comptime!(plan.two_way()) {
        read_gradients::<F>(&mut ahead.dy, &mut ahead.z, grad_y, &tensors.z, first, count, pos);
        load_chunk_state::<S, V>(&mut ahead.flows, chunk_flows, first, shares, plan);
    }
}

/// Shares B, C, u and delta of the chunk that was being read, and begins to read B and C of the one
/// from step `first` on.
#[cube]
pub(super) fn turn_chunk<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    shared: &mut Projections,
    ahead: &mut ChunkAhead<F, FB, FC, S, V>,
    tensors: &ScanTensors<F, FB, FC>,
    first: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let (of_b, of_c) = comptime!((Projected::B, Projected::C));
    // All units have done with the tile by the barrier before the sums were written.
    turn_tile::<FB>(&mut shared.b, &mut ahead.b, &tensors.b, first, of_b, pos);
    turn_tile::<FC>(&mut shared.c, &mut ahead.c, &tensors.c, first, of_c, pos);
    store_tokens::<F>(&mut ahead.tile, plan);
    sync_cube();
}
