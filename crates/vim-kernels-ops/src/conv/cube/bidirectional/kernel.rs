//! The kernels: see the module above.

use cubecl::prelude::*;

use super::super::kernel::{STRIPS, add_strips, load_taps};
use super::super::strips::{Strip, Strips, strip_of};
use vim_kernels_core::cube::math::{silu, silu_slope};

/// Windows of a step: their loads are in flight together.
const FORWARD_STEP: usize = 4;
pub(super) const BACKWARD_STEP: usize = 2;
/// Threads along the channels of a backward cube.
pub(super) const COLUMNS: usize = 16;

/// Token `at` of `x`, counted from W − 1 tokens before the sequence, as it is stored; 0 outside the
/// sequence or from `end` on.
#[cube]
fn token_of<R: Numeric, M: Size>(
    x: &[Vector<R, M>],
    base: usize,
    at: usize,
    pitch: usize,
    end: usize,
    #[comptime] reach: usize,
) -> Vector<R, M> {
    let mut read = Vector::<R, M>::new(R::from_int(0));
    // Before the sequence this wraps around.
    let token = at - reach;
    if token < end {
        read = x[base + token * pitch];
    }
    read
}

/// The channels of a token as it is stored.
#[cube]
fn lanes_of<R: Numeric, M: Size, N: Size>(
    stored: Vector<R, M>,
    #[comptime] packed: bool,
) -> Vector<f32, N> {
    let mut read = Vector::<f32, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        if comptime!(packed) {
            // A bf16 is the upper half of an f32.
            let pair = u32::cast_from(stored.extract(comptime!(lane / 2)));
            let bits = if comptime!(lane % 2 == 0) { pair << 16u32 } else { pair & 0xFFFF_0000u32 };
            read.insert(lane, f32::reinterpret(bits));
        } else {
            read.insert(lane, f32::cast_from(stored.extract(lane)));
        }
    }
    read
}

/// `y[0]` and `y[1]`, each `[B, L, D]`, from elements `to_ahead` and `to_back` on: silu of the
/// convolutions of `x` in token order and in reverse, with `weight [D, W]` and `bias [D]` of each.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "two directions' weights")]
pub(super) fn bidirectional_forward<R: Numeric, M: Size, F: Float, N: Size>(
    x: &[Vector<R, M>],
    weight_ahead: &[Vector<f32, N>],
    bias_ahead: &[Vector<f32, N>],
    weight_back: &[Vector<f32, N>],
    bias_back: &[Vector<f32, N>],
    y: &mut [Vector<F, N>],
    to_ahead: usize,
    to_back: usize,
    strips: Strips,
    #[comptime] width: usize,
    #[comptime] packed: bool,
    #[comptime] ptx: bool,
    #[define(R, F)] _dtypes: [ElemType; 2],
) {
    let reach = comptime!(width - 1);
    let groups = strips.groups;
    let pitch = strips.pitch;
    let len = strips.len;
    let strip = ABSOLUTE_POS / groups;
    let group = ABSOLUTE_POS % groups;
    if strip >= strips.total {
        terminate!();
    }
    let Strip { base, base_x, first, end } = strip_of(&strips, strip, group);
    // The windows of the strip, and its tokens, from W − 1 before the first window's last.
    let stop = select(first + strips.tokens < len + reach, first + strips.tokens, len + reach);
    let mut before = Array::<Vector<R, M>>::new(reach);
    let mut next = Array::<Vector<R, M>>::new(FORWARD_STEP);
    #[unroll]
    for k in 0..reach {
        before[k] = token_of::<R, M>(x, base_x, first + k, pitch, end, reach);
    }
    #[unroll]
    for j in 0..FORWARD_STEP {
        next[j] = token_of::<R, M>(x, base_x, first + reach + j, pitch, end, reach);
    }
    let ahead = load_taps::<N>(weight_ahead, group, width);
    let back = load_taps::<N>(weight_back, group, width);
    let offset_ahead = bias_ahead[group];
    let offset_back = bias_back[group];
    let mut window = Array::<Vector<f32, N>>::new(comptime!(reach + FORWARD_STEP));
    #[unroll]
    for k in 0..reach {
        window[k] = lanes_of::<R, M, N>(before[k], packed);
    }
    let mut step = first;
    while step < stop {
        #[unroll]
        for j in 0..FORWARD_STEP {
            window[reach + j] = lanes_of::<R, M, N>(next[j], packed);
        }
        #[unroll]
        for j in 0..FORWARD_STEP {
            let at = step + comptime!(FORWARD_STEP + j + reach);
            next[j] = token_of::<R, M>(x, base_x, at, pitch, end, reach);
        }
        #[unroll]
        for j in 0..FORWARD_STEP {
            let at = step + j;
            if at < stop {
                let mut sum_ahead = offset_ahead;
                let mut sum_back = offset_back;
                #[unroll]
                for tap in 0..width {
                    sum_ahead += ahead[tap] * window[j + tap];
                    sum_back += back[tap] * window[j + reach - tap];
                }
                let y_ahead = Vector::cast_from(silu::<N>(sum_ahead, ptx));
                let y_back = Vector::cast_from(silu::<N>(sum_back, ptx));
                if at < len {
                    y[to_ahead + base + at * groups] = y_ahead;
                }
                if at >= reach {
                    y[to_back + base + (at - reach) * groups] = y_back;
                }
            }
        }
        #[unroll]
        for k in 0..reach {
            window[k] = window[FORWARD_STEP + k];
        }
        step += FORWARD_STEP;
    }
}

