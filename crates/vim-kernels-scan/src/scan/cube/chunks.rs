//! Chunks of tokens: their inputs, read ahead of their use, and the states at their starts, which
//! the forward scan saves for the backward scan; and the states at the ends of segments.

use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::coords::{
    Rows, ScanTensors, UnitCoords, input_before, is_state, read_row, token_at, unit_in_cube,
};
use super::layout::{CHUNK, PLANE, ScanPlan};
use super::reading::Shares;

/// A chunk of tokens in a unit's channel, in their storage type: nothing waits for them before
/// their use.
#[derive(CubeType)]
pub(super) struct Tokens<F: Float> {
    pub(super) u: Array<F>,
    pub(super) delta: Array<F>,
    pub(super) z: Array<F>,
}

/// The input before the `j`-th of a chunk of `count` tokens, where the method reads it; see
/// [`ScanPlan::inputs_len`]. Where it does not, `u`, that of the token itself.
#[cube]
pub(super) fn before<F: Float>(
    inputs: &Array<F>,
    #[comptime] j: usize,
    #[comptime] count: usize,
    u: f32,
    #[comptime] plan: ScanPlan,
) -> f32 {
    if comptime!(plan.two_taps()) {
        f32::cast_from(inputs[comptime!(if j > 0 { j - 1 } else { count })])
    } else {
        u
    }
}

#[cube]
impl<F: Float> Tokens<F> {
    fn new(#[comptime] plan: ScanPlan) -> Tokens<F> {
        Tokens::<F> {
            u: Array::<F>::new(comptime!(plan.inputs_len(CHUNK))),
            delta: Array::<F>::new(CHUNK),
            z: Array::<F>::new(CHUNK),
        }
    }
}

/// The chunk in flight: in registers, or as asynchronous copies into shared memory.
///
/// Under register pressure `ptxas` sinks loads to their use and stalls at each chunk; `cp.async`
/// needs no registers. At sixteen bytes at a time, eight channels of a token in bf16, it also takes
/// an eighth of the loads and of their addresses.
#[derive(CubeType)]
pub(super) struct TokensAhead<F: Float> {
    /// See [`ScanPlan::chunk_buffer_len`].
    u: Shared<[F]>,
    delta: Shared<[F]>,
    z: Shared<[F]>,
    next: Tokens<F>,
}

/// Begins to read the segment's first chunk; z is read if `gated`.
#[cube]
pub(super) fn tokens_ahead<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    #[comptime] gated: bool,
    pos: &UnitCoords,
) -> TokensAhead<F> {
    let plan = comptime!(pos.plan);
    let mut ahead = TokensAhead::<F> {
        u: Shared::<[F]>::new_aligned_slice(comptime!(plan.chunk_buffer_len(true)), 16usize),
        delta: Shared::<[F]>::new_aligned_slice(comptime!(plan.chunk_buffer_len(true)), 16usize),
        z: Shared::<[F]>::new_aligned_slice(comptime!(plan.chunk_buffer_len(gated)), 16usize),
        next: Tokens::<F>::new(plan),
    };
    begin_chunk::<F, FB, FC>(&mut ahead, tensors, pos.begin, gated, pos);
    if comptime!(plan.two_taps()) {
        ahead.next.u[CHUNK] = input_before::<F>(&tensors.u, pos.begin, pos);
    }
    ahead
}

/// Begins to read the chunk from step `first` on.
#[cube]
fn begin_chunk<F: Float, FB: Float, FC: Float>(
    ahead: &mut TokensAhead<F>,
    tensors: &ScanTensors<F, FB, FC>,
    first: usize,
    #[comptime] gated: bool,
    pos: &UnitCoords,
) {
    if comptime!(pos.plan.copy_width > 0) {
        copy_chunk_async::<F>(&mut ahead.u, &tensors.u, pos.batch, first, pos);
        copy_chunk_async::<F>(&mut ahead.delta, &tensors.delta, pos.batch, first, pos);
        if comptime!(gated) {
            copy_chunk_async::<F>(&mut ahead.z, &tensors.z, pos.element, first, pos);
        }
        gpu_asm!(
            "cp.async.commit_group;",
            options(explicit_mem, reads_address_space shared, writes_address_space shared)
        );
    } else {
        read_chunk::<F>(&mut ahead.next.u, &tensors.u, pos.batch, first, CHUNK, pos);
        read_chunk::<F>(&mut ahead.next.delta, &tensors.delta, pos.batch, first, CHUNK, pos);
        // The gate is needed last: it is not loaded ahead if registers are short.
        if comptime!(gated && pos.plan.has_spare_registers()) {
            read_chunk::<F>(&mut ahead.next.z, &tensors.z, pos.element, first, CHUNK, pos);
        }
    }
}

