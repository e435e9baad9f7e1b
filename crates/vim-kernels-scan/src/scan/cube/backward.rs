//! The backward scan: chunks from the last to the first, each recomputed from the state that the
//! forward scan saved at its start. Of a long sequence [segments](super::segments) run side by
//! side. Of a two-way method one pass takes [both ways](super::two_way).
//!
//! Sums over channels (the gradients of B and C) and over the batch (those of A, D and the delta
//! bias) are written as [partial sums](super::sums), which are added in a fixed order: the
//! same bits each time.

use cubecl::prelude::*;

use super::backward_chunk::{ChunkAhead, last_chunk, read_before, turn_chunk};
use super::backward_step::{Adjoint, backward_step, flow_into_end};
use super::chunks::{before, filled, load_chunk_state, store_before, unpack_chunk_state};
use super::coords::{
    Rows, ScanTensors, Sizes, TokenGradTensors, UnitCoords, carried_state, is_state, load_split,
    state_weight, unit_bias, unit_coords, unit_in_cube, unit_skip, weight_grad_index, write_token,
};
use super::forward_step::{
    Projections, projections, recompute_step, sigmoid, step_size, store_state_terms,
};
use super::layout::ScanPlan;
use super::reading::{
    InputsAhead, Shares, TokenInputs, TokenTile, Walks, load_tokens, read_from_tile, read_token,
    tile_element, walks,
};
use super::segments::{into_states, size_behind};
use super::sums::{
    PartialSums, keep_sum, reduce_over_channels, sum_over_plane, sums_len, write_bc_partials,
};
use super::two_way::recompute_both_ways;

/// What a unit knows of its channel and segment.
#[derive(CubeType)]
struct Unit {
    pos: UnitCoords,
    shares: Shares,
    /// Its number in the cube.
    number: usize,
    /// The terms of its states.
    slopes: Array<f32>,
    walks: Walks,
    skip: f32,
    bias: f32,
}

/// What a cube shares.
#[derive(CubeType)]
struct Memory<W: Size> {
    /// B and C of the chunk.
    projections: Projections,
    /// The states before each token of the chunk, and of a two-way method what flows into it.
    before: Shared<[Vector<f32, W>]>,
    /// Gradients of B and C, on the way to their sums over channels.
    sums: Shared<[f32]>,
    /// The tokens' step sizes, used again by the backward steps.
    steps: Shared<[f32]>,
}

/// What changes from token to token.
#[derive(CubeType)]
struct State<F: Float, W: Size> {
    memory: Memory<W>,
    adjoint: Adjoint,
    totals: Totals,
    next: InputsAhead<F>,
    /// The states after a chunk: the first states of the next one, which has been processed.
    after: Array<f32>,
}

/// Sums over the unit's tokens: the gradients of D and of the delta bias.
#[derive(CubeType)]
struct Totals {
    d: f32,
    bias: f32,
}

