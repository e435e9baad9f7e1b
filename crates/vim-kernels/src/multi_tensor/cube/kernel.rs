//! Kernels over many tensors: a cube processes a block of one of them.

use cubecl::prelude::*;

use crate::multi_tensor::BLOCK;

/// Units of a cube.
pub(crate) const UNITS: usize = 256;
/// Elements of a unit. Few: a kernel's code repeats them for each tensor.
const EACH: usize = BLOCK / UNITS;

/// Factors of an optimizer step.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Rule {
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    eps: f32,
    /// Global gradient norm above which the gradient is scaled down; 0 for none.
    limit: f32,
    root_scale: f32,
}

/// The tensor of this cube's block: the last one that begins at or before it.
#[cube]
fn tensor_of(begins: &[u32], #[comptime] count: usize) -> usize {
    let mut tensor = 0usize;
    for i in 1..count {
        if begins[i] <= CUBE_POS_X {
            tensor = i;
        }
    }
    tensor
}

/// Block `blocks_before + cube` of `out`: the block of its tensor, filled up with zeros.
#[cube(launch_unchecked)]
pub(crate) fn pack_kernel(
    tensors: &Sequence<Box<[f32]>>,
    begins: &[u32],
    lengths: &[u32],
    out: &mut [f32],
    blocks_before: u32,
) {
    let count = comptime!(tensors.len());
    let tensor = tensor_of(begins, count);
    let length = lengths[tensor] as usize;
    let first = (CUBE_POS_X - begins[tensor]) as usize * BLOCK + UNIT_POS as usize;
    let begin = (blocks_before + CUBE_POS_X) as usize * BLOCK + UNIT_POS as usize;
    let mut number = Array::<f32>::new(EACH);
    #[unroll]
    for k in 0..EACH {
        number[k] = 0.0f32;
    }
    #[unroll]
    for i in 0..count {
        if tensor == i {
            #[unroll]
            for k in 0..EACH {
                let at = first + k * UNITS;
                if at < length {
                    number[k] = tensors[i][at];
                }
            }
        }
    }
    #[unroll]
    for k in 0..EACH {
        out[begin + k * UNITS] = number[k];
    }
}

/// `sums[done + cube]`: the sum of squares of the block.
#[cube(launch_unchecked)]
pub(crate) fn squares_kernel(
    tensors: &Sequence<Box<[f32]>>,
    begins: &[u32],
    lengths: &[u32],
    sums: &mut [f32],
    done: u32,
) {
    let count = comptime!(tensors.len());
    let tensor = tensor_of(begins, count);
    let length = lengths[tensor] as usize;
    let first = (CUBE_POS_X - begins[tensor]) as usize * BLOCK + UNIT_POS as usize;
    let mut sum = 0.0f32;
    #[unroll]
    for i in 0..count {
        if tensor == i {
            #[unroll]
            for k in 0..EACH {
                let at = first + k * UNITS;
                if at < length {
                    let number = tensors[i][at];
                    sum += number * number;
                }
            }
        }
    }
    let total = cube_sum(sum);
    if UNIT_POS == 0 {
        sums[(done + CUBE_POS_X) as usize] = total;
    }
}

/// `out[0] = Σ sums`, one cube.
#[cube(launch_unchecked)]
pub(crate) fn sum_kernel(sums: &[f32], out: &mut [f32], count: u32) {
    let mut sum = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < count as usize {
        sum += sums[at];
        at += UNITS;
    }
    let total = cube_sum(sum);
    if UNIT_POS == 0 {
        out[0] = total;
    }
}

/// The sum over the units of a cube, returned to all of them.
#[cube]
fn cube_sum(value: f32) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(UNITS.ilog2() as usize) {
        let half = comptime!(UNITS >> (step + 1));
        if unit < half {
            shared[unit] += shared[unit + half];
        }
        sync_cube();
    }
    shared[0]
}

/// Whether a number is finite, by its bits: a compiler may assume finite numbers.
#[cube]
fn is_finite(number: f32) -> bool {
    u32::reinterpret(number) & 0x7F80_0000u32 != 0x7F80_0000u32
}

/// See [`crate::FlatParams::adamw`]; the group's tensors begin at `tensors_before`, its blocks at
/// `blocks_before`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "an optimizer step has these arrays")]
pub(crate) fn adamw_kernel(
    values: &Sequence<Box<[f32]>>,
    gradients: &Sequence<Box<[f32]>>,
    means: &[f32],
    squares: &[f32],
    begins: &[u32],
    lengths: &[u32],
    rates: &[f32],
    square_norm: &[f32],
    value_out: &mut [f32],
    first_out: &mut [f32],
    second_out: &mut [f32],
    tensors_before: u32,
    blocks_before: u32,
    rule: Rule,
) {
    let count = comptime!(values.len());
    let tensor = tensor_of(begins, count);
    let length = lengths[tensor] as usize;
    let own = 2 * (tensors_before as usize + tensor);
    let (rate, keep) = (rates[own], rates[own + 1]);
    let square_norm = square_norm[0];
    let mut scale = 1.0f32;
    if rule.limit > 0.0f32 {
        scale = min(scale, rule.limit / (f32::sqrt(square_norm) + 1e-6f32));
    }
    let finite = is_finite(square_norm);
    let first = (CUBE_POS_X - begins[tensor]) as usize * BLOCK + UNIT_POS as usize;
    let begin = (blocks_before + CUBE_POS_X) as usize * BLOCK + UNIT_POS as usize;
    let mut value = Array::<f32>::new(EACH);
    let mut gradient = Array::<f32>::new(EACH);
    #[unroll]
    for i in 0..count {
        if tensor == i {
            #[unroll]
            for k in 0..EACH {
                let at = first + k * UNITS;
                if at < length {
                    value[k] = values[i][at];
                    gradient[k] = gradients[i][at];
                }
            }
        }
    }
    #[unroll]
    for k in 0..EACH {
        let at = begin + k * UNITS;
        if first + k * UNITS < length {
            let g = gradient[k] * scale;
            let (mean, square) = (means[at], squares[at]);
            let m = mean * rule.beta1 + g * rule.rest1;
            let s = square * rule.beta2 + g * g * rule.rest2;
            let change = rate * m / (f32::sqrt(s) * rule.root_scale + rule.eps);
            value_out[at] = select(finite, value[k] * keep - change, value[k]);
            first_out[at] = select(finite, m, mean);
            second_out[at] = select(finite, s, square);
        }
    }
}

/// `out = decay·average + rest·value`, or `average` where `square_norm` is not finite; one unit per
/// vector.
#[cube(launch_unchecked)]
pub(crate) fn average_kernel<N: Size>(
    averages: &[Vector<f32, N>],
    values: &[Vector<f32, N>],
    square_norm: &[f32],
    out: &mut [Vector<f32, N>],
    decay: f32,
    rest: f32,
    count: u32,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let average = averages[at];
        if is_finite(square_norm[0]) {
            out[at] = average * Vector::new(decay) + values[at] * Vector::new(rest);
        } else {
            out[at] = average;
        }
    }
}
