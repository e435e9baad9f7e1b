//! Tables of partial sums, whose rows are added in an order that depends on the sizes alone:
//! several in one launch.

use cubecl::prelude::*;

/// Units of a cube.
pub(crate) const UNITS: usize = 256;

/// Rows up to which one unit adds a column; more are shared by [`ROWS`] units.
const FEW_ROWS: usize = 16;

/// Units that share a column of many rows.
const ROWS: usize = 8;

/// Columns of a cube whose units share them.
const COLUMNS: usize = UNITS / ROWS;

/// An array of partial sums: `rows` rows of `width`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Table {
    rows: u32,
    width: u32,
    /// The first cube that works on this table.
    pub(crate) first_cube: u32,
    /// 1 to transpose columns `[directions, N, D]` to sums `[directions, D, N]`.
    transposed: u32,
    /// Columns per row of the destination,
    row: u32,
    /// and its row stride.
    pitch: u32,
}

/// Rows and width of an array of partial sums, whether its columns are transposed, and how many of
/// them make a row of the destination, and the stride of these.
pub(crate) type TableSizes = (usize, usize, bool, [usize; 2]);

/// A table whose first cube is `first`, and the first cube after it.
pub(crate) fn table(sizes: TableSizes, first: usize) -> (TableLaunch, usize) {
    let (rows, width, transposed, [row, pitch]) = sizes;
    let cubes = width.div_ceil(if rows <= FEW_ROWS { UNITS } else { COLUMNS });
    let transposed = u32::from(transposed);
    let [rows, width, from, row, pitch] = [rows, width, first, row, pitch].map(|n| n as u32);
    (TableLaunch::new(rows, width, from, transposed, row, pitch), first + cubes)
}

/// Each unit adds its rows in ascending order; then the units' sums are added in order, and, if
/// they are `scaled`, multiplied by the factor at the place of the result.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a table, and the sizes of its transposition")]
pub(crate) fn add_table<F: Float>(
    part: &[f32],
    out: &mut [F],
    table: &Table,
    d_inner: u32,
    d_state: u32,
    sums: &mut Shared<[f32]>,
    factors: &[f32],
    #[comptime] scaled: bool,
) {
    let (rows, width) = (table.rows as usize, table.width as usize);
    let cube = (CUBE_POS_X - table.first_cube) as usize;
    let unit = UNIT_POS_X as usize;
    if rows <= FEW_ROWS {
        let column = cube * UNITS + unit;
        if column < width {
            let mut total = 0.0f32;
            for k in 0..rows {
                total += part[k * width + column];
            }
            let at = output_index(column, table, d_inner, d_state);
            if comptime!(scaled) {
                total *= factors[at];
            }
            out[at] = F::cast_from(total);
        }
    } else {
        let column = cube * COLUMNS + unit % COLUMNS;
        let mut sum = 0.0f32;
        if column < width {
            let mut k = unit / COLUMNS;
            while k < rows {
                sum += part[k * width + column];
                k += ROWS;
            }
        }
        sums[unit] = sum;
        sync_cube();
        if unit < COLUMNS && column < width {
            let mut total = 0.0f32;
            #[unroll]
            for row in 0..ROWS {
                total += sums[row * COLUMNS + unit];
            }
            let at = output_index(column, table, d_inner, d_state);
            if comptime!(scaled) {
                total *= factors[at];
            }
            out[at] = F::cast_from(total);
        }
    }
}

#[cube]
fn output_index(column: usize, table: &Table, d_inner: u32, d_state: u32) -> usize {
    let mut index =
        column / table.row as usize * table.pitch as usize + column % table.row as usize;
    if table.transposed == 1 {
        let (d_inner, d_state) = (d_inner as usize, d_state as usize);
        let (row, channel) = (column / d_inner, column % d_inner);
        let (direction, state) = (row / d_state, row % d_state);
        index = (direction * d_inner + channel) * d_state + state;
    }
    index
}