/// Runs one pass of the backward scan. `carry [segments, B, N, D]` is the gradient that flows into
/// each segment from the next; where the method reads the token before, that of the state after the
/// next segment's first token. Of a two-way method, `returning`, of the same shape, is the state of
/// the reverse way that comes into each segment from the next, and `chunk_flows`, of the shape of
/// `chunk_states`, the gradient that flows into each chunk from the tokens before.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "what the forward scan left, and the gradients")]
pub(crate) fn scan_backward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    chunk_states: &[Vector<S, V>],
    carry: &[f32],
    chunk_flows: &[Vector<S, V>],
    returning: &[f32],
    grads: &mut TokenGradTensors<F>,
    part: &mut PartialSums,
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC, S)] _types: [ElemType; 4],
) {
    let pos = unit_coords(sizes, plan);
    let shares = Shares::new(pos);
    let slopes = unit_slopes(&tensors.a, &shares, plan);
    let size!(W) = comptime!(plan.shared_vector_width());
    let memory = memory::<FB, FC, W>(&tensors.b.data, &tensors.c.data, shares.order, &pos);
    let number = unit_in_cube(plan);
    let walks = walks::<F, FB, FC>(tensors, grad_y, &pos);
    let skip = unit_skip(&tensors.d, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let unit = Unit { pos, shares, number, slopes, walks, skip, bias };
    let mut adjoint = adjoint_at_end(carry, returning, &unit.shares, plan);
    if comptime!(plan.two_taps() && plan.segmented) {
        let size = size_behind::<F>(&tensors.delta, bias, &pos);
        flow_into_end(&mut adjoint.carry, &mut adjoint.returning, &unit.slopes, size, plan);
    }
    let totals = Totals { d: 0.0f32.runtime(), bias: 0.0f32.runtime() };
    let chunks = (pos.end - pos.begin + comptime!(plan.chunk() - 1)) / plan.chunk();
    let last = pos.begin + (chunks - 1) * plan.chunk();
    let mut ahead = last_chunk::<F, FB, FC, S, V>(
        tensors,
        grad_y,
        chunk_states,
        chunk_flows,
        last,
        &unit.shares,
        &pos,
    );
    let next = last_tokens::<F, FB, FC>(tensors, grad_y, last, &unit);
    let after = Array::<f32>::new(plan.states);
    let mut state = State::<F, W> { memory, adjoint, totals, next, after };
    for from_end in 0..chunks {
        chunk_back::<F, FB, FC, S, V, W>(
            &mut state,
            &mut ahead,
            tensors,
            grad_y,
            chunk_states,
            chunk_flows,
            grads,
            part,
            pos.begin + (chunks - 1 - from_end) * plan.chunk(),
            from_end,
            &unit,
        );
    }
    write_totals(part, &state.adjoint, &state.totals, &unit.shares, &pos);
}

/// The backward steps of the chunk from step `begin` on.
#[cube]
fn chunk_back<F: Float, FB: Float, FC: Float, S: Float, V: Size, W: Size>(
    state: &mut State<F, W>,
    ahead: &mut ChunkAhead<F, FB, FC, S, V>,
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    chunk_states: &[Vector<S, V>],
    chunk_flows: &[Vector<S, V>],
    grads: &mut TokenGradTensors<F>,
    part: &mut PartialSums,
    begin: usize,
    from_end: usize,
    unit: &Unit,
) {
    let plan = comptime!(unit.pos.plan);
    let (pos, shares) = (&unit.pos, &unit.shares);
    let before = max(begin, pos.begin + plan.chunk()) - plan.chunk();
    let tokens = min(pos.end - begin, plan.chunk());
    turn_chunk::<F, FB, FC, S, V>(&mut state.memory.projections, ahead, tensors, before, pos);
    states_of_chunk::<F, FB, FC, S, V, W>(state, ahead, tokens, from_end, unit);
    // What the chunk before needs arrives during the backward loop.
    if comptime!(plan.tiles_tokens()) {
        load_tokens::<F, FB, FC>(&mut ahead.tile, tensors, before, pos);
        load_chunk_state::<S, V>(&mut ahead.states, chunk_states, before, shares, plan);
    }
    for turn in 0..comptime!(plan.chunk() / plan.tokens_per_turn()) {
        turn_back::<F, FB, FC, W>(
            state,
            &ahead.tile,
            &ahead.u,
            tensors,
            grad_y,
            grads,
            begin,
            tokens,
            turn,
            unit,
        );
    }
    read_before::<F, FB, FC, S, V>(ahead, tensors, grad_y, chunk_flows, before, shares, pos);
    #[unroll]
    for n in 0..plan.states {
        state.after[n] = state.adjoint.h[n];
    }
    if comptime!(!plan.tiles_tokens()) {
        load_chunk_state::<S, V>(&mut ahead.states, chunk_states, before, shares, plan);
    }
    if comptime!(!(plan.spec.b_constant && plan.spec.c_constant)) {
        // Behind all that the cube reads of B and C, too, which the next chunk overwrites.
        sync_cube();
        if comptime!(plan.sums_channels()) {
            write_bc_partials::<W>(
                &state.memory.sums,
                &state.memory.before,
                &mut part.b,
                &mut part.c,
                begin,
                tokens,
                &unit.walks,
                pos,
            );
        }
    }
}

/// Begins to read the last tokens of the chunk from step `first` on, with which the backward loop
/// begins. Past the end the last one is repeated.
#[cube]
fn last_tokens<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    first: usize,
    unit: &Unit,
) -> InputsAhead<F> {
    let plan = comptime!(unit.pos.plan);
    let mut next = InputsAhead::<F>::new(plan);
    #[unroll]
    for k in 0..comptime!(plan.read_ahead()) {
        let step = min(first + comptime!(plan.chunk() - 1 - k), unit.pos.end - 1);
        read_token::<F, FB, FC>(&mut next, k, tensors, grad_y, step, &unit.walks, plan);
    }
    next
}

