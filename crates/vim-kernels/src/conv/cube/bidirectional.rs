//! The causal convolutions of both directions in one pass: a thread owns a few neighbouring
//! channels and walks a strip of tokens, as in [`super::kernel`], and reads each token once for
//! both.
//!
//! A window of W tokens gives the forward direction's output at its last token and the reverse
//! direction's output at its first token, so one window serves both directions, in the forward pass
//! and in the backward pass.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::kernel::{
    COLUMNS, STEP, STRIPS, Strip, Strips, add_strips, load_bias, load_taps, strip_of,
};
use super::{BACKWARD_LANES, FORWARD_CUBE, FORWARD_LANES};
use crate::cube::math::{silu, silu_slope};
use crate::cube::{cubes, elem, empty, has_ptx, lanes};

/// Weight `[D, 1, W]` and bias `[D]` of a direction, dense.
pub(crate) type Taps = [CubeTensor; 2];

/// Writes silu of the convolutions of `x [B, L, D]` into the halves of `y [2·B, L, D]`: the first
/// direction's in token order (reversed if `reverse`), the second's in the opposite order.
pub(crate) fn conv_bidirectional(x: &CubeTensor, taps: [Taps; 2], reverse: bool, y: &CubeTensor) {
    let [[weight_ahead, bias_ahead], [weight_back, bias_back]] = in_order(taps, reverse);
    let client = x.client.clone();
    let [batch, len, d_inner] = x.shape().dims();
    let lanes = lanes(d_inner, FORWARD_LANES);
    let strips = Strips::new(x, lanes, 0);
    let dim = CubeDim::new_1d(FORWARD_CUBE);
    let count = calculate_cube_count_elemwise(&client, strips.total * strips.groups, dim);
    let halves = in_order([0, batch * len * d_inner / lanes], reverse);
    let [_, _, width] = weight_ahead.shape().dims();
    // SAFETY: x has dense rows, y is dense and holds twice as many elements; a thread stays within
    // a strip, and a strip within x.
    unsafe {
        bidirectional_forward::launch_unchecked(
            &client,
            count,
            dim,
            y.required_address_type(),
            lanes,
            x.clone().into_buffer_arg(),
            weight_ahead.into_buffer_arg(),
            bias_ahead.into_buffer_arg(),
            weight_back.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            halves[0],
            halves[1],
            strips.launch(),
            width,
            has_ptx(x),
            elem(x),
        );
    }
}

