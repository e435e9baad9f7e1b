//! The adjoint: chunks from the last to the first, the states of each recomputed from its start.

use cubecl::prelude::*;

use super::numbers::{backward_step, forward_step, sigmoid, step_size, step_slope};
use super::plan::{
    CHUNK, ComplexPair, ComplexPlan, ComplexTensors, Sizes, UNITS, UnitCoords, projection, rate,
    row_index, state_index, token_at, token_index, unit_coords,
};

/// Numbers per token in the gradients of B and C: two parts of each.
const PARTS: usize = 4;

/// Row stride in shared memory: one more than the units, so that rows begin in different banks.
const ROW: usize = UNITS + 1;

/// What the adjoint of a sweep writes.
#[derive(CubeType, CubeLaunch)]
pub(super) struct GradTensors<F: Float> {
    u: Box<[F]>,
    delta: Box<[F]>,
    z: Box<[F]>,
    /// `[3, B, L, D]`: the first of two sweeps' part of the gradients of u, delta and z.
    partial: Box<[f32]>,
    /// `[2, B, N, D]`: the gradient of the state, from chunk to chunk.
    carry: Box<[f32]>,
    /// `[2 or 4 or 6, B, N, D]`: gradients of A, then of constant B and C, by batch element.
    state_sums: Box<[f32]>,
    /// `[4, strips, B, L, G, N]`: gradients of B and C that vary, by strip of channels.
    strip_sums: Box<[f32]>,
    /// `[2, B, D]`: gradients of D and of the bias, by batch element.
    channel_sums: Box<[f32]>,
}

