//! The backward scan of a two-way method, both ways in one pass.
//!
//! With the same coefficients, the ways are `h[t] = a_bar[t]·h[t-1] + drive[t]` and, from the last
//! token on, `r[t] = a_bar[t]·r[t+1] + drive[t]`. The adjoint of the first runs from the last token
//! on, and so does the state of the second: [`scan_backward`](super::backward::scan_backward)
//! steps both, with the coefficients and their slopes computed once. It needs the states of the
//! first, which the forward scan saves, and the adjoint of the second, which runs from the first
//! token on. [`save_flows`] runs it, and saves it at the starts of the same chunks: a pass that
//! needs `a_bar` and C only. Within a chunk both are run again.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::prelude::*;

use super::chunks::{filled, read_chunk, store_chunk_state};
use super::coords::{
    Rows, ScanTensors, Sizes, load_tile, turn_tile, unit_bias, unit_coords, unit_states,
};
use super::forward_step::{
    Projections, get, projections, set, step_size, step_states, unit_state_terms,
};
use super::layout::{CHUNK, Projected, ScanPlan};
use super::reading::of_channels;
use super::segments::{backward_carry_only, into_states, read_gradients};
use vim_kernels_core::Traced;

/// Saves `a_bar·∂L/∂r` of the token before every chunk in `chunk_flows [chunks, B, N/V, D, V]`,
/// from `carry [segments, B, N, D]`, which flows into each segment from the one before.
#[cube(launch_unchecked)]
pub(crate) fn save_flows<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    carry: &[f32],
    chunk_flows: &mut [Vector<S, V>],
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC, S)] _types: [ElemType; 4],
) {
    let pos = unit_coords(sizes, plan);
    let rates = unit_state_terms(&tensors.a, &pos);
    let mut shared = projections::<FC, FC>(&tensors.c.data, &tensors.c.data, 0usize, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let mut flow = unit_states(carry, &pos);
    let mut unused = filled(1.0f32, plan);
    let c = comptime!(Projected::C);
    let mut next_c = Array::<FC>::new(comptime!(plan.tile_elems_per_unit(c)));
    load_tile::<FC>(&mut next_c, &tensors.c, pos.begin, c, &pos);
    let mut next_delta = Array::<F>::new(CHUNK);
    let mut next_dy = Array::<F>::new(CHUNK);
    let mut next_z = Array::<F>::new(CHUNK);
    let (delta, z) = (&tensors.delta, &tensors.z);
    read_chunk::<F>(&mut next_delta, delta, pos.batch, pos.begin, CHUNK, &pos);
    read_gradients::<F>(&mut next_dy, &mut next_z, grad_y, z, pos.begin, CHUNK, &pos);
    let mut first = pos.begin;
    while first < pos.end {
        let after = first + plan.tile;
        sync_cube();
        turn_tile(&mut shared.c, &mut next_c, &tensors.c, after, c, &pos);
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < pos.end {
            let begin = first + chunk;
            let mut now_delta = Array::<F>::new(CHUNK);
            let mut now_dy = Array::<F>::new(CHUNK);
            let mut now_z = Array::<F>::new(CHUNK);
            #[unroll]
            for j in 0..CHUNK {
                now_delta[j] = next_delta[j];
                now_dy[j] = next_dy[j];
                if comptime!(plan.spec.has_z) {
                    now_z[j] = next_z[j];
                }
            }
            let ahead = begin + CHUNK;
            read_chunk::<F>(&mut next_delta, delta, pos.batch, ahead, CHUNK, &pos);
            read_gradients::<F>(&mut next_dy, &mut next_z, grad_y, z, ahead, CHUNK, &pos);
            #[unroll]
            for j in 0..CHUNK {
                let in_bounds = begin + j < pos.end;
                if comptime!(j % plan.chunk() == 0) {
                    if pos.active && in_bounds {
                        store_chunk_state::<S, V>(chunk_flows, &flow, begin + j, &pos);
                    }
                }
                let raw = f32::cast_from(now_delta[j]);
                let size = select(in_bounds, step_size(raw, bias, plan), 0.0f32);
                let into = into_states::<F>(now_dy[j], now_z[j], in_bounds, plan);
                let row = (chunk + j) * plan.states;
                backward_carry_only(&mut flow, &mut unused, &rates, &shared, row, size, into, plan);
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
}

/// Steps the state of the first way, and the adjoint of the second from the gradient `dy` of its
/// `Σ c·r`, over a token.
#[cube]
pub(super) fn recompute_both_ways(
    h: &mut Array<f32>,
    flow: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    u: f32,
    dy: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let [delta, u, dy] = [delta, u, dy].map(|value| Traced::new(scope, plan.ptx, value));
        // No two-way method reads the token before.
        let token = [delta, u.clone(), u];
        let dys = of_channels(scope, dy, plan.channels());
        let then = |[channel, place, n]: [usize; 3], _: Traced<'_>, a_bar: Traced<'_>| {
            let before = Traced::new(scope, plan.ptx, get::expand(scope, flow, n));
            let dr = projections.c(scope, &at, place, plan) * dys[channel].clone() + before;
            set::expand(scope, flow, n, (a_bar * dr).value());
        };
        step_states(scope, h, rates, projections, &at, token, true, plan, then);
    })
}
