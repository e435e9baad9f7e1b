//! The backward scan: chunks from the last to the first, each recomputed from the state that the
//! forward scan kept at its start.
//!
//! What is summed over channels (the gradients of B and C) or over the batch (those of A, D and
//! the delta bias) leaves as partial sums, which [`super::reduce`] adds in a fixed order: the same bits
//! each time.

#![expect(clippy::manual_div_ceil, reason = "a kernel has the operators, not the method")]

use cubecl::prelude::*;

use super::forward::{read_chunk, token_index};
use super::place::{
    Place, Sizes, load_rates, load_rows, place, projections, row_index, start_index, state_index,
    token_at, weight,
};
use super::plan::{CHUNK, PLANE, ScanPlan};
use super::token::{
    Adjoint, keep_slope_state, kept_at, kept_from, rates_len, readvance, retreat, retreat_silently,
    sigmoid, slope_rates_len, softplus, step_size,
};

/// Runs one pass of the backward scan.
///
/// `carry [segments, B, N, D]` is what flows into the segments from behind. `sum_* [B, L, D]` hold what earlier passes
/// gave. `part_b`, `part_c` are `[ways·strips, B, L, G, N]`, or `[ways·segments·B, N, D]` where constant; `part_a` the
/// latter; `part_d`, `part_bias` are `[segments·B, D]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn scan_backward<F: Float, FB: Float, FC: Float>(
    u: &[F],
    delta: &[F],
    a: &[f32],
    b: &[FB],
    c: &[FC],
    d: &[f32],
    z: &[F],
    delta_bias: &[f32],
    grad_y: &[F],
    starts: &[f32],
    carry: &[f32],
    grad_u: &mut [F],
    grad_delta: &mut [F],
    grad_z: &mut [F],
    sum_u: &mut [f32],
    sum_delta: &mut [f32],
    sum_z: &mut [f32],
    part_b: &mut [f32],
    part_c: &mut [f32],
    part_a: &mut [f32],
    part_d: &mut [f32],
    part_bias: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
) {
    let at = place(sizes, plan);
    let mut slopes = Array::<f32>::new(comptime!(plan.states * slope_rates_len(plan)));
    let mut shared = projections::<FB, FC>(b, c, &at, sizes, plan);
    let mut before = Shared::<[f32]>::new_slice(comptime!(CHUNK * plan.states * plan.units));
    let mut sums = Shared::<[f32]>::new_slice(comptime!(sums_len(plan)));
    let skip = if comptime!(plan.has_d && plan.last) { d[at.channel] } else { 0.0f32.runtime() };
    let bias = if comptime!(plan.has_bias) { delta_bias[at.channel] } else { 0.0f32.runtime() };
    let mut adjoint = Adjoint {
        h: Array::<f32>::new(plan.states),
        carry: Array::<f32>::new(plan.states),
        a: Array::<f32>::new(plan.states),
        b: Array::<f32>::new(plan.states),
        c: Array::<f32>::new(plan.states),
    };
    #[unroll]
    for n in 0..plan.states {
        keep_slope_state(&mut slopes, weight::<f32>(a, n, &at, sizes, plan), n, plan);
        adjoint.carry[n] = if comptime!(plan.segmented) {
            // Units beyond the group's channels must add nothing to the sums.
            select(at.active, carry[state_index(at.segment, n, &at, sizes)], 0.0f32)
        } else {
            0.0f32.runtime()
        };
        adjoint.a[n] = 0.0f32;
        adjoint.b[n] = 0.0f32;
        adjoint.c[n] = 0.0f32;
    }
    let mut total_d = 0.0f32;
    let mut total_bias = 0.0f32;
    let chunks = (at.end - at.begin + comptime!(CHUNK - 1)) / CHUNK;
    for back in 0..chunks {
        let begin = at.begin + (chunks - 1 - back) * CHUNK;
        let tokens = min(at.end - begin, CHUNK);
        sync_cube();
        if comptime!(!plan.b_constant) {
            load_rows::<FB>(&mut shared.b, b, begin, CHUNK, &at, sizes, plan);
        }
        if comptime!(!plan.c_constant) {
            load_rows::<FC>(&mut shared.c, c, begin, CHUNK, &at, sizes, plan);
        }
        sync_cube();
        // Forward again, keeping the state before every token.
        #[unroll]
        for n in 0..plan.states {
            adjoint.h[n] = if comptime!(!plan.ragged)
                || sizes.first_state as usize + n < sizes.d_state as usize
            {
                starts[start_index(begin, n, &at, sizes)]
            } else {
                0.0f32.runtime()
            };
        }
        let mut now_u = Array::<f32>::new(CHUNK);
        let mut now_delta = Array::<f32>::new(CHUNK);
        read_chunk::<F>(&mut now_u, u, &sizes.u, begin, &at, sizes, plan);
        read_chunk::<F>(&mut now_delta, delta, &sizes.delta, begin, &at, sizes, plan);
        // Steps past the end take no time and change nothing, here and backwards.
        #[unroll]
        for j in 0..CHUNK {
            keep_before(&mut before, &adjoint.h, j, plan);
            let size = select(j < tokens, step_size(now_delta[j], bias, plan), 0.0f32);
            readvance(&mut adjoint.h, &slopes, &shared, j * plan.states, size, now_u[j], plan);
        }
        // Backward, a token's inputs read one ahead of their use, and where there is room two tokens at a time, so that what
        // belongs to a token alone and the sums over channels overlap with the other's states.
        let mut next = Array::<f32>::new(4usize);
        read_token::<F>(&mut next, u, delta, grad_y, z, begin + CHUNK - 1, &at, sizes, plan);
        for turn in 0..comptime!(CHUNK / plan.together()) {
            #[unroll]
            for k in 0..comptime!(plan.together()) {
                let j = comptime!(CHUNK - 1 - k) - turn * comptime!(plan.together());
                let there = j < tokens;
                let mut now = Array::<f32>::new(4usize);
                #[unroll]
                for i in 0..4usize {
                    now[i] = next[i];
                }
                let (u_now, raw, dy, z_now) = (now[0], now[1], now[2], now[3]);
                let here = token_index(min(begin + j, at.end - 1), &at, sizes, plan);
                read_token::<F>(
                    &mut next,
                    u,
                    delta,
                    grad_y,
                    z,
                    begin + max(j, 1) - 1,
                    &at,
                    sizes,
                    plan,
                );
                let x = raw + bias;
                let size = if comptime!(plan.softplus) { softplus(x, plan.ptx) } else { x };
                let size = select(there, size, 0.0f32);
                let logistic =
                    if comptime!(plan.has_z) { sigmoid(z_now, plan.ptx) } else { 1.0f32.runtime() };
                let gate = if comptime!(plan.has_z) { z_now * logistic } else { 1.0f32.runtime() };
                let dy = select(at.active && there, dy, 0.0f32);
                let into = dy * gate;
                let into_scan = if comptime!(plan.halved) { into * 0.5f32 } else { into };
                let grads = retreat(
                    &mut adjoint,
                    &slopes,
                    &shared,
                    &before,
                    kept_from(j, plan),
                    j * plan.states,
                    size,
                    u_now,
                    into_scan,
                    plan,
                );
                if comptime!(!(plan.b_constant && plan.c_constant)) {
                    gather(&mut sums, &adjoint, j, plan);
                }
                let mut du = grads.u + skip * into;
                let mut ddelta = grads.delta;
                let mut pre = if comptime!(plan.halved) { grads.y * 0.5f32 } else { grads.y };
                pre += skip * u_now;
                let mut dz = dy * logistic * (1.0f32 + z_now * (1.0f32 - logistic)) * pre;
                if comptime!(!plan.first) {
                    du += sum_u[here];
                    ddelta += sum_delta[here];
                    if comptime!(plan.has_z) {
                        dz += sum_z[here];
                    }
                }
                if comptime!(plan.last) {
                    total_d += into * u_now;
                    if comptime!(plan.softplus) {
                        ddelta *= sigmoid(x, plan.ptx);
                    }
                    total_bias += select(at.active && there, ddelta, 0.0f32);
                }
                if at.active && there {
                    if comptime!(plan.last) {
                        grad_u[here] = F::cast_from(du);
                        grad_delta[here] = F::cast_from(ddelta);
                        if comptime!(plan.has_z) {
                            grad_z[here] = F::cast_from(dz);
                        }
                    } else {
                        sum_u[here] = du;
                        sum_delta[here] = ddelta;
                        if comptime!(plan.has_z) {
                            sum_z[here] = dz;
                        }
                    }
                }
            }
        }
        if comptime!(!(plan.b_constant && plan.c_constant)) {
            sync_cube();
            scatter(&sums, part_b, part_c, begin, tokens, &at, sizes, plan);
        }
    }
    let segments = (sizes.len as usize + sizes.segment as usize - 1) / sizes.segment as usize;
    let slot = sizes.way as usize * segments + at.segment;
    if at.active {
        #[unroll]
        for n in 0..plan.states {
            if comptime!(!plan.ragged) || sizes.first_state as usize + n < sizes.d_state as usize {
                let index = state_index(slot, n, &at, sizes);
                part_a[index] = adjoint.a[n];
                if comptime!(plan.b_constant) {
                    part_b[index] = adjoint.b[n];
                }
                if comptime!(plan.c_constant) {
                    part_c[index] = adjoint.c[n];
                }
            }
        }
        if comptime!(plan.last) {
            let row = at.segment * sizes.batch as usize + at.batch;
            let index = row * sizes.d_inner as usize + at.channel;
            part_d[index] = total_d;
            part_bias[index] = total_bias;
        }
    }
}

