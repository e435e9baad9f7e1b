//! The backward pass: chunk by chunk from the last, the midpoints of a chunk recomputed from the
//! states that the forward pass saved at its start.

use cubecl::prelude::*;

use super::coords::{
    FullTensors, Sizes, per_unit, projection_index, sigmoid, softplus, sync_team, system_row,
    team_sum, token_of, unit_coords,
};
use super::solve::{solve, workspace};
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
    let len = sizes.len;
    let d_inner = sizes.d_inner;
    let groups = sizes.groups;
    let blocks = sizes.blocks;
    let mut work = workspace(plan);
    let mut terms = per_unit(3usize);
    let mut midpoints = per_unit(CHUNK);
    let mut rows_b = per_unit(comptime!(if plan.spec.b_constant { 1 } else { CHUNK }));
    let mut rows_c = per_unit(comptime!(if plan.spec.c_constant { 1 } else { CHUNK }));
    let mut row = Array::<f32>::new(comptime!(size + 1));
    let mut a_row = Array::<f32>::new(size);
    let mut a_column = Array::<f32>::new(size);
    let mut grad_a = Array::<f32>::new(size);
    let n = select(place.state, place.n, 0usize);
    let state = place.channel * size + n;
    #[unroll]
    for j in 0..size {
        a_row[j] = select(place.state, tensors.a[state * size + j], 0.0f32);
        a_column[j] = select(place.state, tensors.a[(place.channel * size + j) * size + n], 0.0f32);
        grad_a[j] = 0.0f32;
    }
    let mut skip = 0.0f32;
    if comptime!(plan.spec.has_d) {
        skip = tensors.d[place.channel];
    }
    let mut bias = 0.0f32;
    if comptime!(plan.spec.has_delta_bias) {
        bias = tensors.delta_bias[place.channel];
    }
    let alive = select(place.state, 1.0f32, 0.0f32);

    let mut g = 0.0f32;
    let mut sum_b = 0.0f32;
    let mut sum_c = 0.0f32;
    let mut sum_d = 0.0f32;
    let mut sum_bias = 0.0f32;
    let chunks = (len + comptime!(CHUNK - 1)) / CHUNK;
    for back in 0..chunks {
        let chunk = chunks - 1 - back;
        let first = chunk * CHUNK;
        let steps = min(CHUNK, len - first);
        let mut h = alive * chunk_states[(place.batch * chunks + chunk) * d_inner * size + state];

        for i in 0..steps {
            let token = place.batch * len + token_of(first + i, len, plan);
            let at = token * d_inner + place.channel;
            let mut dt = f32::cast_from(tensors.delta[at]) + bias;
            if comptime!(plan.spec.options.delta_softplus) {
                dt = softplus(dt);
            }
            let half = 0.5f32 * dt;
            let b_at = projection_index(token, &place, &sizes, plan.spec.b_constant, plan);
            system_row(&mut row, &a_row, half, &place, plan);
            row[size] = h + half * f32::cast_from(tensors.u[at]) * f32::cast_from(tensors.b[b_at]);
            let midpoint = solve(&mut row, &mut work, &place, plan);
            midpoints[i * UNITS + place.unit] = midpoint;
            h = 2.0f32 * midpoint - h;
        }

        for forth in 0..steps {
            let i = steps - 1 - forth;
            let token = place.batch * len + token_of(first + i, len, plan);
            let at = token * d_inner + place.channel;
            let raw = f32::cast_from(tensors.delta[at]) + bias;
            let mut dt = raw;
            let mut slope = 1.0f32;
            if comptime!(plan.spec.options.delta_softplus) {
                dt = softplus(raw);
                slope = sigmoid(raw);
            }
            let half = 0.5f32 * dt;
            let input = f32::cast_from(tensors.u[at]);
            let b_at = projection_index(token, &place, &sizes, plan.spec.b_constant, plan);
            let c_at = projection_index(token, &place, &sizes, plan.spec.c_constant, plan);
            let b_here = alive * f32::cast_from(tensors.b[b_at]);
            let c_here = alive * f32::cast_from(tensors.c[c_at]);
            let grad_out = f32::cast_from(grad_y[at]);
            let mut grad = grad_out;
            if comptime!(plan.spec.has_z) {
                let gate = f32::cast_from(tensors.z[at]);
                grad = grad_out * (gate * sigmoid(gate));
            }

            let of_c = grad * h;
            g += grad * c_here;
            system_row(&mut row, &a_column, half, &place, plan);
            row[size] = g;
            let q = solve(&mut row, &mut work, &place, plan);

            let midpoint = midpoints[i * UNITS + place.unit];
            let team = i * UNITS + place.unit - place.n;
            let gain = dt * q;
            let mut coupled = 0.0f32;
            #[unroll]
            for j in 0..size {
                let other = midpoints[team + j];
                coupled += a_row[j] * other;
                grad_a[j] += gain * other;
            }
            let of_b = gain * input;
            if comptime!(plan.spec.b_constant) {
                sum_b += of_b;
            } else {
                rows_b[i * UNITS + place.unit] = alive * of_b;
            }
            if comptime!(plan.spec.c_constant) {
                sum_c += of_c;
            } else {
                rows_c[i * UNITS + place.unit] = alive * of_c;
            }
            terms[place.unit] = b_here * q;
            terms[UNITS + place.unit] = q * (coupled + b_here * input);
            terms[2 * UNITS + place.unit] = c_here * h;
            sync_team(plan);
            if place.n == 0 && place.live {
                let of_u = team_sum(&terms, 0usize, &place, plan);
                grads.u[at] = F::cast_from(dt * of_u + skip * grad);
                let of_delta = slope * team_sum(&terms, UNITS, &place, plan);
                grads.delta[at] = F::cast_from(of_delta);
                sum_bias += of_delta;
                sum_d += grad * input;
                if comptime!(plan.spec.has_z) {
                    let gate = f32::cast_from(tensors.z[at]);
                    let open = sigmoid(gate);
                    let out = team_sum(&terms, 2 * UNITS, &place, plan) + skip * input;
                    let slope_z = open * (1.0f32 + gate * (1.0f32 - open));
                    grads.z[at] = F::cast_from(grad_out * out * slope_z);
                }
            }
            // From the state after the token to the state before it, and likewise for the
            // gradients.
            g = 2.0f32 * q - g;
            h = 2.0f32 * midpoint - h;
        }

        // The rows of B and C of this chunk, summed over the block's channels.
        sync_cube();
        let mut e = place.unit;
        while e < steps * size {
            let i = e / size;
            let m = e % size;
            let token = place.batch * len + token_of(first + i, len, plan);
            let to = ((token * groups + place.group) * blocks + place.block) * size + m;
            if comptime!(!plan.spec.b_constant) {
                part.b[to] = block_sum(&rows_b, i * UNITS + m, plan);
            }
            if comptime!(!plan.spec.c_constant) {
                part.c[to] = block_sum(&rows_c, i * UNITS + m, plan);
            }
            e += UNITS;
        }
        sync_cube();
    }

    let whole = place.batch * d_inner * size + state;
    if place.state {
        #[unroll]
        for j in 0..size {
            part.a[whole * size + j] = grad_a[j];
        }
        if comptime!(plan.spec.b_constant) {
            part.b[whole] = sum_b;
        }
        if comptime!(plan.spec.c_constant) {
            part.c[whole] = sum_c;
        }
        if place.n == 0 {
            part.d[place.batch * d_inner + place.channel] = sum_d;
            part.bias[place.batch * d_inner + place.channel] = sum_bias;
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
