//! The adjoint: chunks from the last to the first, the states of each recomputed from its start.

use cubecl::prelude::*;

use super::numbers::{StepGrads, backward_step, forward_step, sigmoid, step_size, step_slope};
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

/// A chunk's tokens in the unit's channel.
#[derive(CubeType)]
struct Chunk {
    /// The step sizes.
    delta: Array<f32>,
    u: Array<f32>,
    /// The gradient of the scan's output.
    dy: Array<f32>,
    /// Sums over states: the gradients of u and of the step size, and the output.
    sum_u: Array<f32>,
    sum_delta: Array<f32>,
    sum_y: Array<f32>,
    /// Of one state: its values after the tokens, and the decays.
    h_re: Array<f32>,
    h_im: Array<f32>,
    decay_re: Array<f32>,
    decay_im: Array<f32>,
}

/// Sums over the unit's tokens: the gradients of D and of the bias.
#[derive(CubeType)]
struct Totals {
    d: f32,
    bias: f32,
}

/// A sweep's share of the output.
fn weight(plan: ComplexPlan) -> f32 {
    if plan.first && plan.last { 1.0 } else { 0.5 }
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
    let bias = if comptime!(plan.spec.has_delta_bias) {
        tensors.delta_bias[pos.channel]
    } else {
        0.0f32.runtime()
    };
    let skip = if comptime!(plan.spec.has_d && plan.last) {
        tensors.d[pos.channel]
    } else {
        0.0f32.runtime()
    };
    let mut shared = Shared::<[f32]>::new_slice(comptime!(CHUNK * PARTS * ROW));
    let mut now = Chunk {
        delta: Array::<f32>::new(CHUNK),
        u: Array::<f32>::new(CHUNK),
        dy: Array::<f32>::new(CHUNK),
        sum_u: Array::<f32>::new(CHUNK),
        sum_delta: Array::<f32>::new(CHUNK),
        sum_y: Array::<f32>::new(CHUNK),
        h_re: Array::<f32>::new(CHUNK),
        h_im: Array::<f32>::new(CHUNK),
        decay_re: Array::<f32>::new(CHUNK),
        decay_im: Array::<f32>::new(CHUNK),
    };
    let mut totals = Totals { d: 0.0f32.runtime(), bias: 0.0f32.runtime() };
    let chunks = len.div_ceil(CHUNK);
    for done in 0..chunks {
        let chunk = chunks - 1 - done;
        let first = chunk * CHUNK;
        let count = min(CHUNK, len - first);
        read_chunk::<F, FB, FC>(&mut now, grad_y, tensors, bias, first, count, &pos);
        for n in 0..sizes.d_state as usize {
            let a = rate(tensors, n, &pos);
            let begin = begin_of_chunk(chunk_states, chunk, n, &pos);
            states_of_chunk::<F, FB, FC>(&mut now, tensors, a, begin, n, first, count, &pos);
            state_back::<F, FB, FC>(
                &mut now,
                &mut shared,
                tensors,
                grads,
                a,
                begin,
                n,
                first,
                count,
                done,
                &pos,
            );
            if comptime!(!(plan.spec.b_constant && plan.spec.c_constant)) {
                sync_cube();
                add_strips(&shared, &mut grads.strip_sums, first, count, n, &pos);
                sync_cube();
            }
        }
        write_tokens::<F, FB, FC>(
            grads,
            &mut totals,
            &now,
            grad_y,
            tensors,
            bias,
            skip,
            first,
            count,
            &pos,
        );
    }
    write_totals::<F>(grads, &totals, &pos);
}

/// Reads `count` tokens from step `first` on, and sets their sums to 0.
#[cube]
fn read_chunk<F: Float, FB: Float, FC: Float>(
    now: &mut Chunk,
    grad_y: &[F],
    tensors: &ComplexTensors<F, FB, FC>,
    bias: f32,
    first: usize,
    count: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    for j in 0..count {
        let index = token_index(token_at(first + j, pos), pos);
        now.delta[j] = step_size(f32::cast_from(tensors.delta[index]), bias, plan);
        now.u[j] = f32::cast_from(tensors.u[index]);
        let mut grad = f32::cast_from(grad_y[index]) * comptime!(weight(plan));
        if comptime!(plan.spec.has_z) {
            let gate = f32::cast_from(tensors.z[index]);
            grad *= gate * sigmoid(gate);
        }
        now.dy[j] = grad;
        now.sum_u[j] = 0.0f32;
        now.sum_delta[j] = 0.0f32;
        now.sum_y[j] = 0.0f32;
    }
}

