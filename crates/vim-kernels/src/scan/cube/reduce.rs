//! Sums of partial results, in a fixed order.

use cubecl::prelude::*;

/// Units of a cube.
pub(crate) const UNITS: usize = 256;

/// Rows up to which one unit adds a column; more are shared by [`ROWS`] units.
pub(crate) const FEW_ROWS: usize = 16;

/// Units that share a column of many rows.
const ROWS: usize = 8;

/// Columns of a cube whose units share them.
const COLUMNS: usize = UNITS / ROWS;

/// An array of partial sums: `rows` rows of `width`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) rows: u32,
    pub(crate) width: u32,
    /// The first cube that works on this table.
    pub(crate) first_cube: u32,
    /// 1 to transpose columns `[directions, N, D]` to sums `[directions, D, N]`.
    pub(crate) transposed: u32,
    /// Columns per row of the destination,
    pub(crate) row: u32,
    /// and its row stride.
    pub(crate) pitch: u32,
}

/// Cubes for a table.
pub(crate) fn cubes(rows: usize, width: usize) -> usize {
    width.div_ceil(if rows <= FEW_ROWS { UNITS } else { COLUMNS })
}

/// Adds all partial sums of a backward scan in one launch: `out[i] = Σ_k part[k, i]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "five tables in one launch")]
pub(crate) fn add_rows<FB: Float, FC: Float>(
    part_b: &[f32],
    part_c: &[f32],
    part_a: &[f32],
    part_d: &[f32],
    part_bias: &[f32],
    b: &mut [FB],
    c: &mut [FC],
    a: &mut [f32],
    d: &mut [f32],
    bias: &mut [f32],
    table_b: &Table,
    table_c: &Table,
    table_a: &Table,
    table_d: &Table,
    table_bias: &Table,
    d_inner: u32,
    d_state: u32,
    #[define(FB)] _fb: ElemType,
    #[define(FC)] _fc: ElemType,
) {
    let mut sums = Shared::<[f32]>::new_slice(UNITS);
    if CUBE_POS_X >= table_bias.first_cube {
        add_table::<f32>(part_bias, bias, table_bias, d_inner, d_state, &mut sums);
    } else if CUBE_POS_X >= table_d.first_cube {
        add_table::<f32>(part_d, d, table_d, d_inner, d_state, &mut sums);
    } else if CUBE_POS_X >= table_a.first_cube {
        add_table::<f32>(part_a, a, table_a, d_inner, d_state, &mut sums);
    } else if CUBE_POS_X >= table_c.first_cube {
        add_table::<FC>(part_c, c, table_c, d_inner, d_state, &mut sums);
    } else {
        add_table::<FB>(part_b, b, table_b, d_inner, d_state, &mut sums);
    }
}

/// Each unit adds its rows in ascending order; then the units' sums are added in order.
#[cube]
fn add_table<F: Float>(
    part: &[f32],
    out: &mut [F],
    table: &Table,
    d_inner: u32,
    d_state: u32,
    sums: &mut Shared<[f32]>,
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
            out[output_index(column, table, d_inner, d_state)] = F::cast_from(total);
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
            out[output_index(column, table, d_inner, d_state)] = F::cast_from(total);
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