/// The terms of the unit's states.
#[cube]
fn unit_slopes(a: &[f32], shares: &Shares, #[comptime] plan: ScanPlan) -> Array<f32> {
    let mut slopes = Array::<f32>::new(comptime!(plan.states * plan.state_terms_len(true)));
    #[unroll]
    for n in 0..plan.states {
        let a = state_weight::<f32>(a, shares.state(n), &shares.coords(n));
        store_state_terms(&mut slopes, a, n, true, plan);
    }
    slopes
}

/// The cube's memory; B and C are read in `order`.
#[cube]
fn memory<FB: Float, FC: Float, W: Size>(
    b: &[FB],
    c: &[FC],
    order: usize,
    pos: &UnitCoords,
) -> Memory<W> {
    let plan = comptime!(pos.plan);
    Memory::<W> {
        projections: projections::<FB, FC>(b, c, order, pos),
        before: Shared::<[Vector<f32, W>]>::new_slice(comptime!(
            plan.chunk() * plan.spec.sweeps() * plan.saved_vectors() * plan.units
        )),
        sums: Shared::<[f32]>::new_slice(comptime!(sums_len(plan))),
        steps: Shared::<[f32]>::new_slice(comptime!(plan.chunk() * plan.units)),
    }
}

/// The registers at the segment's end.
#[cube]
fn adjoint_at_end(
    carry: &[f32],
    returning: &[f32],
    shares: &Shares,
    #[comptime] plan: ScanPlan,
) -> Adjoint {
    let mut adjoint = Adjoint {
        h: Array::<f32>::new(plan.states),
        carry: Array::<f32>::new(plan.states),
        returning: filled(0.0f32, plan),
        a: filled(0.0f32, plan),
        b: filled(0.0f32, plan),
        c: filled(0.0f32, plan),
    };
    #[unroll]
    for n in 0..plan.states {
        let (state, at) = (shares.state(n), shares.coords(n));
        // Units beyond the group's channels must add nothing to the sums.
        adjoint.carry[n] = select(at.active, carried_state(carry, state, &at), 0.0f32);
        if comptime!(plan.two_way()) {
            adjoint.returning[n] = carried_state(returning, state, &at);
        }
    }
    adjoint
}

/// Recomputes a chunk of `tokens` forward, storing the state before every token. The last token is
/// skipped, except in the segment's last chunk: there the states are those `after` it. Steps past
/// the end have size zero and change nothing, here and backwards.
#[cube]
fn states_of_chunk<F: Float, FB: Float, FC: Float, S: Float, V: Size, W: Size>(
    state: &mut State<F, W>,
    ahead: &mut ChunkAhead<F, FB, FC, S, V>,
    tokens: usize,
    from_end: usize,
    unit: &Unit,
) {
    let plan = comptime!(unit.pos.plan);
    let mut flow = Array::<f32>::new(plan.states);
    unpack_chunk_state::<S, V>(&mut state.adjoint.h, &ahead.states, plan);
    if comptime!(plan.two_way()) {
        unpack_chunk_state::<S, V>(&mut flow, &ahead.flows, plan);
        // That of a unit beyond the group's channels is the last channel's.
        #[unroll]
        for n in 0..plan.states {
            flow[n] = select(unit.shares.coords(n).active, flow[n], 0.0f32);
        }
    }
    let mut deltas = Array::<f32>::new(plan.chunk());
    step_sizes_of_tile::<F, FB, FC, S, V>(
        &mut deltas,
        &mut state.memory.steps,
        ahead,
        tokens,
        unit,
    );
    #[unroll]
    for j in 0..plan.chunk() {
        // Stored after the step where registers allow: what it reads need not wait for them.
        let mut kept = Array::<f32>::new(plan.states);
        #[unroll]
        for n in 0..plan.states {
            kept[n] = state.adjoint.h[n];
        }
        if comptime!(!plan.tiles_tokens()) {
            store_before::<W>(&mut state.memory.before, &kept, j, 0usize, plan);
            let raw = f32::cast_from(ahead.delta[j]);
            deltas[j] = select(j < tokens, step_size(raw, unit.bias, plan), 0.0f32);
            state.memory.steps[j * plan.units + unit.number] = deltas[j];
        }
        if comptime!(plan.two_way()) {
            store_before::<W>(&mut state.memory.before, &flow, j, plan.saved_vectors(), plan);
        }
        let size = deltas[j];
        let u = f32::cast_from(ahead.u[j]);
        let (slopes, shared, at) = (&unit.slopes, &state.memory.projections, j * plan.states);
        if comptime!(plan.two_way() && j + 1 < plan.chunk()) {
            let in_bounds = unit.pos.active && j < tokens;
            let into = into_states::<F>(ahead.dy[j], ahead.z[j], in_bounds, plan);
            recompute_both_ways(
                &mut state.adjoint.h,
                &mut flow,
                slopes,
                shared,
                at,
                size,
                u,
                into,
                plan,
            );
        } else if comptime!(j + 1 < plan.chunk()) || from_end == 0 {
            let before = before::<F>(&ahead.u, j, plan.chunk(), u, plan);
            recompute_step(&mut state.adjoint.h, slopes, shared, at, size, u, before, plan);
        } else {
            #[unroll]
            for n in 0..plan.states {
                state.adjoint.h[n] = state.after[n];
            }
        }
        if comptime!(plan.tiles_tokens()) {
            store_before::<W>(&mut state.memory.before, &kept, j, 0usize, plan);
        }
    }
}