/// Partial sums of the gradients of both directions' taps and biases, `[rows, columns]`.
pub(crate) struct TapParts {
    pub(crate) parts: CubeTensor,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Writes the gradient of `x` into `grad_x`, which has x's row stride, from both halves of
/// `grad_y [2·B, L, D]`; the sums over the rows of the result are what [`tap_gradients`] takes.
pub(crate) fn conv_bidirectional_backward(
    grad_y: &CubeTensor,
    x: &CubeTensor,
    taps: [Taps; 2],
    reverse: bool,
    grad_x: &CubeTensor,
) -> TapParts {
    let [[weight_ahead, bias_ahead], [weight_back, bias_back]] = in_order(taps, reverse);
    let client = x.client.clone();
    let [batch, len, d_inner] = x.shape().dims();
    let [_, _, width] = weight_ahead.shape().dims();
    let lanes = lanes(d_inner, BACKWARD_LANES);
    let strips = Strips::new(x, lanes, width - 1);
    let rows = strips.total.div_ceil(STRIPS);
    let columns = 2 * d_inner * (width + 1);
    let parts = empty(x, [rows, columns], DType::F32);
    let halves = in_order([0, batch * len * d_inner / lanes], reverse);
    // SAFETY: as above; a cube writes one row of the partial sums.
    unsafe {
        bidirectional_backward::launch_unchecked(
            &client,
            cubes(&client, rows * strips.groups.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, STRIPS as u32),
            grad_y.required_address_type(),
            lanes,
            grad_y.clone().into_buffer_arg(),
            x.clone().into_buffer_arg(),
            weight_ahead.into_buffer_arg(),
            bias_ahead.into_buffer_arg(),
            weight_back.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            grad_x.clone().into_buffer_arg(),
            parts.clone().into_buffer_arg(),
            halves[0],
            halves[1],
            strips.launch(),
            columns,
            width,
            has_ptx(x),
            elem(x),
        );
    }
    TapParts { parts, rows, columns }
}

/// The gradients of each direction's taps and bias, within the sums of a backward pass.
pub(crate) fn tap_gradients(sums: &CubeTensor, taps: [&Taps; 2], reverse: bool) -> [Taps; 2] {
    let mut first = 0;
    let mut next = |like: &CubeTensor| {
        let mut part = sums.clone();
        part.handle = part.handle.offset_start((first * size_of::<f32>()) as u64);
        let shape: Shape = like.shape();
        first += shape.num_elements();
        part.meta = Box::new(Metadata::new(shape, like.meta.strides().clone()));
        part
    };
    in_order(in_order(taps, reverse).map(|taps| taps.each_ref().map(&mut next)), reverse)
}

/// The direction that goes with the tokens first.
fn in_order<T>([first, second]: [T; 2], reverse: bool) -> [T; 2] {
    if reverse { [second, first] } else { [first, second] }
}

/// Token `at` of `x`, counted from W − 1 tokens before the sequence; 0 outside the sequence.
#[cube]
fn token_of<F: Float, N: Size>(
    x: &[Vector<F, N>],
    base: usize,
    at: usize,
    pitch: usize,
    len: usize,
    #[comptime] reach: usize,
) -> Vector<f32, N> {
    let inside = at >= reach && at < len + reach;
    let token = select(inside, at, reach) - reach;
    let read = Vector::<f32, N>::cast_from(x[base + token * pitch]);
    select(inside, read, Vector::new(0.0f32))
}

/// `y[0]` and `y[1]`, each `[B, L, D]`, from elements `to_ahead` and `to_back` on: silu of the
/// convolutions of `x` in token order and in reverse, with `weight [D, W]` and `bias [D]` of each.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "two directions' weights")]
pub(crate) fn bidirectional_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    weight_ahead: &[f32],
    bias_ahead: &[f32],
    weight_back: &[f32],
    bias_back: &[f32],
    y: &mut [Vector<F, N>],
    to_ahead: usize,
    to_back: usize,
    strips: Strips,
    #[comptime] width: usize,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let reach = comptime!(width - 1);
    let groups = strips.groups;
    let len = strips.len;
    let strip = ABSOLUTE_POS / groups;
    let group = ABSOLUTE_POS % groups;
    if strip >= strips.total {
        terminate!();
    }
    let Strip { base, base_x, first, end } = strip_of(&strips, strip, group);
    let ahead = load_taps::<N>(weight_ahead, group, width);
    let back = load_taps::<N>(weight_back, group, width);
    let offset_ahead = load_bias::<N>(bias_ahead, group, true);
    let offset_back = load_bias::<N>(bias_back, group, true);
    // From W − 1 tokens before the step to W − 1 after it.
    let mut window = Array::<Vector<f32, N>>::new(comptime!(2 * reach + STEP));
    #[unroll]
    for k in 0..comptime!(2 * reach) {
        window[k] = token_of::<F, N>(x, base_x, first + k, strips.pitch, len, reach);
    }
    let mut token = first;
    while token < end {
        #[unroll]
        for j in 0..STEP {
            let at = token + comptime!(j + 2 * reach);
            window[2 * reach + j] = token_of::<F, N>(x, base_x, at, strips.pitch, len, reach);
        }
        #[unroll]
        for j in 0..STEP {
            if token + j < end {
                let mut sum_ahead = offset_ahead;
                let mut sum_back = offset_back;
                #[unroll]
                for tap in 0..width {
                    sum_ahead += ahead[tap] * window[j + tap];
                    sum_back += back[tap] * window[j + 2 * reach - tap];
                }
                let at = base + (token + j) * groups;
                y[to_ahead + at] = Vector::cast_from(silu::<N>(sum_ahead, ptx));
                y[to_back + at] = Vector::cast_from(silu::<N>(sum_back, ptx));
            }
        }
        #[unroll]
        for k in 0..comptime!(2 * reach) {
            window[k] = window[STEP + k];
        }
        token += STEP;
    }
}

