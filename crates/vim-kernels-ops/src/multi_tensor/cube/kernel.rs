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

/// Numbers of a tensor in the table of places.
pub(crate) const PLACE: usize = 4;

/// Where the tensor of a block lies.
#[derive(CubeType, Clone, Copy)]
struct Place {
    /// Its number.
    tensor: usize,
    /// Of the block's first element in it.
    first: usize,
    /// Elements of it.
    length: usize,
    /// The buffer among those of the launch, and its first element there.
    buffer: usize,
    begin: usize,
}

/// The place of the tensor to which `block` belongs: `places` holds its first block, its length,
/// its buffer and its first element there.
#[cube]
fn place_of(block: usize, of_block: &[u32], places: &[u32]) -> Place {
    let tensor = of_block[block] as usize;
    let at = tensor * PLACE;
    Place {
        tensor,
        first: (block - places[at] as usize) * BLOCK,
        length: places[at + 1] as usize,
        buffer: places[at + 2] as usize,
        begin: places[at + 3] as usize,
    }
}

/// Block `blocks_before + cube` of `out`: the block of its tensor, filled up with zeros.
#[cube(launch_unchecked)]
pub(crate) fn pack_kernel(
    buffers: &Sequence<Box<[f32]>>,
    of_block: &[u32],
    places: &[u32],
    out: &mut [f32],
    blocks_before: u32,
) {
    let count = comptime!(buffers.len());
    let block = (blocks_before + CUBE_POS_X) as usize;
    let place = place_of(block, of_block, places);
    let begin = block * BLOCK + UNIT_POS as usize;
    let mut number = Array::<f32>::new(EACH);
    #[unroll]
    for k in 0..EACH {
        number[k] = 0.0f32;
    }
    #[unroll]
    for i in 0..count {
        if place.buffer == i {
            #[unroll]
            for k in 0..EACH {
                let at = place.first + UNIT_POS as usize + k * UNITS;
                if at < place.length {
                    number[k] = buffers[i][place.begin + at];
                }
            }
        }
    }
    #[unroll]
    for k in 0..EACH {
        out[begin + k * UNITS] = number[k];
    }
}

/// `sums[blocks_before + cube]`: the sum of squares of the block.
#[cube(launch_unchecked)]
pub(crate) fn squares_kernel(
    buffers: &Sequence<Box<[f32]>>,
    of_block: &[u32],
    places: &[u32],
    sums: &mut [f32],
    blocks_before: u32,
) {
    let count = comptime!(buffers.len());
    let block = (blocks_before + CUBE_POS_X) as usize;
    let place = place_of(block, of_block, places);
    let mut sum = 0.0f32;
    #[unroll]
    for i in 0..count {
        if place.buffer == i {
            #[unroll]
            for k in 0..EACH {
                let at = place.first + UNIT_POS as usize + k * UNITS;
                if at < place.length {
                    let number = buffers[i][place.begin + at];
                    sum += number * number;
                }
            }
        }
    }
    let total = cube_sum(sum);
    if UNIT_POS == 0 {
        sums[block] = total;
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

/// See [`crate::FlatParams::adamw`]; the first block of the launch is `blocks_before`. What fills
/// up blocks stays as it is.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "an optimizer step has these arrays")]
pub(crate) fn adamw_kernel(
    gradients: &Sequence<Box<[f32]>>,
    of_block: &[u32],
    places: &[u32],
    values: &mut [f32],
    means: &mut [f32],
    squares: &mut [f32],
    rates: &[f32],
    square_norm: &[f32],
    blocks_before: u32,
    rule: Rule,
) {
    let count = comptime!(gradients.len());
    let block = (blocks_before + CUBE_POS_X) as usize;
    let place = place_of(block, of_block, places);
    let (rate, keep) = (rates[2 * place.tensor], rates[2 * place.tensor + 1]);
    let square_norm = square_norm[0];
    let mut scale = 1.0f32;
    if rule.limit > 0.0f32 {
        scale = min(scale, rule.limit / (f32::sqrt(square_norm) + 1e-6f32));
    }
    let finite = is_finite(square_norm);
    let first = place.first + UNIT_POS as usize;
    let begin = block * BLOCK + UNIT_POS as usize;
    let mut gradient = Array::<f32>::new(EACH);
    #[unroll]
    for i in 0..count {
        if place.buffer == i {
            #[unroll]
            for k in 0..EACH {
                let at = first + k * UNITS;
                if at < place.length {
                    gradient[k] = gradients[i][place.begin + at];
                }
            }
        }
    }
    #[unroll]
    for k in 0..EACH {
        let at = begin + k * UNITS;
        if finite && first + k * UNITS < place.length {
            let g = gradient[k] * scale;
            let m = means[at] * rule.beta1 + g * rule.rest1;
            let s = squares[at] * rule.beta2 + g * g * rule.rest2;
            let change = rate * m / (f32::sqrt(s) * rule.root_scale + rule.eps);
            values[at] = values[at] * keep - change;
            means[at] = m;
            squares[at] = s;
        }
    }
}

/// `average = decay·average + rest·value`, unless `square_norm` is not finite; one unit per vector.
#[cube(launch_unchecked)]
pub(crate) fn average_kernel<N: Size>(
    averages: &mut [Vector<f32, N>],
    values: &[Vector<f32, N>],
    square_norm: &[f32],
    decay: f32,
    rest: f32,
    count: u32,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize && is_finite(square_norm[0]) {
        averages[at] = averages[at] * Vector::new(decay) + values[at] * Vector::new(rest);
    }
}