/// Reads what the backward scan needs of the unit's channel of a token: u, delta, the output's gradient, z.
#[cube]
fn read_token<F: Float>(
    to: &mut Array<f32>,
    u: &[F],
    delta: &[F],
    grad_y: &[F],
    z: &[F],
    step: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let step = min(step, at.end - 1);
    to[0] = f32::cast_from(u[row_index(step, &sizes.u, at, sizes, plan)]);
    to[1] = f32::cast_from(delta[row_index(step, &sizes.delta, at, sizes, plan)]);
    to[2] = f32::cast_from(grad_y[row_index(step, &sizes.grad_y, at, sizes, plan)]);
    if comptime!(plan.has_z) {
        to[3] = f32::cast_from(z[row_index(step, &sizes.z, at, sizes, plan)]);
    }
}

/// Keeps the states before the `j`-th token of a chunk.
#[cube]
fn keep_before(before: &mut Shared<[f32]>, h: &Array<f32>, j: usize, #[comptime] plan: ScanPlan) {
    #[unroll]
    for n in 0..plan.states {
        before[kept_from(j, plan) + comptime!(kept_at(n, plan))] = h[n];
    }
}

/// Numbers that [`gather`] needs shared memory for.
fn sums_len(plan: ScanPlan) -> usize {
    if plan.b_constant && plan.c_constant {
        1
    } else if plan.planes {
        plan.units / PLANE * CHUNK * 2 * HALF
    } else {
        CHUNK * 2 * plan.states + 2 * plan.states * plan.units
    }
}

