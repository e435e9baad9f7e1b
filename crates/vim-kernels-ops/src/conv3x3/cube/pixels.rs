//! The pixels around each pixel, copied into shared memory without being stored before.

use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use crate::matmul::cube::plan::Stage;

/// Sizes of an image, in pixels.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct ImageSize {
    pub(super) height: u32,
    pub(super) width: u32,
}

/// The pixels whose channels a unit copies into a stage, a pixel to a row of the stage: their
/// numbers, rows and columns.
#[derive(CubeType)]
pub(super) struct Pixels {
    number: Array<u32>,
    row: Array<u32>,
    column: Array<u32>,
}

/// Vectors of a stage that a unit copies.
pub(super) fn copies_per_unit(stage: Stage, lanes: usize, threads: usize) -> usize {
    (stage.rows * stage.columns / lanes).div_ceil(threads)
}

/// The pixels of a stage whose first row is pixel `first`.
#[cube]
pub(super) fn locate<N: Size>(
    first: u32,
    size: &ImageSize,
    #[comptime] stage: Stage,
    #[comptime] threads: usize,
) -> Pixels {
    let lanes = N::value().comptime();
    let count = comptime!(copies_per_unit(stage, lanes, threads));
    let per_row = comptime!((stage.columns / lanes) as u32);
    let mut number = Array::<u32>::new(count);
    let mut row = Array::<u32>::new(count);
    let mut column = Array::<u32>::new(count);
    #[unroll]
    for i in 0..count {
        let pixel = first + (UNIT_POS + comptime!((i * threads) as u32)) / per_row;
        number[i] = pixel;
        row[i] = pixel / size.width % size.height;
        column[i] = pixel % size.width;
    }
    Pixels { number, row, column }
}

/// Moves on by `step` pixels, which are `down` rows, fewer than an image has, and `right` columns.
#[cube]
pub(super) fn advance(
    pixels: &mut Pixels,
    step: u32,
    down: u32,
    right: u32,
    size: &ImageSize,
    #[comptime] count: usize,
) {
    #[unroll]
    for i in 0..count {
        let number = pixels.number[i] + step;
        pixels.number[i] = number;
        let column = pixels.column[i] + right;
        let beyond = column >= size.width;
        pixels.column[i] = select(beyond, column - size.width, column);
        let row = pixels.row[i] + down + select(beyond, 1u32, 0u32);
        pixels.row[i] = select(row >= size.height, row - size.height, row);
    }
}

/// Copies, from `channel` on, the channels of the pixels that lie at `tap` of `pixels` into shared
/// memory, from vector `base` on; zeros beyond an image, the last channel and the last pixel.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a window of images has these sides")]
pub(super) fn copy_shifted<S: Float, N: Size>(
    to: &mut Shared<[Vector<S, N>]>,
    base: usize,
    from: &[Vector<S, N>],
    pixels: &Pixels,
    tap: u32,
    end: u32,
    channel: usize,
    channels: usize,
    row_stride: usize,
    size: &ImageSize,
    #[comptime] stage: Stage,
    #[comptime] threads: usize,
    #[comptime] copies: bool,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    let stage_row_stride = comptime!(stage.row_stride() / lanes);
    let vectors = comptime!(stage.rows * stage.columns / lanes);
    let (down, right) = (tap / 3, tap % 3);
    let away = down * size.width + right;
    #[unroll]
    for i in 0..comptime!(copies_per_unit(stage, lanes, threads)) {
        let at = UNIT_POS as usize + comptime!(i * threads);
        if comptime!((i + 1) * threads <= vectors) || at < vectors {
            let x = channel + (at % per_row) * lanes;
            // One more than the row and the column that are read.
            let (row, column) = (pixels.row[i] + down, pixels.column[i] + right);
            let in_image = row >= 1 && row <= size.height && column >= 1 && column <= size.width;
            let in_bounds = in_image && pixels.number[i] < end && x < channels;
            let pixel = select(in_bounds, pixels.number[i] + away, size.width + 1) - size.width - 1;
            let source = pixel as usize * row_stride + x / lanes;
            let place = base + (at / per_row) * stage_row_stride + at % per_row;
            if comptime!(copies) {
                let count = select(in_bounds, 1usize, 0usize);
                copy_async_checked(
                    &from[source..source + count],
                    &mut to[place..place + 1],
                    comptime!(lanes as u32),
                );
            } else {
                let mut value = Vector::<S, N>::new(S::new(0.0f32));
                if in_bounds {
                    value = from[source];
                }
                to[place] = value;
            }
        }
    }
}
