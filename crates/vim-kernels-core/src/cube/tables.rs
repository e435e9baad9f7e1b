//! Tables of partial sums, whose rows are added in an order that depends on the sizes alone:
//! several in one launch.

use cubecl::prelude::*;

/// Units of a cube.
pub const UNITS: usize = 256;

/// Rows up to which one unit adds a column; more are shared by [`ROWS`] units.
const FEW_ROWS: usize = 16;

/// Units that share a column of many rows.
const ROWS: usize = 8;

/// Columns of a cube whose units share them.
const COLUMNS: usize = UNITS / ROWS;

/// An array of partial sums: `rows` rows of `width`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Table {
    rows: u32,
    width: u32,
    /// The first cube that works on this table.
    pub first_cube: u32,
    /// 1 to transpose columns `[directions, N, D]` to sums `[directions, D, N]`.
    transposed: u32,
    /// Columns per row of the destination,
    row: u32,
    /// and its row stride.
    pitch: u32,
}

/// Rows and width of an array of partial sums, whether its columns are transposed, and how many of
/// them make a row of the destination, and the stride of these.
pub type TableSizes = (usize, usize, bool, [usize; 2]);

/// A table whose first cube is `first`, and the first cube after it.
pub fn table(sizes: TableSizes, first: usize) -> (TableLaunch, usize) {
    let (rows, width, transposed, [row, pitch]) = sizes;
    let cubes = width.div_ceil(if rows <= FEW_ROWS { UNITS } else { COLUMNS });
    let transposed = u32::from(transposed);
    let [rows, width, from, row, pitch] = [rows, width, first, row, pitch].map(|n| n as u32);
    (TableLaunch::new(rows, width, from, transposed, row, pitch), first + cubes)
}

/// The sum of a column.
#[derive(CubeType)]
pub struct ColumnSum {
    pub total: f32,
    /// Its place in the destination.
    pub at: usize,
    /// Whether this unit has it: others share the column, or have none.
    pub here: bool,
}

/// Each unit adds its rows in ascending order; then the units' sums are added in order.
#[cube]
pub fn column_sum(
    part: &[f32],
    table: &Table,
    d_inner: u32,
    d_state: u32,
    sums: &mut Shared<[f32]>,
) -> ColumnSum {
    let (rows, width) = (table.rows as usize, table.width as usize);
    let cube = CUBE_POS - table.first_cube as usize;
    let unit = UNIT_POS_X as usize;
    let few = rows <= FEW_ROWS;
    let column = if few { cube * UNITS + unit } else { cube * COLUMNS + unit % COLUMNS };
    let here = column < width && (few || unit < COLUMNS);
    let mut total = 0.0f32;
    if few {
        if here {
            for k in 0..rows {
                total += part[k * width + column];
            }
        }
    } else {
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
        if here {
            #[unroll]
            for row in 0..ROWS {
                total += sums[row * COLUMNS + unit];
            }
        }
    }
    ColumnSum { total, at: output_index(column, table, d_inner, d_state), here }
}

/// Writes the sums of the columns (`column_sum`) of `part` into `out`.
#[cube]
pub fn add_table<F: Float>(
    part: &[f32],
    out: &mut [F],
    table: &Table,
    d_inner: u32,
    d_state: u32,
    sums: &mut Shared<[f32]>,
) {
    let sum = column_sum(part, table, d_inner, d_state, sums);
    if sum.here {
        out[sum.at] = F::cast_from(sum.total);
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