/// State `n` before the chunk.
#[cube]
fn begin_of_chunk(chunk_states: &[f32], chunk: usize, n: usize, pos: &UnitCoords) -> ComplexPair {
    let mut begin_re = 0.0f32;
    let mut begin_im = 0.0f32;
    if chunk > 0 {
        let slot = pos.sizes.slots_before as usize + chunk - 1;
        begin_re = chunk_states[state_index(2 * slot, n, pos)];
        begin_im = chunk_states[state_index(2 * slot + 1, n, pos)];
    }
    ComplexPair { re: begin_re, im: begin_im }
}

/// Recomputes state `n` of `count` tokens from step `first` on.
#[cube]
fn states_of_chunk<F: Float, FB: Float, FC: Float>(
    now: &mut Chunk,
    tensors: &ComplexTensors<F, FB, FC>,
    a: ComplexPair,
    begin: ComplexPair,
    n: usize,
    first: usize,
    count: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let mut now_re = begin.re;
    let mut now_im = begin.im;
    for j in 0..count {
        let token = token_at(first + j, pos);
        let constant = comptime!(plan.spec.b_constant);
        let b = projection(&tensors.b_re, &tensors.b_im, token, n, pos, constant);
        let h = ComplexPair { re: now_re, im: now_im };
        let next = forward_step(h, a, b, now.delta[j], now.u[j], plan);
        now_re = next.h.re;
        now_im = next.h.im;
        now.h_re[j] = now_re;
        now.h_im[j] = now_im;
        now.decay_re[j] = next.a_bar.re;
        now.decay_im[j] = next.a_bar.im;
    }
}

/// The adjoint of state `n` over `count` tokens from step `first` on, which `begin` precedes, after
/// `done` chunks.
#[cube]
fn state_back<F: Float, FB: Float, FC: Float>(
    now: &mut Chunk,
    shared: &mut Shared<[f32]>,
    tensors: &ComplexTensors<F, FB, FC>,
    grads: &mut GradTensors<F>,
    a: ComplexPair,
    begin: ComplexPair,
    n: usize,
    first: usize,
    count: usize,
    done: usize,
    pos: &UnitCoords,
) {
    let mut grad_re = 0.0f32;
    let mut grad_im = 0.0f32;
    if done > 0 {
        grad_re = grads.carry[state_index(0usize, n, pos)];
        grad_im = grads.carry[state_index(1usize, n, pos)];
    }
    let mut sums = Array::<f32>::new(6usize);
    #[unroll]
    for i in 0..6usize {
        sums[i] = 0.0f32;
    }
    for back in 0..count {
        let j = count - 1 - back;
        let token = token_at(first + j, pos);
        let grad = ComplexPair { re: grad_re, im: grad_im };
        let pulled = token_back::<F, FB, FC>(now, tensors, grad, a, begin, n, token, j, pos);
        grad_re = pulled.h.re;
        grad_im = pulled.h.im;
        now.sum_u[j] += pulled.u;
        now.sum_delta[j] += pulled.delta;
        now.sum_y[j] += pulled.y;
        sums[0] += pulled.a.re;
        sums[1] += pulled.a.im;
        if comptime!(pos.plan.spec.b_constant) {
            sums[2] += pulled.b.re;
            sums[3] += pulled.b.im;
        } else {
            share(shared, j, 0usize, pulled.b, pos.active);
        }
        if comptime!(pos.plan.spec.c_constant) {
            sums[4] += pulled.c.re;
            sums[5] += pulled.c.im;
        } else {
            share(shared, j, 2usize, pulled.c, pos.active);
        }
    }
    if pos.active {
        grads.carry[state_index(0usize, n, pos)] = grad_re;
        grads.carry[state_index(1usize, n, pos)] = grad_im;
        add_states(&mut grads.state_sums, &sums, n, done > 0, pos);
    }
}