/// The chunk in flight, which begins at step `begin`; begins to read the chunk after it.
#[cube]
pub(super) fn take_chunk<F: Float, FB: Float, FC: Float>(
    ahead: &mut TokensAhead<F>,
    tensors: &ScanTensors<F, FB, FC>,
    begin: usize,
    #[comptime] gated: bool,
    pos: &UnitCoords,
) -> Tokens<F> {
    let plan = comptime!(pos.plan);
    let mut now = Tokens::<F>::new(plan);
    if comptime!(plan.copy_width > 0) {
        // The plane's previous chunk may be overwritten afterwards.
        gpu_asm!(
            "cp.async.wait_group 0;",
            options(explicit_mem, reads_address_space shared, writes_address_space shared)
        );
        sync_plane();
        #[unroll]
        for j in 0..CHUNK {
            now.u[j] = copied_element::<F>(&ahead.u, begin, j, plan);
            now.delta[j] = copied_element::<F>(&ahead.delta, begin, j, plan);
            if comptime!(gated) {
                now.z[j] = copied_element::<F>(&ahead.z, begin, j, plan);
            }
        }
    } else {
        #[unroll]
        for j in 0..CHUNK {
            now.u[j] = ahead.next.u[j];
            now.delta[j] = ahead.next.delta[j];
            if comptime!(gated && plan.has_spare_registers()) {
                now.z[j] = ahead.next.z[j];
            }
        }
    }
    if comptime!(plan.two_taps()) {
        now.u[CHUNK] = ahead.next.u[CHUNK];
        ahead.next.u[CHUNK] = now.u[comptime!(CHUNK - 1)];
    }
    begin_chunk::<F, FB, FC>(ahead, tensors, begin + CHUNK, gated, pos);
    if comptime!(gated && plan.copy_width == 0 && !plan.has_spare_registers()) {
        read_chunk::<F>(&mut now.z, &tensors.z, pos.element, begin, CHUNK, pos);
    }
    now
}

/// Loads the unit's channel of `count` tokens of batch element `element`; past the segment its last
/// token is repeated.
#[cube]
pub(super) fn read_chunk<F: Float>(
    to: &mut Array<F>,
    from: &Rows<F>,
    element: usize,
    first: usize,
    #[comptime] count: usize,
    pos: &UnitCoords,
) {
    #[unroll]
    for j in 0..count {
        to[j] = read_row::<F>(from, min(first + j, pos.end - 1), element, pos);
    }
}

/// Begins to copy the chunk from step `first` on of batch element `element` of a tensor; past the
/// segment its last token is repeated, and channels beyond the group's last are zero.
#[cube]
fn copy_chunk_async<F: Float>(
    to: &mut Shared<[F]>,
    from: &Rows<F>,
    element: usize,
    first: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let width = comptime!(plan.copy_width);
    let per_row = comptime!(PLANE / width);
    let lane = UNIT_POS_X as usize % PLANE;
    let per_group = pos.sizes.d_inner as usize / pos.sizes.groups as usize;
    let buffer = (first / CHUNK) % 2;
    #[unroll]
    for k in 0..comptime!(CHUNK * per_row / PLANE) {
        let i = lane + comptime!(k * PLANE);
        let (j, part) = (i / per_row, (i % per_row) * width);
        let token = token_at(min(first + j, pos.end - 1), pos);
        let within = pos.within - lane + part;
        let source = element * from.batch as usize
            + pos.group * per_group
            + within
            + token * from.token as usize;
        let place = (buffer * CHUNK + j) * plan.units + UNIT_POS_X as usize - lane + part;
        let count = select(within < per_group, width, 0usize);
        copy_async_checked(
            &from.data[source..source + count],
            &mut to[place..place + width],
            comptime!(width as u32),
        );
    }
}