/// Where the tile has u and delta, reads both of a chunk of `tokens`, and stores the step sizes.
/// There are registers for all of it before the states, loads before stores: none waits then.
#[cube]
fn step_sizes_of_tile<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    deltas: &mut Array<f32>,
    steps: &mut Shared<[f32]>,
    ahead: &mut ChunkAhead<F, FB, FC, S, V>,
    tokens: usize,
    unit: &Unit,
) {
    let plan = comptime!(unit.pos.plan);
    if comptime!(plan.tiles_tokens()) {
        #[unroll]
        for j in 0..plan.chunk() {
            ahead.u[j] = tile_element::<F>(&ahead.tile.u, j, plan);
            ahead.delta[j] = tile_element::<F>(&ahead.tile.delta, j, plan);
        }
        #[unroll]
        for j in 0..plan.chunk() {
            // A unit beyond the group's channels has those of another than its A.
            let size = step_size(f32::cast_from(ahead.delta[j]), unit.bias, plan);
            deltas[j] = select(unit.pos.active && j < tokens, size, 0.0f32);
        }
        #[unroll]
        for j in 0..plan.chunk() {
            steps[j * plan.units + unit.number] = deltas[j];
        }
    }
}

/// The backward steps of a turn of the chunk from step `begin` on. A token's inputs are loaded one
/// ahead of their use. Where registers allow, a turn has two tokens, so that the work per token and
/// the sums over channels overlap with the other token's states.
#[cube]
fn turn_back<F: Float, FB: Float, FC: Float, W: Size>(
    state: &mut State<F, W>,
    tile: &TokenTile<F>,
    inputs: &Array<F>,
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    grads: &mut TokenGradTensors<F>,
    begin: usize,
    tokens: usize,
    turn: usize,
    unit: &Unit,
) {
    let plan = comptime!(unit.pos.plan);
    // Masked for the same reason as `unit_in_cube`: both are powers of two.
    let first = comptime!(plan.chunk() - plan.tokens_per_turn());
    let first = (first - turn * comptime!(plan.tokens_per_turn())) & first;
    let mut token_sums = Array::<f32>::new(plan.tokens_per_turn());
    #[unroll]
    for k in 0..comptime!(plan.tokens_per_turn()) {
        let j = first + comptime!(plan.tokens_per_turn() - 1 - k);
        let place = comptime!(k % plan.read_ahead());
        read_from_tile::<F>(&mut state.next, place, tile, inputs, j, plan);
        let now = state.next.token(place, plan);
        // Where nothing is read from there, it may be past the end.
        let step = begin + j;
        let here = if comptime!(plan.first) { step } else { min(step, unit.pos.end - 1) };
        let here = unit.walks.out.at(here);
        let ahead = comptime!(plan.read_ahead());
        let step = min(max(step, unit.pos.begin + ahead) - ahead, unit.pos.end - 1);
        read_token::<F, FB, FC>(&mut state.next, place, tensors, grad_y, step, &unit.walks, plan);
        let sum = step_back::<F, W>(state, grads, &now, here, j, tokens, unit);
        if comptime!(plan.pairs_channels()) {
            token_sums[k] = sum;
        }
    }
    if comptime!(plan.pairs_channels() && plan.sums_channels()) {
        // Behind the loads of all tokens of the turn, which stores would keep apart.
        sync_plane();
        #[unroll]
        for k in 0..comptime!(plan.tokens_per_turn()) {
            let j = first + comptime!(plan.tokens_per_turn() - 1 - k);
            keep_sum::<W>(&mut state.memory.before, token_sums[k], unit.shares.order, j, plan);
        }
    }
}

