//! The forward scan: a unit to a channel, its states in registers, B and C of a tile of tokens in
//! shared memory, the tokens one after the other.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::prelude::*;

use super::chunk_copies::{bring_chunk, chunk_arrived, chunk_begun, chunks_len, of_chunk};
use super::chunk_states::keep_start;
use super::coords::{
    Place, Rows, Sizes, carried, fetch_rows, is_state, keep, load_rates, moved, place, projections,
    put_rows, recall, row_index, token_at,
};
use super::forward_step::{advance, rates_len, sigmoid, step_size};
use super::plan::{CHUNK, ScanPlan};

/// Runs one pass. Shapes as in [`crate::selective_scan()`]; beside them `carry [segments, B, N, D]`,
/// the states that the segments begin with; `rest [B, L, D]`, what does not fit into y of the sum that earlier passes leave
/// there; `starts [ways, chunks, B, N/V, D, V]`, kept for the backward pass. What the plan does not use is one element, or one vector.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn scan_forward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[FB],
    c: &[FC],
    d: &[f32],
    z: &[F],
    delta_bias: &[f32],
    carry: &[f32],
    y: &mut [F],
    rest: &mut [F],
    last_state: &mut [f32],
    starts: &mut [Vector<S, V>],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
    #[define(S)] _s: ElemType,
) {
    let at = place(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * rates_len(plan)));
    load_rates(&mut rates, a, &at, sizes, plan);
    let mut shared = projections::<FB, FC>(b, c, 0usize, &at, sizes, plan);
    let skip = if comptime!(plan.has_d && plan.last) { d[at.weights] } else { 0.0f32.runtime() };
    let bias = if comptime!(plan.has_bias) { delta_bias[at.weights] } else { 0.0f32.runtime() };
    let mut h = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        h[n] = carried(carry, n, &at, sizes, plan);
    }
    // Tokens are read a chunk ahead of their use, and B and C a tile.
    let gated = comptime!(plan.has_z && plan.last);
    let copied = comptime!(plan.copied > 0);
    let mut ahead = Ahead::<F> {
        u: Shared::<[F]>::new_aligned_slice(comptime!(chunks_len(true, plan)), 16usize),
        delta: Shared::<[F]>::new_aligned_slice(comptime!(chunks_len(true, plan)), 16usize),
        z: Shared::<[F]>::new_aligned_slice(comptime!(chunks_len(gated, plan)), 16usize),
    };
    let mut next = Tokens::<F>::new();
    if comptime!(copied) {
        bring_tokens::<F>(&mut ahead, u, delta, z, at.begin, &at, sizes, plan);
    } else {
        read_chunk::<F>(&mut next.u, u, at.batch, &sizes.u, at.begin, &at, sizes, plan);
        read_chunk::<F>(&mut next.delta, delta, at.batch, &sizes.delta, at.begin, &at, sizes, plan);
        if comptime!(gated && plan.light()) {
            read_chunk::<F>(&mut next.z, z, at.element, &sizes.z, at.begin, &at, sizes, plan);
        }
    }
    let mut next_b = Array::<FB>::new(comptime!(moved(plan.tile, plan)));
    let mut next_c = Array::<FC>::new(comptime!(moved(plan.tile, plan)));
    if comptime!(!plan.b_constant) {
        fetch_rows::<FB>(&mut next_b, b, &sizes.b, at.begin, plan.tile, &at, sizes, plan);
    }
    if comptime!(!plan.c_constant) {
        fetch_rows::<FC>(&mut next_c, c, &sizes.c, at.begin, plan.tile, &at, sizes, plan);
    }
    let mut first = at.begin;
    while first < at.end {
        sync_cube();
        if comptime!(!plan.b_constant) {
            put_rows::<FB>(&mut shared.b, &next_b, plan.tile, plan);
            fetch_rows::<FB>(
                &mut next_b,
                b,
                &sizes.b,
                first + plan.tile,
                plan.tile,
                &at,
                sizes,
                plan,
            );
        }
        if comptime!(!plan.c_constant) {
            put_rows::<FC>(&mut shared.c, &next_c, plan.tile, plan);
            fetch_rows::<FC>(
                &mut next_c,
                c,
                &sizes.c,
                first + plan.tile,
                plan.tile,
                &at,
                sizes,
                plan,
            );
        }
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < at.end {
            let begin = first + chunk;
            if comptime!(plan.save) {
                if at.active {
                    keep_start::<S, V>(starts, &h, begin, &at, sizes, plan);
                }
            }
            let mut now = Tokens::<F>::new();
            if comptime!(copied) {
                chunk_arrived();
                #[unroll]
                for j in 0..CHUNK {
                    now.u[j] = of_chunk::<F>(&ahead.u, begin, j, plan);
                    now.delta[j] = of_chunk::<F>(&ahead.delta, begin, j, plan);
                    if comptime!(gated) {
                        now.z[j] = of_chunk::<F>(&ahead.z, begin, j, plan);
                    }
                }
                bring_tokens::<F>(&mut ahead, u, delta, z, begin + CHUNK, &at, sizes, plan);
            } else {
                #[unroll]
                for j in 0..CHUNK {
                    now.u[j] = next.u[j];
                    now.delta[j] = next.delta[j];
                    if comptime!(gated && plan.light()) {
                        now.z[j] = next.z[j];
                    }
                }
                read_chunk::<F>(
                    &mut next.u,
                    u,
                    at.batch,
                    &sizes.u,
                    begin + CHUNK,
                    &at,
                    sizes,
                    plan,
                );
                read_chunk::<F>(
                    &mut next.delta,
                    delta,
                    at.batch,
                    &sizes.delta,
                    begin + CHUNK,
                    &at,
                    sizes,
                    plan,
                );
                // The gate is needed last: where registers are short it is not read ahead.
                if comptime!(gated && plan.light()) {
                    read_chunk::<F>(
                        &mut next.z,
                        z,
                        at.element,
                        &sizes.z,
                        begin + CHUNK,
                        &at,
                        sizes,
                        plan,
                    );
                } else if comptime!(gated) {
                    read_chunk::<F>(&mut now.z, z, at.element, &sizes.z, begin, &at, sizes, plan);
                }
            }
            // Steps past the end take no time and change nothing: without a branch between the tokens, their softplus
            // and gates overlap.
            #[unroll]
            for j in 0..CHUNK {
                let there = begin + j < at.end;
                let u = f32::cast_from(now.u[j]);
                let raw = f32::cast_from(now.delta[j]);
                let size = select(there, step_size(raw, bias, plan), 0.0f32);
                let row = (chunk + j) * plan.states;
                let sum = advance(&mut h, &rates, &shared, row, size, u, plan);
                let z = f32::cast_from(now.z[j]);
                write_token::<F>(y, rest, sum, u, z, skip, begin + j, there, &at, sizes, plan);
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    if comptime!(plan.leaves_state) {
        if at.active && at.end == sizes.len as usize {
            #[unroll]
            for n in 0..plan.states {
                if is_state(n, sizes, plan) {
                    let state = sizes.first_state as usize + n;
                    let row = at.batch * sizes.d_inner as usize + at.channel;
                    last_state[row * sizes.d_state as usize + state] = h[n];
                }
            }
        }
    }
}

/// Where the token of `step` stands in a `[B, L, D]`, in the unit's channel.
#[cube]
pub(crate) fn token_index(
    step: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> usize {
    let token = at.batch * sizes.len as usize + token_at(step, at, sizes, plan);
    token * sizes.d_inner as usize + at.channel
}

/// The output of a token from `Σ c·h`, or its part of it.
#[cube]
fn write_token<F: Float>(
    y: &mut [F],
    rest: &mut [F],
    sum: f32,
    u: f32,
    z: f32,
    skip: f32,
    step: usize,
    there: bool,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let index = token_index(min(step, at.end - 1), at, sizes, plan);
    let mut out = if comptime!(plan.halved) { sum * 0.5f32 } else { sum };
    if comptime!(!plan.first) {
        out += recall::<F>(y, rest, index, plan);
    }
    if comptime!(plan.last) {
        out += skip * u;
        if comptime!(plan.has_z) {
            out *= z * sigmoid(z, plan.ptx);
        }
        if at.active && there {
            y[index] = F::cast_from(out);
        }
    } else {
        if at.active && there {
            keep::<F>(y, rest, index, out, plan);
        }
    }
}

/// Two chunks of the cube's channels, one of them on its way.
#[derive(CubeType)]
struct Ahead<F: Float> {
    u: Shared<[F]>,
    delta: Shared<[F]>,
    z: Shared<[F]>,
}

/// Begins to bring the chunk from step `first` on.
#[cube]
fn bring_tokens<F: Float>(
    to: &mut Ahead<F>,
    u: &[F],
    delta: &[F],
    z: &[F],
    first: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    bring_chunk::<F>(&mut to.u, u, at.batch, &sizes.u, first, at, sizes, plan);
    bring_chunk::<F>(&mut to.delta, delta, at.batch, &sizes.delta, first, at, sizes, plan);
    if comptime!(plan.has_z && plan.last) {
        bring_chunk::<F>(&mut to.z, z, at.element, &sizes.z, first, at, sizes, plan);
    }
    chunk_begun();
}

/// A chunk of tokens in a unit's channel, as they are in memory: nothing waits for them before their use.
#[derive(CubeType)]
struct Tokens<F: Float> {
    u: Array<F>,
    delta: Array<F>,
    z: Array<F>,
}

#[cube]
impl<F: Float> Tokens<F> {
    fn new() -> Tokens<F> {
        Tokens::<F> {
            u: Array::<F>::new(CHUNK),
            delta: Array::<F>::new(CHUNK),
            z: Array::<F>::new(CHUNK),
        }
    }
}

/// Reads the unit's channel of a chunk of tokens of batch element `element`; past the segment, its last token again.
#[cube]
pub(crate) fn read_chunk<F: Float>(
    to: &mut Array<F>,
    from: &[F],
    element: usize,
    rows: &Rows,
    first: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    #[unroll]
    for j in 0..CHUNK {
        let step = min(first + j, at.end - 1);
        to[j] = from[row_index(step, element, rows, at, sizes, plan)];
    }
}
