//! The backward pass: chunk by chunk from the last, the midpoints of a chunk recomputed from the
//! states that the forward pass saved at its start.

use cubecl::prelude::*;

use super::coords::{
    FullTensors, Sizes, UnitCoords, per_unit, projection_index, sigmoid, softplus, sync_team,
    system_row, team_sum, token_of, unit_coords,
};
use super::solve::{Workspace, solve, workspace};
use super::{CHUNK, Plan, UNITS};

/// Gradients that are complete, `[B, L, D]`.
#[derive(CubeType, CubeLaunch)]
pub(super) struct TokenGrads<F: Float> {
    u: Box<[F]>,
    delta: Box<[F]>,
    z: Box<[F]>,
}

/// Partial sums of the others: `a [B, D, N, N]`, `d` and `bias` `[B, D]`, over the batch; `b` and
/// `c` `[B, L, G, blocks, N]` over the blocks of a group, or where constant `[B, D, N]` over the
/// batch.
#[derive(CubeType, CubeLaunch)]
pub(super) struct PartialSums {
    a: Box<[f32]>,
    b: Box<[f32]>,
    c: Box<[f32]>,
    d: Box<[f32]>,
    bias: Box<[f32]>,
}

/// What a block shares.
#[derive(CubeType)]
struct Memory {
    work: Workspace,
    /// Each unit's terms of three sums over its team.
    terms: Shared<[f32]>,
    /// The midpoints of a chunk's tokens.
    midpoints: Shared<[f32]>,
    /// The gradients of B and C of a chunk, where these vary.
    rows_b: Shared<[f32]>,
    rows_c: Shared<[f32]>,
}

/// What a unit keeps from token to token.
#[derive(CubeType)]
struct State {
    /// Its row of a system, with the right side.
    row: Array<f32>,
    /// Its row and its column of A.
    a_row: Array<f32>,
    a_column: Array<f32>,
    /// The gradients of the row, and of constant B and C, D and the bias.
    grad_a: Array<f32>,
    sum_b: f32,
    sum_c: f32,
    sum_d: f32,
    sum_bias: f32,
    /// The gradient of the state.
    g: f32,
}

/// What a unit knows of its channel.
#[derive(CubeType)]
struct Unit {
    place: UnitCoords,
    sizes: Sizes,
    skip: f32,
    bias: f32,
    /// 1 where the state exists, else 0.
    alive: f32,
}

/// The gradients of a block's channels from `grad_y [B, L, D]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs and outputs")]
pub(super) fn backward<F: Float, P: Float, Q: Float>(
    grad_y: &[F],
    tensors: &FullTensors<F, P, Q>,
    chunk_states: &[f32],
    grads: &mut TokenGrads<F>,
    part: &mut PartialSums,
    sizes: Sizes,
    #[comptime] plan: Plan,
    #[define(F, P, Q)] _dtypes: [ElemType; 3],
) {
    let size = comptime!(plan.n);
    let place = unit_coords(&sizes, plan);
    let mut memory = Memory {
        work: workspace(plan),
        terms: per_unit(3usize),
        midpoints: per_unit(CHUNK),
        rows_b: per_unit(comptime!(if plan.spec.b_constant { 1 } else { CHUNK })),
        rows_c: per_unit(comptime!(if plan.spec.c_constant { 1 } else { CHUNK })),
    };
    let mut state = state_at_end(&tensors.a, &place, plan);
    let mut skip = 0.0f32;
    if comptime!(plan.spec.has_d) {
        skip = tensors.d[place.channel];
    }
    let mut bias = 0.0f32;
    if comptime!(plan.spec.has_delta_bias) {
        bias = tensors.delta_bias[place.channel];
    }
    let alive = select(place.state, 1.0f32, 0.0f32);
    let unit = Unit { place, sizes, skip, bias, alive };
    let of_state = place.channel * size + select(place.state, place.n, 0usize);
    let chunks = (sizes.len + comptime!(CHUNK - 1)) / CHUNK;
    for back in 0..chunks {
        let chunk = chunks - 1 - back;
        let first = chunk * CHUNK;
        let steps = min(CHUNK, sizes.len - first);
        let begin = (place.batch * chunks + chunk) * sizes.d_inner * size + of_state;
        let mut h = alive * chunk_states[begin];
        for i in 0..steps {
            h = midpoint_of::<F, P, Q>(&mut memory, &mut state, tensors, h, first, i, &unit, plan);
        }
        for forth in 0..steps {
            let i = steps - 1 - forth;
            h = token_back::<F, P, Q>(
                &mut memory,
                &mut state,
                grad_y,
                tensors,
                grads,
                h,
                first,
                i,
                &unit,
                plan,
            );
        }
        // The rows of B and C of this chunk, summed over the block's channels.
        sync_cube();
        write_rows(part, &memory, first, steps, &unit, plan);
        sync_cube();
    }
    write_sums(part, &state, &unit, plan);
}