/// Lanes of a plane that carry a sum for B; the others carry one for C.
const HALF: usize = PLANE / 2;

/// Sums the gradients of B and C of the `j`-th token over the cube's channels, or over each plane's.
#[cube]
fn gather(sums: &mut Shared<[f32]>, adjoint: &Adjoint, j: usize, #[comptime] plan: ScanPlan) {
    let unit = UNIT_POS_X as usize;
    if comptime!(plan.planes) {
        // Each round sends half of the values to the lane across and adds what comes from there:
        // after five, lane i has the sum of value i over the plane.
        let mut values = Array::<f32>::new(PLANE);
        #[unroll]
        for n in 0..HALF {
            let there = comptime!(n < plan.states);
            values[n] =
                if comptime!(there && !plan.b_constant) { adjoint.b[n] } else { 0.0f32.runtime() };
            values[HALF + n] =
                if comptime!(there && !plan.c_constant) { adjoint.c[n] } else { 0.0f32.runtime() };
        }
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
        #[unroll]
        for round in 0..5usize {
            let half = comptime!(HALF >> round);
            let upper = lane & comptime!(half as u32) != 0;
            #[unroll]
            for i in 0..half {
                let (low, high) = (values[i], values[i + half]);
                let keep = select(upper, high, low);
                let send = select(upper, low, high);
                values[i] = keep + plane_shuffle_xor(send, comptime!(half as u32));
            }
        }
        sums[(unit / PLANE * CHUNK + j) * PLANE + unit % PLANE] = values[0];
    } else {
        let scratch = comptime!(CHUNK * 2 * plan.states);
        #[unroll]
        for n in 0..plan.states {
            sums[scratch + n * plan.units + unit] =
                if comptime!(plan.b_constant) { 0.0f32.runtime() } else { adjoint.b[n] };
            sums[scratch + (plan.states + n) * plan.units + unit] =
                if comptime!(plan.c_constant) { 0.0f32.runtime() } else { adjoint.c[n] };
        }
        sync_cube();
        let mut value = unit;
        while value < comptime!(2 * plan.states) {
            let mut sum = 0.0f32;
            for i in 0..plan.units {
                sum += sums[scratch + value * plan.units + i];
            }
            sums[j * 2 * plan.states + value] = sum;
            value += plan.units;
        }
        sync_cube();
    }
}

