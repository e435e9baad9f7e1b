//! The causal convolution: a thread owns a few neighbouring channels and walks a strip of tokens.
//!
//! The taps and the last W − 1 tokens stay in registers, so a strip reads each token once. Tokens
//! are counted in the order of the convolution: `reverse` reverses the index.

use cubecl::prelude::*;

use super::strips::{Strip, Strips, strip_of};
use crate::conv::ConvSpec;
use vim_kernels_core::cube::math::{silu, silu_slope};

/// Tokens whose loads are in flight together.
pub(crate) const STEP: usize = 4;
/// Threads along the channels of a backward cube.
pub(crate) const COLUMNS: usize = 32;
/// Threads along the strips of a backward cube.
pub(crate) const STRIPS: usize = 8;

/// Compile-time configuration of a convolution kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConvConfig {
    pub(crate) spec: ConvSpec,
    pub(crate) width: usize,
    /// Whether the gradient of x is added to the existing values.
    pub(crate) accumulates: bool,
    pub(crate) ptx: bool,
}

/// The position of the convolution's `token`-th token.
#[cube]
fn place(token: usize, len: usize, #[comptime] reverse: bool) -> usize {
    if comptime!(reverse) { len - 1 - token } else { token }
}

/// The taps `[W]` of the channels of `group`, whose weights follow each other: vectors read them in
/// an N-th of the loads, each of which touches all lines that the plane's weights fill.
#[cube]
pub(crate) fn load_taps<N: Size>(
    weight: &[Vector<f32, N>],
    group: usize,
    #[comptime] width: usize,
) -> Array<Vector<f32, N>> {
    let lanes = N::value().comptime();
    let mut read = Array::<Vector<f32, N>>::new(width);
    #[unroll]
    for k in 0..width {
        read[k] = weight[group * width + k];
    }
    let mut taps = Array::<Vector<f32, N>>::new(width);
    #[unroll]
    for tap in 0..width {
        let mut gain = Vector::<f32, N>::empty();
        #[unroll]
        for lane in 0..lanes {
            let at = comptime!(lane * width + tap);
            gain.insert(lane, read[comptime!(at / lanes)].extract(comptime!(at % lanes)));
        }
        taps[tap] = gain;
    }
    taps
}

/// The bias of the channels of `group`, 0 where there is none: then it is a single number, which
/// WebGPU does not bind as vectors.
#[cube]
fn load_bias<N: Size>(bias: &[f32], group: usize, #[comptime] has_bias: bool) -> Vector<f32, N> {
    let mut offset = Vector::<f32, N>::new(0.0f32);
    if comptime!(has_bias) {
        #[unroll]
        for lane in 0..N::value() {
            offset.insert(lane, bias[group * N::value() + lane]);
        }
    }
    offset
}

/// `y [B, L, D]`, from element `to` on, of `x [B, L, D]`, `weight [D, W]` and `bias [D]`. One
/// thread per strip and group of channels; neighbouring threads have neighbouring groups.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn conv_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    weight: &[Vector<f32, N>],
    bias: &[f32],
    y: &mut [Vector<F, N>],
    to: usize,
    strips: Strips,
    #[comptime] config: ConvConfig,
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
    let pitch = strips.pitch;
    let Strip { base, base_x, first, end } = strip_of(&strips, strip, group);

    let taps = load_taps::<N>(weight, group, width);
    let offset = load_bias::<N>(bias, group, comptime!(config.spec.has_bias));
    // The tokens that the taps reach before the step's tokens, then those.
    let mut window = Array::<Vector<f32, N>>::new(comptime!(reach + STEP));
    #[unroll]
    for k in 0..reach {
        window[k] = Vector::new(0.0f32);
        if first + k >= reach {
            let at = place(first + k - reach, len, comptime!(config.spec.reverse));
            window[k] = Vector::cast_from(x[base_x + at * pitch]);
        }
    }

    let mut token = first;
    while token < end {
        #[unroll]
        for j in 0..STEP {
            // Past the end the last token is read again and its output dropped.
            let seen = select(token + j < len, token + j, len - 1);
            let at = place(seen, len, comptime!(config.spec.reverse));
            window[reach + j] = Vector::cast_from(x[base_x + at * pitch]);
        }
        #[unroll]
        for j in 0..STEP {
            if token + j < end {
                let mut sum = offset;
                #[unroll]
                for tap in 0..width {
                    sum += taps[tap] * window[j + tap];
                }
                if comptime!(config.spec.silu) {
                    sum = silu::<N>(sum, comptime!(config.ptx));
                }
                let at = place(token + j, len, comptime!(config.spec.reverse));
                y[to + base + at * groups] = Vector::cast_from(sum);
            }
        }
        #[unroll]
        for k in 0..reach {
            window[k] = window[STEP + k];
        }
        token += STEP;
    }
}

