//! The forward scan: one unit per channel, a chunk of tokens at a time, one state after the other.

use cubecl::prelude::*;

use super::numbers::{forward_step, output, sigmoid, step_size};
use super::plan::{
    CHUNK, ComplexPair, ComplexPlan, ComplexTensors, Sizes, channel_index, projection, rate,
    state_index, token_at, token_index, unit_coords,
};

/// Runs one sweep. Shapes as in [`crate::selective_scan()`], and `partial [B, L, D]`, the first of
/// two sweeps' part of the output; `chunk_states [chunks − 1, 2, B, N, D]` per sweep, the states
/// before every chunk but the first, or one slot of it if they are not saved. Buffers that the plan
/// does not use have one element.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(super) fn complex_forward<F: Float, FB: Float, FC: Float>(
    tensors: &ComplexTensors<F, FB, FC>,
    y: &mut [F],
    partial: &mut [f32],
    last_re: &mut [f32],
    last_im: &mut [f32],
    chunk_states: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: ComplexPlan,
    #[define(F, FB, FC)] _types: [ElemType; 3],
) {
    let pos = unit_coords(sizes, plan);
    if pos.active {
        let len = sizes.len as usize;
        let bias = if comptime!(plan.spec.has_delta_bias) {
            tensors.delta_bias[pos.channel]
        } else {
            0.0f32.runtime()
        };
        let b_constant = comptime!(plan.spec.b_constant);
        let c_constant = comptime!(plan.spec.c_constant);
        let skip = if comptime!(plan.spec.has_d && plan.last) {
            tensors.d[pos.channel]
        } else {
            0.0f32.runtime()
        };
        let mut step_delta = Array::<f32>::new(CHUNK);
        let mut step_u = Array::<f32>::new(CHUNK);
        let mut sum = Array::<f32>::new(CHUNK);
        let chunks = len.div_ceil(CHUNK);
        for chunk in 0..chunks {
            let first = chunk * CHUNK;
            let count = min(CHUNK, len - first);
            for j in 0..count {
                let index = token_index(token_at(first + j, &pos), &pos);
                step_delta[j] = step_size(f32::cast_from(tensors.delta[index]), bias, plan);
                step_u[j] = f32::cast_from(tensors.u[index]);
                sum[j] = 0.0f32;
            }
            let slot = if comptime!(plan.save) {
                sizes.slots_before as usize + chunk
            } else {
                1usize.runtime()
            };
            for n in 0..sizes.d_state as usize {
                let a = rate(tensors, n, &pos);
                let mut h_re = 0.0f32;
                let mut h_im = 0.0f32;
                if chunk > 0 {
                    h_re = chunk_states[state_index(2 * (slot - 1), n, &pos)];
                    h_im = chunk_states[state_index(2 * (slot - 1) + 1, n, &pos)];
                }
                for j in 0..count {
                    let token = token_at(first + j, &pos);
                    let b = projection(&tensors.b_re, &tensors.b_im, token, n, &pos, b_constant);
                    let c = projection(&tensors.c_re, &tensors.c_im, token, n, &pos, c_constant);
                    let h = ComplexPair { re: h_re, im: h_im };
                    let next = forward_step(h, a, b, step_delta[j], step_u[j], plan);
                    h_re = next.h.re;
                    h_im = next.h.im;
                    sum[j] += output(c, next.h);
                }
                if chunk + 1 < chunks {
                    let keep = if comptime!(plan.save) { slot } else { 0usize.runtime() };
                    chunk_states[state_index(2 * keep, n, &pos)] = h_re;
                    chunk_states[state_index(2 * keep + 1, n, &pos)] = h_im;
                } else if comptime!(plan.first) {
                    let row = pos.batch * sizes.d_inner as usize * sizes.d_state as usize;
                    last_re[row + channel_index(n, &pos)] = h_re;
                    last_im[row + channel_index(n, &pos)] = h_im;
                }
            }
            for j in 0..count {
                let index = token_index(token_at(first + j, &pos), &pos);
                let mut out = sum[j];
                if comptime!(!(plan.first && plan.last)) {
                    out *= 0.5f32;
                }
                if comptime!(!plan.first) {
                    out += partial[index];
                }
                if comptime!(plan.last) {
                    out += skip * step_u[j];
                    if comptime!(plan.spec.has_z) {
                        let gate = f32::cast_from(tensors.z[index]);
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