/// Writes the sums of a chunk of `tokens` from step `begin` on.
#[cube]
fn scatter(
    sums: &Shared<[f32]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    at: &Place,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let strips = (per_group + comptime!(plan.units - 1)) / plan.units;
    let strip = sizes.way as usize * strips + CUBE_POS_X as usize % strips;
    let mut i = UNIT_POS_X as usize;
    while i < tokens * 2 * plan.states {
        let j = i / comptime!(2 * plan.states);
        let value = i % comptime!(2 * plan.states);
        let of_c = value >= plan.states;
        let n = if of_c { value - plan.states } else { value };
        let mut sum = 0.0f32;
        if comptime!(plan.planes) {
            let lane = if of_c { HALF + n } else { n };
            #[unroll]
            for plane in 0..comptime!(plan.units / PLANE) {
                sum += sums[(plane * CHUNK + j) * PLANE + lane];
            }
        } else {
            sum = sums[i];
        }
        let state = sizes.first_state as usize + n;
        if comptime!(!plan.ragged) || state < sizes.d_state as usize {
            let token = (strip * sizes.batch as usize + at.batch) * sizes.len as usize
                + token_at(begin + j, sizes, plan);
            let row = (token * sizes.groups as usize + at.group) * sizes.d_state as usize;
            if of_c {
                if comptime!(!plan.c_constant) {
                    part_c[row + state] = sum;
                }
            } else if comptime!(!plan.b_constant) {
                part_b[row + state] = sum;
            }
        }
        i += plan.units;
    }
}

/// Runs every segment backwards from nothing: `carry` becomes what flows out of its first token, `product` what is
/// multiplied on the way. `[segments, B, N, D]` both.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(crate) fn segment_outflows<F: Float, FC: Float>(
    delta: &[F],
    a: &[f32],
    c: &[FC],
    z: &[F],
    delta_bias: &[f32],
    grad_y: &[F],
    carry: &mut [f32],
    product: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F)] _f: ElemType,
    #[define(FC)] _fc: ElemType,
) {
    let at = place(sizes, plan);
    let mut rates = Array::<f32>::new(comptime!(plan.states * rates_len(plan)));
    load_rates(&mut rates, a, &at, sizes, plan);
    let mut shared = projections::<FC, FC>(c, c, &at, sizes, plan);
    let bias = if comptime!(plan.has_bias) { delta_bias[at.channel] } else { 0.0f32.runtime() };
    let mut flow = Array::<f32>::new(plan.states);
    let mut whole = Array::<f32>::new(plan.states);
    #[unroll]
    for n in 0..plan.states {
        flow[n] = 0.0f32;
        whole[n] = 1.0f32;
    }
    let chunks = (at.end - at.begin + comptime!(CHUNK - 1)) / CHUNK;
    for back in 0..chunks {
        let begin = at.begin + (chunks - 1 - back) * CHUNK;
        sync_cube();
        if comptime!(!plan.c_constant) {
            load_rows::<FC>(&mut shared.c, c, begin, CHUNK, &at, sizes, plan);
        }
        sync_cube();
        let mut now_delta = Array::<f32>::new(CHUNK);
        let mut now_dy = Array::<f32>::new(CHUNK);
        let mut now_z = Array::<f32>::new(CHUNK);
        read_chunk::<F>(&mut now_delta, delta, &sizes.delta, begin, &at, sizes, plan);
        read_chunk::<F>(&mut now_dy, grad_y, &sizes.grad_y, begin, &at, sizes, plan);
        if comptime!(plan.has_z) {
            read_chunk::<F>(&mut now_z, z, &sizes.z, begin, &at, sizes, plan);
        }
        #[unroll]
        for past in 0..CHUNK {
            let j = comptime!(CHUNK - 1 - past);
            let there = begin + j < at.end;
            let size = select(there, step_size(now_delta[j], bias, plan), 0.0f32);
            let mut into = select(there, now_dy[j], 0.0f32);
            if comptime!(plan.has_z) {
                into *= now_z[j] * sigmoid(now_z[j], plan.ptx);
            }
            if comptime!(plan.halved) {
                into *= 0.5f32;
            }
            retreat_silently(
                &mut flow,
                &mut whole,
                &rates,
                &shared,
                j * plan.states,
                size,
                into,
                plan,
            );
        }
    }
    if at.active {
        #[unroll]
        for n in 0..plan.states {
            if comptime!(!plan.ragged) || sizes.first_state as usize + n < sizes.d_state as usize {
                let index = state_index(at.segment, n, &at, sizes);
                carry[index] = flow[n];
                product[index] = whole[n];
            }
        }
    }
}
