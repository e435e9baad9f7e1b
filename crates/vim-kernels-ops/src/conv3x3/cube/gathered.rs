//! The convolution as products of rows that are gathered in memory, a bounded number at once: where
//! the product is not our own, in f32 and TF32.

use burn::backend::TensorMetadata;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{Images, TAPS, gathered_rows};
use crate::matmul::cube::{Matrix, Output, add_parts, multiply, weight_gradient as product};
use vim_kernels_core::Precision;
use vim_kernels_core::cube::{cubes, dense, empty, lanes};

/// Units of a cube.
const UNITS: u32 = 256;

/// `to [rows, 9, width]`: the nine pixels, of `width` vectors, around each pixel from `first` on;
/// zeros beyond the image. One unit per vector.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gather_kernel<N: Size>(
    x: &[Vector<f32, N>],
    to: &mut [Vector<f32, N>],
    first: usize,
    count: usize,
    height: usize,
    columns: usize,
    width: usize,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let (place, channel) = (at / width, at % width);
        let (pixel, tap) = (first + place / TAPS, place % TAPS);
        // One more than the row and the column that are read.
        let row = pixel / columns % height + tap / 3;
        let column = pixel % columns + tap % 3;
        let mut value = Vector::<f32, N>::new(0.0f32);
        if row >= 1 && row <= height && column >= 1 && column <= columns {
            let from = pixel + tap / 3 * columns + tap % 3 - columns - 1;
            value = x[from * width + channel];
        }
        to[at] = value;
    }
}

/// The rows `[rows, 9·C]` of the nine pixels around each from `first` on, in `to`.
fn gather(x: &CubeTensor, images: Images, first: usize, rows: usize, to: &CubeTensor) -> Matrix {
    let lanes = lanes(images.channels, 4);
    let width = images.channels / lanes;
    let count = rows * TAPS * width;
    let client = x.client.clone();
    // SAFETY: both buffers are dense, and `to` holds `rows` rows; units from `count` on do nothing.
    unsafe {
        gather_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            x.required_address_type().max(to.required_address_type()),
            lanes,
            x.clone().into_buffer_arg(),
            to.clone().into_buffer_arg(),
            first,
            count,
            images.height,
            images.width,
            width,
        );
    }
    Matrix::dense(to, [rows, TAPS * images.channels])
}

/// Calls `on` with the gathered rows of every part of the pixels, and with its first pixel.
fn for_each_part(x: &CubeTensor, images: Images, mut on: impl FnMut(&Matrix, usize)) {
    let most = gathered_rows(images.channels).min(images.pixels());
    let buffer = empty(x, [most, TAPS * images.channels], DType::F32);
    for first in (0..images.pixels()).step_by(most) {
        let rows = most.min(images.pixels() - first);
        on(&gather(x, images, first, rows, &buffer), first);
    }
}

/// `y = x * weight + bias`, of `weight [9·C, N]`.
pub(super) fn convolve(
    x: &CubeTensor,
    images: Images,
    weight: &CubeTensor,
    bias: Option<&CubeTensor>,
    y: &CubeTensor,
    precision: Precision,
) {
    let [terms, n] = weight.shape().dims();
    let weight = Matrix::dense(weight, [terms, n]);
    for_each_part(x, images, |gathered, first| {
        let [rows, _] = gathered.size;
        let out = Matrix::within(y, [rows, n], first * n, n);
        multiply(gathered, &weight, bias, &out, Output::Overwrite, precision);
    });
}

/// The weight of the gradient of x, `[9·O, C]`, of `weight [9·C, O]`: the taps in reverse, the
/// matrix of each transposed.
pub(super) fn mirrored(weight: &CubeTensor, [channels, outputs]: [usize; 2]) -> CubeTensor {
    let taps = CubeBackend::float_reshape(weight.clone(), [TAPS, channels, outputs].into());
    let taps = CubeBackend::float_swap_dims(CubeBackend::float_flip(taps, &[0]), 1, 2);
    dense(CubeBackend::float_reshape(taps, [TAPS * outputs, channels].into()))
}

/// The gradient of the weight, `[9·C, O]`: those of the parts are added in order.
pub(super) fn weight_gradient(
    x: &CubeTensor,
    images: Images,
    grad: &CubeTensor,
    outputs: usize,
    precision: Precision,
) -> CubeTensor {
    let size = [TAPS * images.channels, outputs];
    let mut parts = Vec::new();
    for_each_part(x, images, |gathered, first| {
        let [rows, _] = gathered.size;
        let grad = Matrix::within(grad, [rows, outputs], first * outputs, outputs);
        parts.push(product(gathered, &grad, 1.0, precision));
    });
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let count = parts.len();
    let all = dense(CubeBackend::float_cat(parts, 0));
    let out = empty(x, size, DType::F32);
    add_parts(&all, [1, count, size[0] * size[1]], &out);
    out
}