/// The gradient of x `[B, L, D]` from those of both results. The gradients of weight `[D, W]` and
/// bias `[D]` of the forward direction, then of the reverse one, are one row of `partials` per
/// cube.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "two directions' weights")]
pub(crate) fn bidirectional_backward<F: Float, N: Size>(
    grad_y: &[Vector<F, N>],
    x: &[Vector<F, N>],
    weight_ahead: &[f32],
    bias_ahead: &[f32],
    weight_back: &[f32],
    bias_back: &[f32],
    grad_x: &mut [Vector<F, N>],
    partials: &mut [f32],
    from_ahead: usize,
    from_back: usize,
    strips: Strips,
    partial_len: usize,
    #[comptime] width: usize,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let reach = comptime!(width - 1);
    let groups = strips.groups;
    let len = strips.len;
    let columns = groups.div_ceil(COLUMNS);
    let group = (CUBE_POS % columns) * COLUMNS + UNIT_POS_X as usize;
    let row = CUBE_POS / columns;
    let strip = row * STRIPS + UNIT_POS_Y as usize;

    // Taps and bias of the forward direction, then of the reverse one.
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(2 * (width + 1)));
    #[unroll]
    for k in 0..comptime!(2 * (width + 1)) {
        sums[k] = Vector::new(0.0f32);
    }

    if group < groups && strip < strips.total {
        let Strip { base, base_x, first, end } = strip_of(&strips, strip, group);
        let ahead = load_taps::<N>(weight_ahead, group, width);
        let back = load_taps::<N>(weight_back, group, width);
        let offset_ahead = load_bias::<N>(bias_ahead, group, true);
        let offset_back = load_bias::<N>(bias_back, group, true);
        let zero = Vector::<f32, N>::new(0.0f32);
        let mut window = Array::<Vector<f32, N>>::new(comptime!(reach + STEP));
        let mut of_ahead = Array::<Vector<f32, N>>::new(comptime!(reach + STEP));
        let mut of_back = Array::<Vector<f32, N>>::new(comptime!(reach + STEP));
        #[unroll]
        for k in 0..reach {
            window[k] = token_of::<F, N>(x, base_x, first + k, strips.pitch, len, reach);
            of_ahead[k] = zero;
            of_back[k] = zero;
        }
        let mut token = first;
        while token < end + reach {
            #[unroll]
            for j in 0..STEP {
                let at = token + j;
                window[reach + j] =
                    token_of::<F, N>(x, base_x, at + reach, strips.pitch, len, reach);
                of_ahead[reach + j] =
                    token_of::<F, N>(grad_y, from_ahead + base, at + reach, groups, len, reach);
                of_back[reach + j] =
                    token_of::<F, N>(grad_y, from_back + base, at, groups, len, reach);
            }
            #[unroll]
            for j in 0..STEP {
                let at = token + j;
                let mut sum_ahead = offset_ahead;
                let mut sum_back = offset_back;
                #[unroll]
                for tap in 0..width {
                    sum_ahead += ahead[tap] * window[j + tap];
                    sum_back += back[tap] * window[j + reach - tap];
                }
                // The gradients at this token, and at the one W − 1 before it.
                let grad_ahead = of_ahead[reach + j] * silu_slope::<N>(sum_ahead, ptx);
                let grad_back = of_back[reach + j] * silu_slope::<N>(sum_back, ptx);
                of_ahead[reach + j] = grad_ahead;
                of_back[reach + j] = grad_back;
                if at < end {
                    #[unroll]
                    for tap in 0..width {
                        sums[tap] += grad_ahead * window[j + tap];
                    }
                    sums[width] += grad_ahead;
                }
                if at >= first + reach && at < end + reach {
                    #[unroll]
                    for tap in 0..width {
                        sums[width + 1 + tap] += grad_back * window[j + reach - tap];
                    }
                    sums[2 * width + 1] += grad_back;
                    let mut grad = zero;
                    #[unroll]
                    for tap in 0..width {
                        grad += ahead[tap] * of_ahead[reach + j - tap];
                        grad += back[tap] * of_back[j + tap];
                    }
                    grad_x[base_x + (at - reach) * strips.pitch] = Vector::cast_from(grad);
                }
            }
            #[unroll]
            for k in 0..reach {
                window[k] = window[STEP + k];
                of_ahead[k] = of_ahead[STEP + k];
                of_back[k] = of_back[STEP + k];
            }
            token += STEP;
        }
    }

    let count = comptime!(2 * (width + 1));
    add_strips::<N>(&sums, partials, row, partial_len, group, &strips, width, count);
}