/// The registers at the end of the sequence.
#[cube]
fn state_at_end(a: &[f32], place: &UnitCoords, #[comptime] plan: Plan) -> State {
    let size = comptime!(plan.n);
    let mut state = State {
        row: Array::<f32>::new(comptime!(size + 1)),
        a_row: Array::<f32>::new(size),
        a_column: Array::<f32>::new(size),
        grad_a: Array::<f32>::new(size),
        sum_b: 0.0f32.runtime(),
        sum_c: 0.0f32.runtime(),
        sum_d: 0.0f32.runtime(),
        sum_bias: 0.0f32.runtime(),
        g: 0.0f32.runtime(),
    };
    let n = select(place.state, place.n, 0usize);
    let first = place.channel * size;
    #[unroll]
    for j in 0..size {
        state.a_row[j] = select(place.state, a[(first + n) * size + j], 0.0f32);
        state.a_column[j] = select(place.state, a[(first + j) * size + n], 0.0f32);
        state.grad_a[j] = 0.0f32;
    }
    state
}

/// Recomputes the midpoint of the `i`-th token from step `first` on, which the state `h` precedes;
/// returns the state after it.
#[cube]
fn midpoint_of<F: Float, P: Float, Q: Float>(
    memory: &mut Memory,
    state: &mut State,
    tensors: &FullTensors<F, P, Q>,
    h: f32,
    first: usize,
    i: usize,
    unit: &Unit,
    #[comptime] plan: Plan,
) -> f32 {
    let place = &unit.place;
    let size = comptime!(plan.n);
    let token = place.batch * unit.sizes.len + token_of(first + i, unit.sizes.len, plan);
    let at = token * unit.sizes.d_inner + place.channel;
    let mut dt = f32::cast_from(tensors.delta[at]) + unit.bias;
    if comptime!(plan.spec.options.delta_softplus) {
        dt = softplus(dt);
    }
    let half = 0.5f32 * dt;
    let b_at = projection_index(token, place, &unit.sizes, plan.spec.b_constant, plan);
    system_row(&mut state.row, &state.a_row, half, place, plan);
    let input = f32::cast_from(tensors.u[at]);
    state.row[size] = h + half * input * f32::cast_from(tensors.b[b_at]);
    let midpoint = solve(&mut state.row, &mut memory.work, place, plan);
    memory.midpoints[i * UNITS + place.unit] = midpoint;
    2.0f32 * midpoint - h
}

/// The backward step of the `i`-th token from step `first` on, from the state `h` after it; returns
/// the state before it.
#[cube]
fn token_back<F: Float, P: Float, Q: Float>(
    memory: &mut Memory,
    state: &mut State,
    grad_y: &[F],
    tensors: &FullTensors<F, P, Q>,
    grads: &mut TokenGrads<F>,
    h: f32,
    first: usize,
    i: usize,
    unit: &Unit,
    #[comptime] plan: Plan,
) -> f32 {
    let place = &unit.place;
    let size = comptime!(plan.n);
    let token = place.batch * unit.sizes.len + token_of(first + i, unit.sizes.len, plan);
    let at = token * unit.sizes.d_inner + place.channel;
    let raw = f32::cast_from(tensors.delta[at]) + unit.bias;
    let mut dt = raw;
    let mut slope = 1.0f32;
    if comptime!(plan.spec.options.delta_softplus) {
        dt = softplus(raw);
        slope = sigmoid(raw);
    }
    let half = 0.5f32 * dt;
    let input = f32::cast_from(tensors.u[at]);
    let b_at = projection_index(token, place, &unit.sizes, plan.spec.b_constant, plan);
    let c_at = projection_index(token, place, &unit.sizes, plan.spec.c_constant, plan);
    let b_here = unit.alive * f32::cast_from(tensors.b[b_at]);
    let c_here = unit.alive * f32::cast_from(tensors.c[c_at]);
    let grad_out = f32::cast_from(grad_y[at]);
    let mut grad = grad_out;
    if comptime!(plan.spec.has_z) {
        let gate = f32::cast_from(tensors.z[at]);
        grad = grad_out * (gate * sigmoid(gate));
    }

    let of_c = grad * h;
    state.g += grad * c_here;
    system_row(&mut state.row, &state.a_column, half, place, plan);
    state.row[size] = state.g;
    let q = solve(&mut state.row, &mut memory.work, place, plan);
    let midpoint = memory.midpoints[i * UNITS + place.unit];
    let gain = dt * q;
    let coupled = add_weights(memory, state, gain, gain * input, of_c, i, unit, plan);
    memory.terms[place.unit] = b_here * q;
    memory.terms[UNITS + place.unit] = q * (coupled + b_here * input);
    memory.terms[2 * UNITS + place.unit] = c_here * h;
    sync_team(plan);
    if place.n == 0 && place.live {
        let of_u = team_sum(&memory.terms, 0usize, place, plan);
        grads.u[at] = F::cast_from(dt * of_u + unit.skip * grad);
        let of_delta = slope * team_sum(&memory.terms, UNITS, place, plan);
        grads.delta[at] = F::cast_from(of_delta);
        state.sum_bias += of_delta;
        state.sum_d += grad * input;
        if comptime!(plan.spec.has_z) {
            let gate = f32::cast_from(tensors.z[at]);
            let open = sigmoid(gate);
            let out = team_sum(&memory.terms, 2 * UNITS, place, plan) + unit.skip * input;
            let slope_z = open * (1.0f32 + gate * (1.0f32 - open));
            grads.z[at] = F::cast_from(grad_out * out * slope_z);
        }
    }
    // From the state after the token to the state before it, and likewise for the gradients.
    state.g = 2.0f32 * q - state.g;
    2.0f32 * midpoint - h
}