/// The unit's channel of the `j`-th token of the chunk that begins at `first`.
#[cube]
fn copied_element<F: Float>(
    from: &Shared<[F]>,
    first: usize,
    #[comptime] j: usize,
    #[comptime] plan: ScanPlan,
) -> F {
    let buffer = (first / CHUNK) % 2;
    from[buffer * comptime!(CHUNK * plan.units) + UNIT_POS_X as usize + comptime!(j * plan.units)]
}

/// Index of the `group`-th vector of the unit's states at the start of the chunk of `step` in
/// `[chunks, B, N/V, D]`, with V = [`ScanPlan::state_vector_width`].
#[cube]
fn chunk_state_index(step: usize, group: usize, pos: &UnitCoords) -> usize {
    let width = comptime!(pos.plan.state_vector_width());
    let slot = step / comptime!(pos.plan.chunk());
    let row = (slot * pos.sizes.batch as usize + pos.batch) * (pos.sizes.d_state as usize / width);
    let first = pos.sizes.first_state as usize / width;
    (row + first + group) * pos.sizes.d_inner as usize + pos.channel
}

/// The `group`-th vector of `width` states of a unit.
#[cube]
pub(super) fn state_vector<W: Size>(
    h: &Array<f32>,
    #[comptime] group: usize,
    #[comptime] width: usize,
) -> Vector<f32, W> {
    let mut states = Vector::<f32, W>::empty();
    #[unroll]
    for i in 0..width {
        states.insert(i, h[comptime!(group * width + i)]);
    }
    states
}

/// Saves the states at the start of the chunk of `step`.
#[cube]
pub(super) fn store_chunk_state<S: Float, V: Size>(
    chunk_states: &mut [Vector<S, V>],
    h: &Array<f32>,
    step: usize,
    pos: &UnitCoords,
) {
    let width = comptime!(pos.plan.state_vector_width());
    #[unroll]
    for group in 0..comptime!(pos.plan.states / width) {
        if is_state(group * width, pos) {
            let states = state_vector::<V>(h, group, width);
            chunk_states[chunk_state_index(step, group, pos)] = Vector::cast_from(states);
        }
    }
}

/// Loads the saved states in their storage type: nothing waits for them before their use.
#[cube]
pub(super) fn load_chunk_state<S: Float, V: Size>(
    to: &mut Array<Vector<S, V>>,
    chunk_states: &[Vector<S, V>],
    step: usize,
    shares: &Shares,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.state_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        let pos = shares.coords(comptime!(group * width));
        let state = shares.state(comptime!(group * width));
        to[group] = if is_state(state, &pos) {
            chunk_states[chunk_state_index(step, state / width, &pos)]
        } else {
            Vector::new(S::new(0.0))
        };
    }
}

/// The loaded states as f32; 0 for a state that does not exist.
#[cube]
pub(super) fn unpack_chunk_state<S: Float, V: Size>(
    h: &mut Array<f32>,
    from: &Array<Vector<S, V>>,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.state_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        let states = Vector::<f32, V>::cast_from(from[group]);
        #[unroll]
        for i in 0..width {
            h[comptime!(group * width + i)] = states.extract(i);
        }
    }
}

/// An array for the unit's states, each `value`.
#[cube]
pub(crate) fn filled(value: f32, #[comptime] plan: ScanPlan) -> Array<f32> {
    let mut states = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        states[n] = value;
    }
    states
}

/// Index of the `group`-th vector of what a unit stores for the `j`-th token of a chunk: its states
/// before the token, and of a two-way method behind them what flows into it from those.
#[cube]
pub(crate) fn saved_index(j: usize, #[comptime] group: usize, #[comptime] plan: ScanPlan) -> usize {
    let groups = comptime!(plan.spec.sweeps() * plan.saved_vectors());
    (j * groups + group) * plan.units + unit_in_cube(plan)
}

/// Stores the states before the `j`-th token of a chunk, from the `first`-th vector on.
#[cube]
pub(super) fn store_before<W: Size>(
    before: &mut Shared<[Vector<f32, W>]>,
    h: &Array<f32>,
    j: usize,
    #[comptime] first: usize,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.shared_vector_width());
    #[unroll]
    for group in 0..comptime!(plan.states / width) {
        before[saved_index(j, comptime!(first + group), plan)] = state_vector::<W>(h, group, width);
    }
}
