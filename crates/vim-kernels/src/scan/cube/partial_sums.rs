//! Partial sums of a backward scan over segments, batch and strips of channels, and the launch that
//! adds them.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::elem;

/// Partial sums: `b` and `c` are `[strips, B, L, G, N]`, or `[segments·B, N, D]` where constant, as
/// is `a`; `d` and `bias` are `[segments·B, D]`.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct PartialSums {
    pub(crate) b: Box<[f32]>,
    pub(crate) c: Box<[f32]>,
    pub(crate) a: Box<[f32]>,
    pub(crate) d: Box<[f32]>,
    pub(crate) bias: Box<[f32]>,
}

/// Units of a cube.
const UNITS: usize = 256;

/// Rows up to which one unit adds a column; more are shared by [`ROWS`] units.
const FEW_ROWS: usize = 16;

/// Units that share a column of many rows.
const ROWS: usize = 8;

/// Columns of a cube whose units share them.
const COLUMNS: usize = UNITS / ROWS;

/// An array of partial sums: `rows` rows of `width`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Table {
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
fn cubes(rows: usize, width: usize) -> usize {
    width.div_ceil(if rows <= FEW_ROWS { UNITS } else { COLUMNS })
}

/// The tables of the gradients of the weights.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Tables {
    pub(crate) b: Table,
    pub(crate) c: Table,
    pub(crate) a: Table,
    pub(crate) d: Table,
    pub(crate) bias: Table,
}

/// Rows and width of an array of partial sums, whether its columns are transposed, and how many of
/// them make a row of the destination, and the stride of these.
pub(crate) type TableSizes = (usize, usize, bool, [usize; 2]);

/// Adds the rows of `parts` of B, C, A, D and the delta bias into `sums`.
pub(crate) fn add_partial_sums(
    parts: [CubeTensor; 5],
    sums: [&CubeTensor; 5],
    tables: [TableSizes; 5],
    [d_inner, d_state]: [usize; 2],
) {
    let client = sums[0].client.clone();
    let types = [elem(sums[0]), elem(sums[1])];
    let mut first_cube = 0;
    let mut next = |(rows, width, transposed, [row, pitch]): TableSizes| {
        let first = first_cube;
        first_cube += cubes(rows, width);
        let transposed = u32::from(transposed);
        let [rows, width, first, row, pitch] = [rows, width, first, row, pitch].map(|n| n as u32);
        TableLaunch::new(rows, width, first, transposed, row, pitch)
    };
    let [table_b, table_c, table_a, table_d, table_bias] = tables.map(&mut next);
    let [b, c, a, d, bias] = parts.map(CubeTensor::into_buffer_arg);
    let [sum_b, sum_c, sum_a, sum_d, sum_bias] = sums.map(|sum| sum.clone().into_buffer_arg());
    // SAFETY: every table has the sizes of its buffers.
    unsafe {
        add_rows::launch_unchecked(
            &client,
            CubeCount::Static(first_cube as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            PartialSumsLaunch::new(b, c, a, d, bias),
            sum_b,
            sum_c,
            sum_a,
            sum_d,
            sum_bias,
            TablesLaunch::new(table_b, table_c, table_a, table_d, table_bias),
            d_inner as u32,
            d_state as u32,
            types,
        );
    }
}

/// Adds all partial sums of a backward scan in one launch: `out[i] = Σ_k part[k, i]`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "five tables in one launch")]
fn add_rows<FB: Float, FC: Float>(
    part: &PartialSums,
    b: &mut [FB],
    c: &mut [FC],
    a: &mut [f32],
    d: &mut [f32],
    bias: &mut [f32],
    tables: &Tables,
    d_inner: u32,
    d_state: u32,
    #[define(FB, FC)] _types: [ElemType; 2],
) {
    let mut sums = Shared::<[f32]>::new_slice(UNITS);
    if CUBE_POS_X >= tables.bias.first_cube {
        add_table::<f32>(&part.bias, bias, &tables.bias, d_inner, d_state, &mut sums);
    } else if CUBE_POS_X >= tables.d.first_cube {
        add_table::<f32>(&part.d, d, &tables.d, d_inner, d_state, &mut sums);
    } else if CUBE_POS_X >= tables.a.first_cube {
        add_table::<f32>(&part.a, a, &tables.a, d_inner, d_state, &mut sums);
    } else if CUBE_POS_X >= tables.c.first_cube {
        add_table::<FC>(&part.c, c, &tables.c, d_inner, d_state, &mut sums);
    } else {
        add_table::<FB>(&part.b, b, &tables.b, d_inner, d_state, &mut sums);
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