/// The gradient of x `[B, L, D]` from that of y, which begins at element `from`; the gradients of
/// weight `[D, W]` and bias `[D]` are one row of `partials` per cube.
///
/// A strip's gradient of x needs the gradients of the W − 1 pre-activations after it, which are
/// recomputed; the gradients of weight and bias count a token in its own strip only.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn conv_backward<F: Float, N: Size>(
    grad_y: &[Vector<F, N>],
    x: &[Vector<F, N>],
    weight: &[Vector<f32, N>],
    bias: &[f32],
    grad_x: &mut [Vector<F, N>],
    partials: &mut [f32],
    from: usize,
    strips: Strips,
    partial_len: usize,
    #[comptime] config: ConvConfig,
    #[define(F)] _dtype: ElemType,
) {
    let width = comptime!(config.width);
    let reach = comptime!(config.width - 1);
    let groups = strips.groups;
    let len = strips.len;
    let columns = groups.div_ceil(COLUMNS);
    let group = (CUBE_POS % columns) * COLUMNS + UNIT_POS_X as usize;
    let row = CUBE_POS / columns;
    let strip = row * STRIPS + UNIT_POS_Y as usize;

    let mut sums = Array::<Vector<f32, N>>::new(comptime!(width + 1));
    #[unroll]
    for k in 0..comptime!(width + 1) {
        sums[k] = Vector::new(0.0f32);
    }

    if group < groups && strip < strips.total {
        let pitch = strips.pitch;
        let Strip { base, base_x, first, end } = strip_of(&strips, strip, group);
        let taps = load_taps::<N>(weight, group, width);
        let offset = load_bias::<N>(bias, group, comptime!(config.spec.has_bias));
        let mut window = Array::<Vector<f32, N>>::new(comptime!(reach + STEP));
        let mut grads = Array::<Vector<f32, N>>::new(comptime!(reach + STEP));
        #[unroll]
        for k in 0..reach {
            grads[k] = Vector::new(0.0f32);
            window[k] = Vector::new(0.0f32);
            if first + k >= reach {
                let at = place(first + k - reach, len, comptime!(config.spec.reverse));
                window[k] = Vector::cast_from(x[base_x + at * pitch]);
            }
        }

        let mut token = first;
        while token < end + reach {
            #[unroll]
            for j in 0..STEP {
                let seen = select(token + j < len, token + j, len - 1);
                let at = place(seen, len, comptime!(config.spec.reverse));
                window[reach + j] = Vector::cast_from(x[base_x + at * pitch]);
                grads[reach + j] = Vector::cast_from(grad_y[from + base + at * groups]);
            }
            #[unroll]
            for j in 0..STEP {
                let mut grad = grads[reach + j];
                if comptime!(config.spec.silu) {
                    let mut sum = offset;
                    #[unroll]
                    for tap in 0..width {
                        sum += taps[tap] * window[j + tap];
                    }
                    grad *= silu_slope::<N>(sum, comptime!(config.ptx));
                }
                // No gradient comes from outside the sequence.
                grad = select(token + j < len, grad, Vector::new(0.0f32));
                grads[reach + j] = grad;
                if token + j < end {
                    #[unroll]
                    for tap in 0..width {
                        sums[tap] += grad * window[j + tap];
                    }
                    sums[width] += grad;
                }
                // The last term of the gradient of the token `reach` before.
                if token + j >= first + reach && token + j < end + reach {
                    let mut back = Vector::<f32, N>::new(0.0f32);
                    #[unroll]
                    for tap in 0..width {
                        back += taps[tap] * grads[reach + j - tap];
                    }
                    let at = base_x
                        + place(token + j - reach, len, comptime!(config.spec.reverse)) * pitch;
                    if comptime!(config.accumulates) {
                        back += Vector::cast_from(grad_x[at]);
                    }
                    grad_x[at] = Vector::cast_from(back);
                }
            }
            #[unroll]
            for k in 0..reach {
                window[k] = window[STEP + k];
                grads[k] = grads[STEP + k];
            }
            token += STEP;
        }
    }

    let directions = 1usize;
    add_strips::<N>(
        &sums,
        partials,
        row,
        partial_len,
        group,
        &strips,
        COLUMNS,
        width,
        directions,
        config.spec.has_bias,
    );
}

/// Adds the sums of a cube's threads over its strips, in their order, into row `row` of `partials`:
/// the taps `[D, W]` and the bias `[D]` of a direction, then of the other.
///
/// Each sum of a direction has its own row of threads: one thread adds the strips of one of them.
#[cube]
#[expect(clippy::too_many_arguments, reason = "sums, and where they go")]
pub(crate) fn add_strips<N: Size>(
    sums: &Array<Vector<f32, N>>,
    partials: &mut [f32],
    row: usize,
    partial_len: usize,
    group: usize,
    strips: &Strips,
    #[comptime] columns: usize,
    #[comptime] width: usize,
    #[comptime] directions: usize,
    #[comptime] has_bias: bool,
) {
    let count = comptime!(width + 1);
    let threads = comptime!(columns * STRIPS);
    let mut shared = Shared::<[Vector<f32, N>]>::new_slice(comptime!(count * threads));
    let column = UNIT_POS_X as usize;
    let y = UNIT_POS_Y as usize;
    let channels = strips.groups * N::value();
    let first = group * N::value();
    let written = comptime!(if has_bias { width + 1 } else { width });
    #[unroll]
    for direction in 0..directions {
        #[unroll]
        for k in 0..count {
            shared[k * threads + y * columns + column] = sums[comptime!(direction * count + k)];
        }
        sync_cube();
        if y < written && group < strips.groups && row * STRIPS < strips.total {
            let mut total = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for strip in 0..STRIPS {
                total += shared[y * threads + strip * columns + column];
            }
            // Of the taps, neighbours are W apart; of the bias, 1.
            let of_taps = y < width;
            let begin = row * partial_len + channels * comptime!(direction * count);
            let at = begin + select(of_taps, first * width + y, channels * width + first);
            let stride = select(of_taps, width, 1usize);
            #[unroll]
            for lane in 0..N::value() {
                partials[at + lane * stride] = total.extract(lane);
            }
        }
        sync_cube();
    }
}