/// Runs the adjoint of one sweep.
#[cube(launch_unchecked)]
pub(super) fn complex_backward<F: Float, FB: Float, FC: Float>(
    grad_y: &[F],
    tensors: &ComplexTensors<F, FB, FC>,
    chunk_states: &[f32],
    grads: &mut GradTensors<F>,
    sizes: Sizes,
    #[comptime] plan: ComplexPlan,
    #[define(F, FB, FC)] _types: [ElemType; 3],
) {
    let pos = unit_coords(sizes, plan);
    let len = sizes.len as usize;
    let tokens = sizes.batch as usize * len * sizes.d_inner as usize;
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
    let weight = comptime!(if plan.first && plan.last { 1.0f32 } else { 0.5f32 });
    let mut shared = Shared::<[f32]>::new_slice(comptime!(CHUNK * PARTS * ROW));

    let mut step_delta = Array::<f32>::new(CHUNK);
    let mut step_u = Array::<f32>::new(CHUNK);
    // The gradients of the scan's output, and of the gate's input through silu′.
    let mut grad_scan = Array::<f32>::new(CHUNK);
    let mut sum_u = Array::<f32>::new(CHUNK);
    let mut sum_delta = Array::<f32>::new(CHUNK);
    let mut sum_y = Array::<f32>::new(CHUNK);
    let mut h_re = Array::<f32>::new(CHUNK);
    let mut h_im = Array::<f32>::new(CHUNK);
    let mut decay_re = Array::<f32>::new(CHUNK);
    let mut decay_im = Array::<f32>::new(CHUNK);
    let mut total_d = 0.0f32;
    let mut total_bias = 0.0f32;

    let chunks = len.div_ceil(CHUNK);
    for done in 0..chunks {
        let chunk = chunks - 1 - done;
        let first = chunk * CHUNK;
        let count = min(CHUNK, len - first);
        for j in 0..count {
            let index = token_index(token_at(first + j, &pos), &pos);
            step_delta[j] = step_size(f32::cast_from(tensors.delta[index]), bias, plan);
            step_u[j] = f32::cast_from(tensors.u[index]);
            let mut grad = f32::cast_from(grad_y[index]) * weight;
            if comptime!(plan.spec.has_z) {
                let gate = f32::cast_from(tensors.z[index]);
                grad *= gate * sigmoid(gate);
            }
            grad_scan[j] = grad;
            sum_u[j] = 0.0f32;
            sum_delta[j] = 0.0f32;
            sum_y[j] = 0.0f32;
        }
        for n in 0..sizes.d_state as usize {
            let a = rate(tensors, n, &pos);
            let mut begin_re = 0.0f32;
            let mut begin_im = 0.0f32;
            if chunk > 0 {
                let slot = sizes.slots_before as usize + chunk - 1;
                begin_re = chunk_states[state_index(2 * slot, n, &pos)];
                begin_im = chunk_states[state_index(2 * slot + 1, n, &pos)];
            }
            let mut now_re = begin_re;
            let mut now_im = begin_im;
            for j in 0..count {
                let token = token_at(first + j, &pos);
                let b = projection(&tensors.b_re, &tensors.b_im, token, n, &pos, b_constant);
                let h = ComplexPair { re: now_re, im: now_im };
                let next = forward_step(h, a, b, step_delta[j], step_u[j], plan);
                now_re = next.h.re;
                now_im = next.h.im;
                h_re[j] = now_re;
                h_im[j] = now_im;
                decay_re[j] = next.a_bar.re;
                decay_im[j] = next.a_bar.im;
            }
            let mut grad_re = 0.0f32;
            let mut grad_im = 0.0f32;
            if done > 0 {
                grad_re = grads.carry[state_index(0usize, n, &pos)];
                grad_im = grads.carry[state_index(1usize, n, &pos)];
            }
            let mut sums = Array::<f32>::new(6usize);
            #[unroll]
            for i in 0..6usize {
                sums[i] = 0.0f32;
            }
            for back in 0..count {
                let j = count - 1 - back;
                let token = token_at(first + j, &pos);
                let b = projection(&tensors.b_re, &tensors.b_im, token, n, &pos, b_constant);
                let c = projection(&tensors.c_re, &tensors.c_im, token, n, &pos, c_constant);
                let mut before_re = begin_re;
                let mut before_im = begin_im;
                if j > 0 {
                    before_re = h_re[j - 1];
                    before_im = h_im[j - 1];
                }
                let pulled = backward_step(
                    ComplexPair { re: grad_re, im: grad_im },
                    grad_scan[j],
                    ComplexPair { re: h_re[j], im: h_im[j] },
                    ComplexPair { re: before_re, im: before_im },
                    ComplexPair { re: decay_re[j], im: decay_im[j] },
                    a,
                    b,
                    c,
                    step_delta[j],
                    step_u[j],
                    plan,
                );
                grad_re = pulled.h.re;
                grad_im = pulled.h.im;
                sum_u[j] += pulled.u;
                sum_delta[j] += pulled.delta;
                sum_y[j] += pulled.y;
                sums[0] += pulled.a.re;
                sums[1] += pulled.a.im;
                if comptime!(b_constant) {
                    sums[2] += pulled.b.re;
                    sums[3] += pulled.b.im;
                } else {
                    share(&mut shared, j, 0usize, pulled.b, pos.active);
                }
                if comptime!(c_constant) {
                    sums[4] += pulled.c.re;
                    sums[5] += pulled.c.im;
                } else {
                    share(&mut shared, j, 2usize, pulled.c, pos.active);
                }
            }
            if pos.active {
                grads.carry[state_index(0usize, n, &pos)] = grad_re;
                grads.carry[state_index(1usize, n, &pos)] = grad_im;
                add_state(&mut grads.state_sums, 0usize, n, sums[0], done > 0, &pos);
                add_state(&mut grads.state_sums, 1usize, n, sums[1], done > 0, &pos);
                if comptime!(b_constant) {
                    add_state(&mut grads.state_sums, 2usize, n, sums[2], done > 0, &pos);
                    add_state(&mut grads.state_sums, 3usize, n, sums[3], done > 0, &pos);
                }
                if comptime!(c_constant) {
                    let part = comptime!(if b_constant { 4usize } else { 2usize });
                    add_state(&mut grads.state_sums, part, n, sums[4], done > 0, &pos);
                    add_state(&mut grads.state_sums, part + 1, n, sums[5], done > 0, &pos);
                }
            }
            if comptime!(!(b_constant && c_constant)) {
                sync_cube();
                add_strips(&shared, &mut grads.strip_sums, first, count, n, &pos);
                sync_cube();
            }
        }
        for j in 0..count {
            let index = token_index(token_at(first + j, &pos), &pos);
            let raw = f32::cast_from(tensors.delta[index]);
            let mut of_u = sum_u[j];
            let mut of_delta = sum_delta[j] * step_slope(raw, bias, plan);
            let mut of_y = sum_y[j] * weight;
            total_bias += of_delta;
            let grad = f32::cast_from(grad_y[index]);
            if comptime!(plan.last) {
                let mut gated = grad;
                if comptime!(plan.spec.has_z) {
                    let gate = f32::cast_from(tensors.z[index]);
                    gated *= gate * sigmoid(gate);
                }
                of_u += skip * gated;
                of_y += skip * step_u[j];
                total_d += gated * step_u[j];
            }
            if pos.active {
                if comptime!(!plan.first) {
                    of_u += grads.partial[index];
                    of_delta += grads.partial[tokens + index];
                    of_y += grads.partial[2 * tokens + index];
                }
                if comptime!(plan.last) {
                    grads.u[index] = F::cast_from(of_u);
                    grads.delta[index] = F::cast_from(of_delta);
                    if comptime!(plan.spec.has_z) {
                        let gate = f32::cast_from(tensors.z[index]);
                        let s = sigmoid(gate);
                        let slope = s * (1.0f32 + gate * (1.0f32 - s));
                        grads.z[index] = F::cast_from(grad * of_y * slope);
                    }
                } else {
                    grads.partial[index] = of_u;
                    grads.partial[tokens + index] = of_delta;
                    grads.partial[2 * tokens + index] = of_y;
                }
            }
        }
    }
    if pos.active {
        let channels = sizes.batch as usize * sizes.d_inner as usize;
        let index = pos.batch * sizes.d_inner as usize + pos.channel;
        if comptime!(plan.last) {
            grads.channel_sums[index] = total_d;
        }
        if comptime!(!plan.first) {
            total_bias += grads.channel_sums[channels + index];
        }
        grads.channel_sums[channels + index] = total_bias;
    }
}

