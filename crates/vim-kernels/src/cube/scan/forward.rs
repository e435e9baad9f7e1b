//! The forward scan: a unit to a channel, its states in registers, B and C of a tile of tokens in
//! shared memory, the tokens one after the other.

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::prelude::*;

use super::place::{
    Place, Rows, Sizes, load_rates, load_rows, place, projections, row_index, start_index,
    state_index, token_at,
};
use super::plan::{CHUNK, ScanPlan};
use super::token::{advance, advance_silently, rates_len, sigmoid, step_size};

/// Runs one pass. Shapes as in [`crate::selective_scan()`]; beside them `carry [segments, B, N, D]`,
/// the states that the segments begin with; `partial [B, L, D]`, what earlier passes add to the
/// output; `starts [ways, chunks, B, N, D]`, kept for the backward pass. What the plan does not use is one element.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn scan_forward<F: Float, FB: Float, FC: Float>(
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
    partial: &mut [f32],
    last_state: &mut [f32],
    starts: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
) {
    let at = place(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * rates_len(plan)));
    load_rates(&mut rates, a, &at, sizes, plan);
    let mut shared = projections::<FB, FC>(b, c, &at, sizes, plan);
    let skip = if comptime!(plan.has_d && plan.last) { d[at.channel] } else { 0.0f32.runtime() };
    let bias = if comptime!(plan.has_bias) { delta_bias[at.channel] } else { 0.0f32.runtime() };
    let mut h = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        h[n] = if comptime!(plan.segmented) {
            carry[state_index(at.segment, n, &at, sizes)]
        } else {
            0.0f32.runtime()
        };
    }
    // Tokens are read a chunk ahead of their use.
    let mut next = Tokens::new();
    read_chunk::<F>(&mut next.u, u, &sizes.u, at.begin, &at, sizes, plan);
    read_chunk::<F>(&mut next.delta, delta, &sizes.delta, at.begin, &at, sizes, plan);
    let gated = comptime!(plan.has_z && plan.last);
    if comptime!(gated && plan.light()) {
        read_chunk::<F>(&mut next.z, z, &sizes.z, at.begin, &at, sizes, plan);
    }
    let mut first = at.begin;
    while first < at.end {
        sync_cube();
        if comptime!(!plan.b_constant) {
            load_rows::<FB>(&mut shared.b, b, first, plan.tile, &at, sizes, plan);
        }
        if comptime!(!plan.c_constant) {
            load_rows::<FC>(&mut shared.c, c, first, plan.tile, &at, sizes, plan);
        }
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < at.end {
            let begin = first + chunk;
            if comptime!(plan.save) {
                if at.active {
                    #[unroll]
                    for n in 0..plan.states {
                        if comptime!(!plan.ragged)
                            || sizes.first_state as usize + n < sizes.d_state as usize
                        {
                            starts[start_index(begin, n, &at, sizes)] = h[n];
                        }
                    }
                }
            }
            let mut now = Tokens::new();
            #[unroll]
            for j in 0..CHUNK {
                now.u[j] = next.u[j];
                now.delta[j] = next.delta[j];
                if comptime!(gated && plan.light()) {
                    now.z[j] = next.z[j];
                }
            }
            read_chunk::<F>(&mut next.u, u, &sizes.u, begin + CHUNK, &at, sizes, plan);
            read_chunk::<F>(&mut next.delta, delta, &sizes.delta, begin + CHUNK, &at, sizes, plan);
            // The gate is needed last: where registers are short it is not read ahead.
            if comptime!(gated && plan.light()) {
                read_chunk::<F>(&mut next.z, z, &sizes.z, begin + CHUNK, &at, sizes, plan);
            } else if comptime!(gated) {
                read_chunk::<F>(&mut now.z, z, &sizes.z, begin, &at, sizes, plan);
            }
            // Steps past the end take no time and change nothing: without a branch between the tokens, their softplus
            // and gates overlap.
            #[unroll]
            for j in 0..CHUNK {
                let there = begin + j < at.end;
                let size = select(there, step_size(now.delta[j], bias, plan), 0.0f32);
                let row = (chunk + j) * plan.states;
                let sum = advance(&mut h, &rates, &shared, row, size, now.u[j], plan);
                write_token::<F>(
                    y,
                    partial,
                    sum,
                    now.u[j],
                    now.z[j],
                    skip,
                    begin + j,
                    there,
                    &at,
                    sizes,
                    plan,
                );
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    if comptime!(plan.leaves_state) {
        if at.active && at.end == sizes.len as usize {
            #[unroll]
            for n in 0..plan.states {
                let state = sizes.first_state as usize + n;
                if comptime!(!plan.ragged) || state < sizes.d_state as usize {
                    let row = at.batch * sizes.d_inner as usize + at.channel;
                    last_state[row * sizes.d_state as usize + state] = h[n];
                }
            }
        }
    }
}

/// Runs every segment from a zero state: `carry` becomes the states that it ends with, `product` what a
/// state at its beginning is multiplied by on the way. `[segments, B, N, D]` both.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn segment_ends<F: Float, FB: Float>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[FB],
    delta_bias: &[f32],
    carry: &mut [f32],
    product: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
) {
    let at = place(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * rates_len(plan)));
    load_rates(&mut rates, a, &at, sizes, plan);
    let mut shared = projections::<FB, FB>(b, b, &at, sizes, plan);
    let bias = if comptime!(plan.has_bias) { delta_bias[at.channel] } else { 0.0f32.runtime() };
    let mut h = Array::<f32>::new(plan.states);
    let mut whole = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        h[n] = 0.0f32;
        whole[n] = 1.0f32;
    }
    let mut first = at.begin;
    while first < at.end {
        sync_cube();
        if comptime!(!plan.b_constant) {
            load_rows::<FB>(&mut shared.b, b, first, plan.tile, &at, sizes, plan);
        }
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < at.end {
            let begin = first + chunk;
            let mut now_u = Array::<f32>::new(CHUNK);
            let mut now_delta = Array::<f32>::new(CHUNK);
            read_chunk::<F>(&mut now_u, u, &sizes.u, begin, &at, sizes, plan);
            read_chunk::<F>(&mut now_delta, delta, &sizes.delta, begin, &at, sizes, plan);
            #[unroll]
            for j in 0..CHUNK {
                let there = begin + j < at.end;
                let size = select(there, step_size(now_delta[j], bias, plan), 0.0f32);
                let row = (chunk + j) * plan.states;
                advance_silently(&mut h, &mut whole, &rates, &shared, row, size, now_u[j], plan);
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    if at.active {
        #[unroll]
        for n in 0..plan.states {
            if comptime!(!plan.ragged) || sizes.first_state as usize + n < sizes.d_state as usize {
                let index = state_index(at.segment, n, &at, sizes);
                carry[index] = h[n];
                product[index] = whole[n];
            }
        }
    }
}

/// Turns what segments end with into what they begin with: `begins[k] ← s`, `s ← product[k]·s + ends[k]`.
/// A unit for each of the `width` (batch, state, channel); from the last segment on if `backwards`.
#[cube(launch_unchecked)]
pub(crate) fn carry_over(
    ends: &[f32],
    product: &[f32],
    begins: &mut [f32],
    segments: u32,
    width: u32,
    #[comptime] backwards: bool,
) {
    let i = ABSOLUTE_POS;
    let width = width as usize;
    if i < width {
        let segments = segments as usize;
        let mut state = 0.0f32;
        let mut first = 0usize;
        while first < segments {
            // Read together, so that the segments' latencies overlap.
            let mut end = Array::<f32>::new(CARRIED);
            let mut factor = Array::<f32>::new(CARRIED);
            #[unroll]
            for j in 0..CARRIED {
                let index = slot_at(min(first + j, segments - 1), segments, backwards) * width + i;
                end[j] = ends[index];
                factor[j] = product[index];
            }
            #[unroll]
            for j in 0..CARRIED {
                if first + j < segments {
                    begins[slot_at(first + j, segments, backwards) * width + i] = state;
                    state = factor[j] * state + end[j];
                }
            }
            first += CARRIED;
        }
    }
}

/// Segments that [`carry_over`] reads at once.
const CARRIED: usize = 16;

#[cube]
fn slot_at(k: usize, segments: usize, #[comptime] backwards: bool) -> usize {
    if comptime!(backwards) { segments - 1 - k } else { k }
}

/// Where the token of `step` stands in a `[B, L, D]`, in the unit's channel.
#[cube]
pub(crate) fn token_index(
    step: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) -> usize {
    let token = at.batch * sizes.len as usize + token_at(step, sizes, plan);
    token * sizes.d_inner as usize + at.channel
}

/// The output of a token from `Σ c·h`, or its part of it.
#[cube]
fn write_token<F: Float>(
    y: &mut [F],
    partial: &mut [f32],
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
        out += partial[index];
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
            partial[index] = out;
        }
    }
}

/// A chunk of tokens in a unit's channel.
#[derive(CubeType)]
pub(crate) struct Tokens {
    pub(crate) u: Array<f32>,
    pub(crate) delta: Array<f32>,
    pub(crate) z: Array<f32>,
}

#[cube]
impl Tokens {
    fn new() -> Tokens {
        Tokens {
            u: Array::<f32>::new(CHUNK),
            delta: Array::<f32>::new(CHUNK),
            z: Array::<f32>::new(CHUNK),
        }
    }
}

/// Reads the unit's channel of a chunk of tokens; past the segment, its last token again.
#[cube]
pub(crate) fn read_chunk<F: Float>(
    to: &mut Array<f32>,
    from: &[F],
    rows: &Rows,
    first: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    #[unroll]
    for j in 0..CHUNK {
        let step = min(first + j, at.end - 1);
        to[j] = f32::cast_from(from[row_index(step, rows, at, sizes, plan)]);
    }
}