/// The backward step of the chunk's `j`-th token and state `n`.
#[cube]
fn token_back<F: Float, FB: Float, FC: Float>(
    now: &mut Chunk,
    tensors: &ComplexTensors<F, FB, FC>,
    grad: ComplexPair,
    a: ComplexPair,
    begin: ComplexPair,
    n: usize,
    token: usize,
    j: usize,
    pos: &UnitCoords,
) -> StepGrads {
    let plan = comptime!(pos.plan);
    let b_constant = comptime!(plan.spec.b_constant);
    let c_constant = comptime!(plan.spec.c_constant);
    let b = projection(&tensors.b_re, &tensors.b_im, token, n, pos, b_constant);
    let c = projection(&tensors.c_re, &tensors.c_im, token, n, pos, c_constant);
    let mut before_re = begin.re;
    let mut before_im = begin.im;
    if j > 0 {
        before_re = now.h_re[j - 1];
        before_im = now.h_im[j - 1];
    }
    backward_step(
        grad,
        now.dy[j],
        ComplexPair { re: now.h_re[j], im: now.h_im[j] },
        ComplexPair { re: before_re, im: before_im },
        ComplexPair { re: now.decay_re[j], im: now.decay_im[j] },
        a,
        b,
        c,
        now.delta[j],
        now.u[j],
        plan,
    )
}

/// Adds the sums over a chunk of state `n`'s gradients of A and of constant B and C, in this order.
#[cube]
fn add_states(state_sums: &mut [f32], sums: &Array<f32>, n: usize, later: bool, pos: &UnitCoords) {
    let b_constant = comptime!(pos.plan.spec.b_constant);
    add_state(state_sums, 0usize, n, sums[0], later, pos);
    add_state(state_sums, 1usize, n, sums[1], later, pos);
    if comptime!(b_constant) {
        add_state(state_sums, 2usize, n, sums[2], later, pos);
        add_state(state_sums, 3usize, n, sums[3], later, pos);
    }
    if comptime!(pos.plan.spec.c_constant) {
        let part = comptime!(if b_constant { 4usize } else { 2usize });
        add_state(state_sums, part, n, sums[4], later, pos);
        add_state(state_sums, part + 1, n, sums[5], later, pos);
    }
}

/// Writes the gradients of `count` tokens from step `first` on, or what this sweep has of them for
/// the next.
#[cube]
fn write_tokens<F: Float, FB: Float, FC: Float>(
    grads: &mut GradTensors<F>,
    totals: &mut Totals,
    now: &Chunk,
    grad_y: &[F],
    tensors: &ComplexTensors<F, FB, FC>,
    bias: f32,
    skip: f32,
    first: usize,
    count: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let sizes = &pos.sizes;
    let tokens = sizes.batch as usize * sizes.len as usize * sizes.d_inner as usize;
    for j in 0..count {
        let index = token_index(token_at(first + j, pos), pos);
        let raw = f32::cast_from(tensors.delta[index]);
        let mut of_u = now.sum_u[j];
        let mut of_delta = now.sum_delta[j] * step_slope(raw, bias, plan);
        let mut of_y = now.sum_y[j] * comptime!(weight(plan));
        totals.bias += of_delta;
        let grad = f32::cast_from(grad_y[index]);
        if comptime!(plan.last) {
            let mut gated = grad;
            if comptime!(plan.spec.has_z) {
                let gate = f32::cast_from(tensors.z[index]);
                gated *= gate * sigmoid(gate);
            }
            of_u += skip * gated;
            of_y += skip * now.u[j];
            totals.d += gated * now.u[j];
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

/// Writes the unit's sums over its tokens, and those of the sweep before.
#[cube]
fn write_totals<F: Float>(grads: &mut GradTensors<F>, totals: &Totals, pos: &UnitCoords) {
    let plan = comptime!(pos.plan);
    if pos.active {
        let channels = pos.sizes.batch as usize * pos.sizes.d_inner as usize;
        let index = pos.batch * pos.sizes.d_inner as usize + pos.channel;
        if comptime!(plan.last) {
            grads.channel_sums[index] = totals.d;
        }
        let mut total_bias = totals.bias;
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
