//! The causal convolutions of both directions in one pass: a thread owns a few neighbouring
//! channels and walks a strip of tokens, as in [`super::kernel`], and reads each token once for
//! both.
//!
//! A window of W tokens gives the forward direction's output at its last token and the reverse
//! direction's output at its first token, so one window serves both directions, in the forward pass
//! and in the backward pass.

use cubecl::prelude::*;

use super::kernel::{COLUMNS, STEP, STRIPS, Strips, load_bias, load_taps};
use crate::cube::math::{silu, silu_slope};

/// Compile-time configuration of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BidirectionalConfig {
    pub(crate) width: usize,
    pub(crate) ptx: bool,
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
    #[comptime] config: BidirectionalConfig,
    #[define(F)] _dtype: ElemType,
) {
    let width = comptime!(config.width);
    let reach = comptime!(config.width - 1);
    let groups = strips.groups;
    let len = strips.len;
    let strip = ABSOLUTE_POS / groups;
    let group = ABSOLUTE_POS % groups;
    if strip >= strips.total {
        terminate!();
    }
    let row = (strip / strips.per_sequence) * len;
    let base = row * groups + group;
    let base_x = row * strips.pitch + group;
    let first = (strip % strips.per_sequence) * strips.tokens;
    let end = select(first + strips.tokens < len, first + strips.tokens, len);

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
                y[to_ahead + at] = Vector::cast_from(silu::<N>(sum_ahead, comptime!(config.ptx)));
                y[to_back + at] = Vector::cast_from(silu::<N>(sum_back, comptime!(config.ptx)));
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
    #[comptime] config: BidirectionalConfig,
    #[define(F)] _dtype: ElemType,
) {
    let width = comptime!(config.width);
    let reach = comptime!(config.width - 1);
    let ptx = comptime!(config.ptx);
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
        let sequence = (strip / strips.per_sequence) * len;
        let base = sequence * groups + group;
        let base_x = sequence * strips.pitch + group;
        let first = (strip % strips.per_sequence) * strips.tokens;
        let end = select(first + strips.tokens < len, first + strips.tokens, len);
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

    // Over the strips of the cube, in their order.
    let mut shared = Shared::<[Vector<f32, N>]>::new_slice(comptime!(COLUMNS * STRIPS));
    let column = UNIT_POS_X as usize;
    let channels = groups * N::value();
    #[unroll]
    for k in 0..comptime!(2 * (width + 1)) {
        shared[UNIT_POS_Y as usize * COLUMNS + column] = sums[k];
        sync_cube();
        if UNIT_POS_Y == 0 && group < groups && row * STRIPS < strips.total {
            let mut total = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for strip in 0..STRIPS {
                total += shared[strip * COLUMNS + column];
            }
            let channel = group * N::value();
            let direction = comptime!(k / (width + 1));
            let tap = comptime!(k % (width + 1));
            let begin = channels * comptime!(direction * (width + 1));
            #[unroll]
            for lane in 0..N::value() {
                let at = if comptime!(tap < width) {
                    begin + (channel + lane) * width + tap
                } else {
                    begin + channels * width + channel + lane
                };
                partials[row * partial_len + at] = total.extract(lane);
            }
        }
        sync_cube();
    }
}
