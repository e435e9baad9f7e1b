//! The forward pass.

use cubecl::prelude::*;

use super::Plan;
use super::coords::{per_unit, sigmoid, softplus, sync_team, team_sum, token_of, unit_coords};
use super::solve::{solve, workspace};

/// Runs a block's channels over all tokens. Shapes as in [`crate::full_scan()`]; `chunk_states` is
/// `[B, chunks, D, N]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs and outputs")]
pub(super) fn forward<F: Float, P: Float, Q: Float>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[P],
    c: &[Q],
    d: &[f32],
    z: &[F],
    delta_bias: &[f32],
    y: &mut [F],
    last_state: &mut [f32],
    chunk_states: &mut [f32],
    len: usize,
    d_inner: usize,
    groups: usize,
    blocks: usize,
    #[comptime] plan: Plan,
    #[define(F, P, Q)] _dtypes: [ElemType; 3],
) {
    let size = comptime!(plan.n);
    let place = unit_coords(d_inner, groups, blocks, plan);
    let mut work = workspace(plan);
    let mut terms = per_unit(1usize);
    let mut row = Array::<f32>::new(comptime!(size + 1));
    let mut a_row = Array::<f32>::new(size);
    let state = place.channel * size + select(place.state, place.n, 0usize);
    #[unroll]
    for j in 0..size {
        a_row[j] = select(place.state, a[state * size + j], 0.0f32);
    }
    let mut skip = 0.0f32;
    if comptime!(plan.spec.has_d) {
        skip = d[place.channel];
    }
    let mut bias = 0.0f32;
    if comptime!(plan.spec.has_delta_bias) {
        bias = delta_bias[place.channel];
    }
    let chunks = (len + comptime!(plan.chunk() - 1)) / comptime!(plan.chunk());

    let mut h = 0.0f32;
    for step in 0..len {
        if comptime!(plan.save) {
            let starts_chunk = step % comptime!(plan.chunk()) == 0;
            if starts_chunk && place.state {
                let chunk = place.batch * chunks + step / comptime!(plan.chunk());
                chunk_states[chunk * d_inner * size + state] = h;
            }
        }
        let token = place.batch * len + token_of(step, len, plan);
        let at = token * d_inner + place.channel;
        let projected =
            (token * groups + place.group) * size + select(place.state, place.n, 0usize);
        let mut b_at = projected;
        if comptime!(plan.spec.b_constant) {
            b_at = state;
        }
        let mut c_at = projected;
        if comptime!(plan.spec.c_constant) {
            c_at = state;
        }
        let mut dt = f32::cast_from(delta[at]) + bias;
        if comptime!(plan.spec.delta_softplus) {
            dt = softplus(dt);
        }
        let half = 0.5f32 * dt;
        let input = f32::cast_from(u[at]);
        #[unroll]
        for j in 0..size {
            row[j] = select(place.n == j, 1.0f32, 0.0f32) - half * a_row[j];
        }
        row[size] = h + half * input * f32::cast_from(b[b_at]);
        let midpoint = solve(&mut row, &mut work, &place, plan);
        h = 2.0f32 * midpoint - h;

        terms[place.unit] = h * f32::cast_from(c[c_at]);
        sync_team(plan);
        if place.n == 0 && place.live {
            let mut out = team_sum(&terms, 0usize, &place, plan) + skip * input;
            if comptime!(plan.spec.has_z) {
                let gate = f32::cast_from(z[at]);
                out *= gate * sigmoid(gate);
            }
            y[at] = F::cast_from(out);
        }
    }
    if place.state {
        last_state[place.batch * d_inner * size + state] = h;
    }
}
