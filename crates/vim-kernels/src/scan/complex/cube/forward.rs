//! The forward scan: one unit per channel, a chunk of tokens at a time, one state after the other.

use cubecl::prelude::*;

use super::numbers::{forward_step, output, sigmoid, step_size};
use super::plan::{
    CHUNK, ComplexPair, ComplexPlan, Sizes, channel_index, projection, state_index, token_at,
    token_index, unit_coords,
};

/// Runs one sweep. Shapes as in [`crate::selective_scan()`], and `partial [B, L, D]`, the first of
/// two sweeps' part of the output; `chunk_states [chunks − 1, 2, B, N, D]` per sweep, the states
/// before every chunk but the first, or one slot of it if they are not saved. Buffers that the plan
/// does not use have one element.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(super) fn complex_forward<F: Float, FB: Float, FC: Float>(
    u: &[F],
    delta: &[F],
    a_re: &[f32],
    a_im: &[f32],
    b_re: &[FB],
    b_im: &[FB],
    c_re: &[FC],
    c_im: &[FC],
    d: &[f32],
    z: &[F],
    delta_bias: &[f32],
    y: &mut [F],
    partial: &mut [f32],
    last_re: &mut [f32],
    last_im: &mut [f32],
    chunk_states: &mut [f32],
    sizes: &Sizes,
    #[comptime] plan: ComplexPlan,
    #[define(F)] _f: ElemType,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
) {
    let pos = unit_coords(sizes);
    if pos.active {
        let len = sizes.len as usize;
        let bias =
            if comptime!(plan.has_bias) { delta_bias[pos.channel] } else { 0.0f32.runtime() };
        let skip =
            if comptime!(plan.has_d && plan.last) { d[pos.channel] } else { 0.0f32.runtime() };
        let mut step_delta = Array::<f32>::new(CHUNK);
        let mut step_u = Array::<f32>::new(CHUNK);
        let mut sum = Array::<f32>::new(CHUNK);
        let chunks = len.div_ceil(CHUNK);
        for chunk in 0..chunks {
            let first = chunk * CHUNK;
            let count = min(CHUNK, len - first);
            for j in 0..count {
                let index = token_index(token_at(first + j, sizes, plan), &pos, sizes);
                step_delta[j] = step_size(f32::cast_from(delta[index]), bias, plan);
                step_u[j] = f32::cast_from(u[index]);
                sum[j] = 0.0f32;
            }
            let slot = if comptime!(plan.save) {
                sizes.slots_before as usize + chunk
            } else {
                1usize.runtime()
            };
            for n in 0..sizes.d_state as usize {
                let of = channel_index(n, &pos, sizes);
                let a = ComplexPair { re: a_re[of], im: a_im[of] };
                let mut h_re = 0.0f32;
                let mut h_im = 0.0f32;
                if chunk > 0 {
                    h_re = chunk_states[state_index(2 * (slot - 1), n, &pos, sizes)];
                    h_im = chunk_states[state_index(2 * (slot - 1) + 1, n, &pos, sizes)];
                }
                for j in 0..count {
                    let token = token_at(first + j, sizes, plan);
                    let b = projection(b_re, b_im, token, n, &pos, sizes, plan.b_constant);
                    let c = projection(c_re, c_im, token, n, &pos, sizes, plan.c_constant);
                    let h = ComplexPair { re: h_re, im: h_im };
                    let next = forward_step(h, a, b, step_delta[j], step_u[j], plan);
                    h_re = next.h.re;
                    h_im = next.h.im;
                    sum[j] += output(c, next.h);
                }
                if chunk + 1 < chunks {
                    let keep = if comptime!(plan.save) { slot } else { 0usize.runtime() };
                    chunk_states[state_index(2 * keep, n, &pos, sizes)] = h_re;
                    chunk_states[state_index(2 * keep + 1, n, &pos, sizes)] = h_im;
                } else if comptime!(plan.first) {
                    let row = pos.batch * sizes.d_inner as usize * sizes.d_state as usize;
                    last_re[row + of] = h_re;
                    last_im[row + of] = h_im;
                }
            }
            for j in 0..count {
                let index = token_index(token_at(first + j, sizes, plan), &pos, sizes);
                let mut out = sum[j];
                if comptime!(!(plan.first && plan.last)) {
                    out *= 0.5f32;
                }
                if comptime!(!plan.first) {
                    out += partial[index];
                }
                if comptime!(plan.last) {
                    out += skip * step_u[j];
                    if comptime!(plan.has_z) {
                        let gate = f32::cast_from(z[index]);
                        out *= gate * sigmoid(gate);
                    }
                    y[index] = F::cast_from(out);
                } else {
                    partial[index] = out;
                }
            }
        }
    }
}