/// Adds the `i`-th token's gradients of A, B and C; returns the product of the unit's row of A with
/// the midpoints.
#[cube]
fn add_weights(
    memory: &mut Memory,
    state: &mut State,
    gain: f32,
    of_b: f32,
    of_c: f32,
    i: usize,
    unit: &Unit,
    #[comptime] plan: Plan,
) -> f32 {
    let place = &unit.place;
    let team = i * UNITS + place.unit - place.n;
    let mut coupled = 0.0f32;
    #[unroll]
    for j in 0..plan.n {
        let other = memory.midpoints[team + j];
        coupled += state.a_row[j] * other;
        state.grad_a[j] += gain * other;
    }
    if comptime!(plan.spec.b_constant) {
        state.sum_b += of_b;
    } else {
        memory.rows_b[i * UNITS + place.unit] = unit.alive * of_b;
    }
    if comptime!(plan.spec.c_constant) {
        state.sum_c += of_c;
    } else {
        memory.rows_c[i * UNITS + place.unit] = unit.alive * of_c;
    }
    coupled
}

/// Writes the gradients of B and C of `steps` tokens from step `first` on, summed over the block's
/// channels.
#[cube]
fn write_rows(
    part: &mut PartialSums,
    memory: &Memory,
    first: usize,
    steps: usize,
    unit: &Unit,
    #[comptime] plan: Plan,
) {
    let (place, sizes) = (&unit.place, &unit.sizes);
    let size = comptime!(plan.n);
    let mut e = place.unit;
    while e < steps * size {
        let i = e / size;
        let m = e % size;
        let token = place.batch * sizes.len + token_of(first + i, sizes.len, plan);
        let to = ((token * sizes.groups + place.group) * sizes.blocks + place.block) * size + m;
        if comptime!(!plan.spec.b_constant) {
            part.b[to] = block_sum(&memory.rows_b, i * UNITS + m, plan);
        }
        if comptime!(!plan.spec.c_constant) {
            part.c[to] = block_sum(&memory.rows_c, i * UNITS + m, plan);
        }
        e += UNITS;
    }
}

/// Writes the unit's sums over its tokens.
#[cube]
fn write_sums(part: &mut PartialSums, state: &State, unit: &Unit, #[comptime] plan: Plan) {
    let place = &unit.place;
    let d_inner = unit.sizes.d_inner;
    let size = comptime!(plan.n);
    if place.state {
        let whole = (place.batch * d_inner + place.channel) * size + place.n;
        #[unroll]
        for j in 0..size {
            part.a[whole * size + j] = state.grad_a[j];
        }
        if comptime!(plan.spec.b_constant) {
            part.b[whole] = state.sum_b;
        }
        if comptime!(plan.spec.c_constant) {
            part.c[whole] = state.sum_c;
        }
        if place.n == 0 {
            part.d[place.batch * d_inner + place.channel] = state.sum_d;
            part.bias[place.batch * d_inner + place.channel] = state.sum_bias;
        }
    }
}

/// Sum over the block's teams of the value at `first` of each, in their order.
#[cube]
fn block_sum(values: &Shared<[f32]>, first: usize, #[comptime] plan: Plan) -> f32 {
    let mut sum = 0.0f32;
    for team in 0..comptime!(plan.teams()) {
        sum += values[first + team * comptime!(plan.team)];
    }
    sum
}