/// The backward step of the chunk's `j`-th token, whose gradients lie at `here`. Returns the sum of
/// its gradients of B and C over the plane, where [`keep_sum`] takes it.
#[cube]
fn step_back<F: Float, W: Size>(
    state: &mut State<F, W>,
    grads: &mut TokenGradTensors<F>,
    now: &TokenInputs,
    here: usize,
    j: usize,
    tokens: usize,
    unit: &Unit,
) -> f32 {
    let plan = comptime!(unit.pos.plan);
    let in_bounds = j < tokens;
    let size = state.memory.steps[j * plan.units + unit.number];
    let logistic =
        if comptime!(plan.spec.has_z) { sigmoid(now.z, plan.ptx) } else { 1.0f32.runtime() };
    let gate = if comptime!(plan.spec.has_z) { now.z * logistic } else { 1.0f32.runtime() };
    let dy = select(unit.pos.active && in_bounds, now.dy, 0.0f32);
    let into = dy * gate;
    let into_scan = if comptime!(plan.two_way()) { into * 0.5f32 } else { into };
    let (slopes, shared, before) = (&unit.slopes, &state.memory.projections, &state.memory.before);
    let at = j * plan.states;
    let step_grads = backward_step::<W>(
        &mut state.adjoint,
        slopes,
        shared,
        before,
        j,
        at,
        size,
        now.u,
        now.before,
        into_scan,
        plan,
    );
    let over_plane = if comptime!(plan.pairs_channels() && plan.sums_channels()) {
        sum_over_plane(&state.adjoint, plan)
    } else {
        if comptime!(plan.sums_channels()) {
            reduce_over_channels(&mut state.memory.sums, &state.adjoint, j, plan);
        }
        0.0f32.runtime()
    };
    let mut du = step_grads.u + unit.skip * into;
    let mut ddelta = step_grads.delta;
    let mut pre = if comptime!(plan.two_way()) { step_grads.y * 0.5f32 } else { step_grads.y };
    pre += unit.skip * now.u;
    let mut dz = dy * logistic * (1.0f32 + now.z * (1.0f32 - logistic)) * pre;
    if comptime!(!plan.first) {
        if comptime!(plan.wanted[0]) {
            du += load_split::<F>(&mut grads.u, &mut grads.rest_u, here, plan);
        }
        if comptime!(plan.wants_delta()) {
            ddelta += load_split::<F>(&mut grads.delta, &mut grads.rest_delta, here, plan);
        }
        if comptime!(plan.spec.has_z && plan.wanted[6]) {
            dz += load_split::<F>(&mut grads.z, &mut grads.rest_z, here, plan);
        }
    }
    if comptime!(plan.last) {
        state.totals.d += into * now.u;
        if comptime!(plan.spec.options.delta_softplus) {
            ddelta *= sigmoid(now.delta + unit.bias, plan.ptx);
        }
        state.totals.bias += select(unit.pos.active && in_bounds, ddelta, 0.0f32);
    }
    if unit.pos.active && in_bounds {
        write_token::<F>(grads, here, du, ddelta, dz, plan);
    }
    over_plane
}

/// Writes the unit's sums over its tokens.
#[cube]
fn write_totals(
    part: &mut PartialSums,
    adjoint: &Adjoint,
    totals: &Totals,
    shares: &Shares,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    #[unroll]
    for n in 0..plan.states {
        let (state, at) = (shares.state(n), shares.coords(n));
        if at.active && is_state(state, &at) {
            let index = weight_grad_index(pos.segment, state, &at);
            if comptime!(plan.wanted[2]) {
                part.a[index] = adjoint.a[n];
            }
            if comptime!(plan.spec.b_constant && plan.wanted[3]) {
                part.b[index] = adjoint.b[n];
            }
            if comptime!(plan.spec.c_constant && plan.wanted[4]) {
                part.c[index] = adjoint.c[n];
            }
        }
    }
    if comptime!(plan.last) && pos.active {
        let batch = pos.sizes.batch as usize;
        let directions = batch / pos.sizes.per_direction as usize;
        let row = pos.segment * batch + pos.element * directions;
        let index = row * pos.sizes.d_inner as usize + pos.weights;
        if comptime!(plan.wanted[5]) {
            part.d[index] = totals.d;
        }
        if comptime!(plan.wanted[7]) {
            part.bias[index] = totals.bias;
        }
    }
}
