//! Sums over the rows of partial results, in an order that depends on the sizes alone.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{cubes, elem};

/// Columns of a cube: one memory sector.
const COLUMNS: usize = 8;
/// Threads that share a column's rows.
const SHARES: usize = 32;
/// Loads in flight per thread.
const STEP: usize = 4;

/// Columns of `[rows, columns]` that a cube of `sum_of_column` adds, and its units.
pub const ROWS_CUBE: [usize; 2] = [COLUMNS, COLUMNS * SHARES];

/// The sum over the rows of a column of `partials [rows, columns]`, in each of the first units of a
/// cube, of whose columns this is the `cube`-th group; 0 beyond the last.
#[cube]
pub fn sum_of_column(partials: &[f32], cube: usize, rows: usize, columns: usize) -> f32 {
    let unit = UNIT_POS as usize;
    let (x, y) = (unit % COLUMNS, unit / COLUMNS);
    let column = cube * COLUMNS + x;
    let mut shares = Shared::<[f32]>::new_slice(comptime!(COLUMNS * SHARES));

    let mut sum = 0.0f32;
    if column < columns {
        let mut row = y;
        while row < rows {
            #[unroll]
            for step in 0..STEP {
                let at = row + step * SHARES;
                if at < rows {
                    sum += partials[at * columns + column];
                }
            }
            row += comptime!(STEP * SHARES);
        }
    }
    shares[unit] = sum;
    sync_cube();

    let mut total = 0.0f32;
    if y == 0 {
        #[unroll]
        for share in 0..SHARES {
            total += shares[share * COLUMNS + x];
        }
    }
    total
}

/// Sums `partials [rows, columns]` over the rows, into `first` (the first `split` columns) and
/// `second` (the others).
#[cube(launch_unchecked)]
fn sum_rows_kernel(
    partials: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    rows: usize,
    columns: usize,
    split: usize,
) {
    let unit = UNIT_POS as usize;
    let column = CUBE_POS * COLUMNS + unit;
    let total = sum_of_column(partials, CUBE_POS, rows, columns);
    if unit < COLUMNS && column < columns {
        if column < split {
            first[column] = total;
        } else {
            second[column - split] = total;
        }
    }
}

/// The column sums of `partials [rows, columns]`: the first `split` into `first`, the others into
/// `second`, which is not written if there are none.
#[expect(unsafe_code, reason = "launching a kernel without bounds checks")]
pub fn sum_rows(
    partials: CubeTensor,
    rows: usize,
    columns: usize,
    split: usize,
    first: &CubeTensor,
    second: &CubeTensor,
) {
    let client = partials.client.clone();
    // SAFETY: the partials are contiguous and hold rows·columns elements, `first` holds `split` and
    // `second` the others; the kernel reads and writes below these.
    unsafe {
        sum_rows_kernel::launch_unchecked(
            &client,
            cubes(&client, columns.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, SHARES as u32),
            partials.into_buffer_arg(),
            first.clone().into_buffer_arg(),
            second.clone().into_buffer_arg(),
            rows,
            columns,
            split,
        );
    }
}

/// Units of a cube of [`sum_parts`].
const UNITS: u32 = 256;

/// `out [outer, inner]` is the sum over the second dimension of `parts [outer, n_parts, inner]`,
/// from element `begin` on.
#[cube(launch_unchecked)]
fn sum_parts_kernel<F: Float>(
    parts: &[f32],
    out: &mut [F],
    begin: usize,
    count: usize,
    n_parts: usize,
    inner: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let first = begin + (at / inner) * n_parts * inner + at % inner;
        let mut sum = 0.0f32;
        for part in 0..n_parts {
            sum += parts[first + part * inner];
        }
        out[at] = F::cast_from(sum);
    }
}

/// Fills `to` with the sums over `n_parts` of `parts [outer, n_parts, inner]`, from element `begin`
/// of `parts` on, in their order.
#[expect(unsafe_code, reason = "launching a kernel without bounds checks")]
pub fn sum_parts(parts: &CubeTensor, begin: usize, n_parts: usize, inner: usize, to: &CubeTensor) {
    let count = to.meta.shape().num_elements();
    // SAFETY: units from `count` on do nothing, and `parts` has `n_parts` numbers for each before.
    unsafe {
        sum_parts_kernel::launch_unchecked(
            &to.client,
            cubes(&to.client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            parts.clone().into_buffer_arg(),
            to.clone().into_buffer_arg(),
            begin,
            count,
            n_parts,
            inner,
            elem(to),
        );
    }
}
