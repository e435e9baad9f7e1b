//! Sums of partial results, in a fixed order.

use cubecl::prelude::*;

/// Columns that a cube adds.
pub(crate) const COLUMNS: usize = 32;

/// Units that share a column's rows.
pub(crate) const ROWS: usize = 8;

/// `out[i] = Σ_k parts[k, i]` over `rows` rows of `width`, in cubes of [`COLUMNS`] × [`ROWS`].
///
/// Row `k` is added by unit `k mod ROWS` of its column, in rising order, and then the units' sums are. With
/// `transpose`, the columns are `[N, D]` with D = `d_inner` and `out` is `[D, N]`.
#[cube(launch_unchecked)]
pub(crate) fn add_rows<F: Float>(
    parts: &[f32],
    out: &mut [F],
    rows: u32,
    width: u32,
    d_inner: u32,
    #[comptime] transpose: bool,
    #[define(F)] _f: ElemType,
) {
    let rows = rows as usize;
    let width = width as usize;
    let column = CUBE_POS_X as usize * COLUMNS + UNIT_POS_X as usize;
    let mut sums = Shared::<[f32]>::new_slice(comptime!(COLUMNS * ROWS));
    let mut sum = 0.0f32;
    if column < width {
        let mut k = UNIT_POS_Y as usize;
        while k < rows {
            sum += parts[k * width + column];
            k += ROWS;
        }
    }
    sums[UNIT_POS_Y as usize * COLUMNS + UNIT_POS_X as usize] = sum;
    sync_cube();
    if UNIT_POS_Y == 0 && column < width {
        let mut total = 0.0f32;
        #[unroll]
        for row in 0..ROWS {
            total += sums[row * COLUMNS + UNIT_POS_X as usize];
        }
        let index = if comptime!(transpose) {
            let d_inner = d_inner as usize;
            (column % d_inner) * (width / d_inner) + column / d_inner
        } else {
            column
        };
        out[index] = F::cast_from(total);
    }
}