/// The gradient of x `[B, L, D]` from those of both results. The gradients of weight `[D, W]` and
/// bias `[D]` of the forward direction, then of the reverse one, are one row of `partials` per
/// cube.
///
/// A strip's gradients of x need the W − 1 windows after it, whose gradients are computed again;
/// those of weight and bias count a window in its own strip only.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "two directions' weights")]
pub(super) fn bidirectional_backward<R: Numeric, M: Size, F: Float, N: Size>(
    grad_y: &[Vector<R, M>],
    x: &[Vector<R, M>],
    weight_ahead: &[Vector<f32, N>],
    bias_ahead: &[Vector<f32, N>],
    weight_back: &[Vector<f32, N>],
    bias_back: &[Vector<f32, N>],
    grad_x: &mut [Vector<F, N>],
    partials: &mut [f32],
    from_ahead: usize,
    from_back: usize,
    strips: Strips,
    partial_len: usize,
    #[comptime] width: usize,
    #[comptime] packed: bool,
    #[comptime] ptx: bool,
    #[define(R, F)] _dtypes: [ElemType; 2],
) {
    let reach = comptime!(width - 1);
    let groups = strips.groups;
    let pitch = strips.pitch;
    let len = strips.len;
    let columns = groups.div_ceil(COLUMNS);
    let group = (CUBE_POS % columns) * COLUMNS + UNIT_POS_X as usize;
    let row = CUBE_POS / columns;
    let strip = row * STRIPS + UNIT_POS_Y as usize;
    let zero = Vector::<f32, N>::new(0.0f32);

    // Taps and bias of the forward direction, then of the reverse one.
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(2 * (width + 1)));
    #[unroll]
    for k in 0..comptime!(2 * (width + 1)) {
        sums[k] = zero;
    }

    if group < groups && strip < strips.total {
        let Strip { base, base_x, first, .. } = strip_of(&strips, strip, group);
        let mut before = Array::<Vector<R, M>>::new(reach);
        let mut next = Array::<Vector<R, M>>::new(BACKWARD_STEP);
        let mut next_ahead = Array::<Vector<R, M>>::new(BACKWARD_STEP);
        let mut next_back = Array::<Vector<R, M>>::new(BACKWARD_STEP);
        #[unroll]
        for k in 0..reach {
            before[k] = token_of::<R, M>(x, base_x, first + k, pitch, len, reach);
        }
        #[unroll]
        for j in 0..BACKWARD_STEP {
            let at = first + j;
            let (ahead, back) = (from_ahead + base, from_back + base);
            next[j] = token_of::<R, M>(x, base_x, at + reach, pitch, len, reach);
            next_ahead[j] = token_of::<R, M>(grad_y, ahead, at + reach, groups, len, reach);
            next_back[j] = token_of::<R, M>(grad_y, back, at, groups, len, reach);
        }
        let ahead = load_taps::<N>(weight_ahead, group, width);
        let back = load_taps::<N>(weight_back, group, width);
        let offset_ahead = bias_ahead[group];
        let offset_back = bias_back[group];
        let mut window = Array::<Vector<f32, N>>::new(comptime!(reach + BACKWARD_STEP));
        let mut of_ahead = Array::<Vector<f32, N>>::new(comptime!(reach + BACKWARD_STEP));
        let mut of_back = Array::<Vector<f32, N>>::new(comptime!(reach + BACKWARD_STEP));
        #[unroll]
        for k in 0..reach {
            window[k] = lanes_of::<R, M, N>(before[k], packed);
            of_ahead[k] = zero;
            of_back[k] = zero;
        }
        // Counting from the strip's first window leaves its bounds to the launch's constants rather
        // than to registers.
        let mut step = 0usize.runtime();
        while step < strips.tokens + reach {
            #[unroll]
            for j in 0..BACKWARD_STEP {
                window[reach + j] = lanes_of::<R, M, N>(next[j], packed);
                of_ahead[reach + j] = lanes_of::<R, M, N>(next_ahead[j], packed);
                of_back[reach + j] = lanes_of::<R, M, N>(next_back[j], packed);
            }
            #[unroll]
            for j in 0..BACKWARD_STEP {
                let at = first + step + comptime!(BACKWARD_STEP + j);
                let (ahead, back) = (from_ahead + base, from_back + base);
                next[j] = token_of::<R, M>(x, base_x, at + reach, pitch, len, reach);
                next_ahead[j] = token_of::<R, M>(grad_y, ahead, at + reach, groups, len, reach);
                next_back[j] = token_of::<R, M>(grad_y, back, at, groups, len, reach);
            }
            #[unroll]
            for j in 0..BACKWARD_STEP {
                let seen = step + j;
                let mut sum_ahead = offset_ahead;
                let mut sum_back = offset_back;
                #[unroll]
                for tap in 0..width {
                    sum_ahead += ahead[tap] * window[j + tap];
                    sum_back += back[tap] * window[j + reach - tap];
                }
                // The gradients at the window's last token, and at its first.
                let grad_ahead = of_ahead[reach + j] * silu_slope::<N>(sum_ahead, ptx);
                let grad_back = of_back[reach + j] * silu_slope::<N>(sum_back, ptx);
                of_ahead[reach + j] = grad_ahead;
                of_back[reach + j] = grad_back;
                let own = seen < strips.tokens;
                let own_ahead = select(own, grad_ahead, zero);
                let own_back = select(own, grad_back, zero);
                #[unroll]
                for tap in 0..width {
                    sums[tap] += own_ahead * window[j + tap];
                    sums[width + 1 + tap] += own_back * window[j + reach - tap];
                }
                sums[width] += own_ahead;
                sums[2 * width + 1] += own_back;
                let mut grad = zero;
                #[unroll]
                for tap in 0..width {
                    grad += ahead[tap] * of_ahead[reach + j - tap];
                    grad += back[tap] * of_back[j + tap];
                }
                let at = first + seen;
                if seen >= reach && at < len + reach {
                    grad_x[base_x + (at - reach) * pitch] = Vector::cast_from(grad);
                }
            }
            #[unroll]
            for k in 0..reach {
                window[k] = window[BACKWARD_STEP + k];
                of_ahead[k] = of_ahead[BACKWARD_STEP + k];
                of_back[k] = of_back[BACKWARD_STEP + k];
            }
            step += BACKWARD_STEP;
        }
    }

    let (directions, has_bias) = (2usize, true);
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
        has_bias,
    );
}
