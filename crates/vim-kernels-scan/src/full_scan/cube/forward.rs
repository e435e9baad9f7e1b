//! The forward pass.

use cubecl::prelude::*;

use super::coords::{
    FullTensors, Sizes, per_unit, projection_index, sigmoid, softplus, sync_team, system_row,
    team_sum, token_of, unit_coords,
};
use super::solve::{solve, workspace};
use super::{CHUNK, Plan};

/// Runs a block's channels over all tokens. Shapes as in [`crate::full_scan()`]; `chunk_states` is
/// `[B, chunks, D, N]`.
#[cube(launch_unchecked)]
pub(super) fn forward<F: Float, P: Float, Q: Float>(
    tensors: &FullTensors<F, P, Q>,
    y: &mut [F],
    last_state: &mut [f32],
    chunk_states: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
    #[define(F, P, Q)] _dtypes: [ElemType; 3],
) {
    let size = comptime!(plan.n);
    let place = unit_coords(&sizes, plan);
    let len = sizes.len;
    let d_inner = sizes.d_inner;
    let mut work = workspace(plan);
    let mut terms = per_unit(1usize);
    let mut row = Array::<f32>::new(comptime!(size + 1));
    let mut a_row = Array::<f32>::new(size);
    let state = place.channel * size + select(place.state, place.n, 0usize);
    #[unroll]
    for j in 0..size {
        a_row[j] = select(place.state, tensors.a[state * size + j], 0.0f32);
    }
    let mut skip = 0.0f32;
    if comptime!(plan.spec.has_d) {
        skip = tensors.d[place.channel];
    }
    let mut bias = 0.0f32;
    if comptime!(plan.spec.has_delta_bias) {
        bias = tensors.delta_bias[place.channel];
    }
    let chunks = (len + comptime!(CHUNK - 1)) / CHUNK;

    let mut h = 0.0f32;
    for step in 0..len {
        if comptime!(plan.save) {
            let starts_chunk = step % CHUNK == 0;
            if starts_chunk && place.state {
                let chunk = place.batch * chunks + step / CHUNK;
                chunk_states[chunk * d_inner * size + state] = h;
            }
        }
        let token = place.batch * len + token_of(step, len, plan);
        let at = token * d_inner + place.channel;
        let b_at = projection_index(token, &place, &sizes, plan.spec.b_constant, plan);
        let c_at = projection_index(token, &place, &sizes, plan.spec.c_constant, plan);
        let mut dt = f32::cast_from(tensors.delta[at]) + bias;
        if comptime!(plan.spec.options.delta_softplus) {
            dt = softplus(dt);
        }
        let half = 0.5f32 * dt;
        let input = f32::cast_from(tensors.u[at]);
        system_row(&mut row, &a_row, half, &place, plan);
        row[size] = h + half * input * f32::cast_from(tensors.b[b_at]);
        let midpoint = solve(&mut row, &mut work, &place, plan);
        h = 2.0f32 * midpoint - h;

        terms[place.unit] = h * f32::cast_from(tensors.c[c_at]);
        sync_team(plan);
        if place.n == 0 && place.live {
            let mut out = team_sum(&terms, 0usize, &place, plan) + skip * input;
            if comptime!(plan.spec.has_z) {
                let gate = f32::cast_from(tensors.z[at]);
                out *= gate * sigmoid(gate);
            }
            y[at] = F::cast_from(out);
        }
    }
    if place.state {
        last_state[place.batch * d_inner * size + state] = h;
    }
}
