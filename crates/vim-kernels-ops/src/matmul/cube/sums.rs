//! Sums of partial results, in a fixed order.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Matrix;
use vim_kernels_core::cube::{cubes, elem, empty};

/// Units of a cube.
const UNITS: u32 = 128;
/// Rows of a strip whose columns a unit adds.
const STRIP: usize = 64;

/// Units that share a column: each adds its parts sequentially.
const SHARES: usize = 8;
/// Columns of a cube of [`add_parts_kernel`].
const COLUMNS: usize = 32;

/// Vectors of `out` that a cube of `add_parts_in` writes, and its units.
pub const PARTS_CUBE: [usize; 2] = [COLUMNS, COLUMNS * SHARES];

/// `out[w, i] = factor·Σ_p parts[w, p, i]` for the `cube`-th group of results: each unit adds
/// adjacent parts in order, then one unit adds their sums.
#[cube]
pub fn add_parts_in<N: Size>(
    parts: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    cube: usize,
    sums: usize,
    count: usize,
    width: usize,
    factor: f32,
) {
    let mut shares = Shared::<[Vector<f32, N>]>::new_slice(comptime!(SHARES * COLUMNS));
    let unit = UNIT_POS as usize;
    let (x, y) = (unit % COLUMNS, unit / COLUMNS);
    let at = cube * COLUMNS + x;
    let share = (count + comptime!(SHARES - 1)) / SHARES;
    let first = at / width * count * width + at % width;
    let mut sum = Vector::<f32, N>::new(0.0f32);
    if at < sums * width {
        for part in y * share..min((y + 1) * share, count) {
            sum += parts[first + part * width];
        }
    }
    shares[unit] = sum;
    sync_cube();
    if y == 0 && at < sums * width {
        #[unroll]
        for i in 1..SHARES {
            sum += shares[i * COLUMNS + x];
        }
        out[at] = sum * Vector::new(factor);
    }
}

#[cube(launch_unchecked)]
fn add_parts_kernel<N: Size>(
    parts: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    sums: usize,
    count: usize,
    width: usize,
    factor: f32,
) {
    add_parts_in::<N>(parts, out, CUBE_POS, sums, count, width, factor);
}

/// Adds `count` rows of `width`, for `sums` such tables one after the other.
pub fn add_parts(parts: &CubeTensor, sizes: [usize; 3], out: &CubeTensor) {
    add_scaled_parts(parts, sizes, 1.0, out);
}

/// [`add_parts`], its results times `factor`.
pub(super) fn add_scaled_parts(
    parts: &CubeTensor,
    [sums, count, width]: [usize; 3],
    factor: f32,
    out: &CubeTensor,
) {
    let lanes = vim_kernels_core::cube::lanes(width, 4);
    let client = parts.client.clone();
    // SAFETY: the parts hold sums·count·width elements and `out` holds sums·width; units beyond do
    // nothing.
    unsafe {
        add_parts_kernel::launch_unchecked(
            &client,
            cubes(&client, (sums * width / lanes).div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, SHARES as u32),
            lanes,
            parts.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            sums,
            count,
            width / lanes,
            factor,
        );
    }
}

/// The sum of each column of a strip of rows; one unit per column, cubes are `(columns, strips)`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn strip_sums<F: Float>(
    from: &[F],
    to: &mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    let column = CUBE_POS_X as usize * UNITS as usize + UNIT_POS as usize;
    let first = CUBE_POS_Y as usize * STRIP;
    let end = min(first + STRIP, rows);
    if column < columns {
        let mut sum = 0.0f32;
        for row in first..end {
            sum += f32::cast_from(from[row * row_stride + column]);
        }
        to[CUBE_POS_Y as usize * columns + column] = sum;
    }
}

/// The sums of a matrix's columns, in f32.
pub(crate) fn column_sums(of: &Matrix) -> CubeTensor {
    let [rows, columns] = of.size;
    let strips = rows.div_ceil(STRIP);
    let partial = empty(&of.buffer, [strips, columns], DType::F32);
    let out = empty(&of.buffer, [columns], DType::F32);
    let client = of.buffer.client.clone();
    // SAFETY: rows and columns are those of the matrix, and the partial sums have a row for every
    // strip.
    unsafe {
        strip_sums::launch_unchecked(
            &client,
            CubeCount::Static(columns.div_ceil(UNITS as usize) as u32, strips as u32, 1),
            CubeDim::new_1d(UNITS),
            of.buffer.required_address_type(),
            of.buffer.clone().into_buffer_arg(),
            partial.clone().into_buffer_arg(),
            rows,
            columns,
            of.row_stride,
            elem(&of.buffer),
        );
    }
    add_parts(&partial, [1, strips, columns], &out);
    out
}

/// Copies rows of `columns` from one row stride to another; one unit per element.
#[cube(launch_unchecked, address_type = "dynamic")]
fn copy_rows_kernel<F: Float>(
    from: &[F],
    to: &mut [F],
    rows: usize,
    columns: usize,
    from_pitch: usize,
    to_pitch: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < rows * columns {
        let (row, column) = (at / columns, at % columns);
        to[row * to_pitch + column] = from[row * from_pitch + column];
    }
}

/// Copies a matrix stored by rows into one of the same size and type.
pub(super) fn copy_rows(from: &Matrix, to: &Matrix) {
    let [rows, columns] = to.size;
    let client = to.buffer.client.clone();
    // SAFETY: both matrices lie within their buffers; units beyond the last element do nothing.
    unsafe {
        copy_rows_kernel::launch_unchecked(
            &client,
            cubes(&client, (rows * columns).div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            to.buffer.required_address_type(),
            from.buffer.clone().into_buffer_arg(),
            to.buffer.clone().into_buffer_arg(),
            rows,
            columns,
            from.row_stride,
            to.row_stride,
            elem(&to.buffer),
        );
    }
}