/// Writes a unit's part of a token's gradient for [`add_strips`]; zero for a unit without a
/// channel.
#[cube]
fn share(shared: &mut Shared<[f32]>, j: usize, part: usize, value: ComplexPair, active: bool) {
    let row = (j * PARTS + part) * ROW + UNIT_POS_X as usize;
    shared[row] = select(active, value.re, 0.0f32);
    shared[row + ROW] = select(active, value.im, 0.0f32);
}

/// Sums the units' parts, in order, into the gradients of B and C.
#[cube]
fn add_strips(
    shared: &Shared<[f32]>,
    strip_sums: &mut [f32],
    first: usize,
    count: usize,
    n: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let sizes = &pos.sizes;
    let rows =
        sizes.batch as usize * sizes.len as usize * sizes.groups as usize * sizes.d_state as usize;
    let strips = (sizes.d_inner as usize / sizes.groups as usize).div_ceil(UNITS);
    let mut row = UNIT_POS_X as usize;
    while row < count * PARTS {
        let part = row % PARTS;
        let wanted = if comptime!(plan.spec.b_constant) {
            part >= 2
        } else if comptime!(plan.spec.c_constant) {
            part < 2
        } else {
            true.runtime()
        };
        if wanted {
            let mut sum = 0.0f32;
            for unit in 0..UNITS {
                sum += shared[row * ROW + unit];
            }
            let token = token_at(first + row / PARTS, pos);
            let index = (part * strips + pos.strip) * rows + row_index(token, n, pos);
            if comptime!(!plan.first) {
                sum += strip_sums[index];
            }
            strip_sums[index] = sum;
        }
        row += UNITS;
    }
}

/// Adds to a state's sum, which the first chunk of the first sweep initializes.
#[cube]
fn add_state(sums: &mut [f32], part: usize, n: usize, value: f32, later: bool, pos: &UnitCoords) {
    let index = state_index(part, n, pos);
    let mut sum = value;
    if comptime!(pos.plan.first) {
        if later {
            sum += sums[index];
        }
    } else {
        sum += sums[index];
    }
    sums[index] = sum;
}
