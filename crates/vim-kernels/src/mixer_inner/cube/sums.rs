//! The sums of a backward pass, each in the order of its operation, in two launches.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::view;
use vim_kernels_core::cube::sum::{ROWS_CUBE, sum_of_column};
use vim_kernels_core::cube::tables::{Table, UNITS, add_table, column_sum, table};
use vim_kernels_core::cube::{cubes, elem, empty, lanes};
use vim_kernels_ops::for_mixer::conv::TapParts;
use vim_kernels_ops::for_mixer::matmul::{GradientParts, PARTS_CUBE, add_parts_in};
use vim_kernels_scan::for_mixer::Partial;

// All tables are added by cubes of the same size.
const _: () = assert!(ROWS_CUBE[1] == UNITS && PARTS_CUBE[1] == UNITS);

/// Partial sums of the gradients of all weights between the outer projections, of both directions.
pub(super) struct WeightParts {
    pub(super) x_proj: GradientParts,
    pub(super) dt_proj: GradientParts,
    pub(super) taps: TapParts,
    /// Of A, D and the delta bias.
    pub(super) scan: [Partial; 3],
}

/// The gradients of the weights of both directions, the second's after the first's.
pub(super) struct WeightGradients {
    pub(super) x_proj: CubeTensor,
    pub(super) dt_proj: CubeTensor,
    /// As [`tap_gradients`](vim_kernels_ops::for_mixer::conv::tap_gradients) takes them.
    pub(super) taps: CubeTensor,
    pub(super) a_log: CubeTensor,
    pub(super) d: CubeTensor,
    pub(super) delta_bias: CubeTensor,
}

/// Parts of products: `sums` results of `width` vectors each, of `count` parts.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Products {
    /// The first cube that adds them.
    first_cube: u32,
    sums: u32,
    count: u32,
    width: u32,
}

/// Rows whose columns are added.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Columns {
    /// The first cube that adds them.
    first_cube: u32,
    rows: u32,
    columns: u32,
}

/// What a launch adds, in the order of its cubes; `x_proj` comes first.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Tables {
    x_proj: Products,
    dt_proj: Products,
    taps: Columns,
    a: Table,
    d: Table,
    bias: Table,
}

/// The gradients of the weights from their parts. That of A, the gradient of `a = −exp(a_log)`,
/// becomes the gradient of `a_log`, `grad·a`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "six tables in one launch")]
fn add_weight_gradients<N: Size>(
    part_x_proj: &[Vector<f32, N>],
    part_dt_proj: &[Vector<f32, N>],
    part_taps: &[f32],
    part_a: &[f32],
    part_d: &[f32],
    part_bias: &[f32],
    a: &[f32],
    x_proj: &mut [Vector<f32, N>],
    dt_proj: &mut [Vector<f32, N>],
    taps: &mut [f32],
    a_log: &mut [f32],
    d: &mut [f32],
    bias: &mut [f32],
    tables: &Tables,
    d_inner: u32,
    d_state: u32,
) {
    let mut sums = Shared::<[f32]>::new_slice(UNITS);
    let cube = CUBE_POS as u32;
    if cube >= tables.bias.first_cube {
        add_table::<f32>(part_bias, bias, &tables.bias, d_inner, d_state, &mut sums);
    } else if cube >= tables.d.first_cube {
        add_table::<f32>(part_d, d, &tables.d, d_inner, d_state, &mut sums);
    } else if cube >= tables.a.first_cube {
        let sum = column_sum(part_a, &tables.a, d_inner, d_state, &mut sums);
        if sum.here {
            a_log[sum.at] = sum.total * a[sum.at];
        }
    } else if cube >= tables.taps.first_cube {
        let cube = (cube - tables.taps.first_cube) as usize;
        let columns = tables.taps.columns as usize;
        let total = sum_of_column(part_taps, cube, tables.taps.rows as usize, columns);
        let column = cube * comptime!(ROWS_CUBE[0]) + UNIT_POS as usize;
        if (UNIT_POS as usize) < comptime!(ROWS_CUBE[0]) && column < columns {
            taps[column] = total;
        }
    } else if cube >= tables.dt_proj.first_cube {
        add_products::<N>(part_dt_proj, dt_proj, &tables.dt_proj);
    } else {
        add_products::<N>(part_x_proj, x_proj, &tables.x_proj);
    }
}

#[cube]
fn add_products<N: Size>(
    parts: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    products: &Products,
) {
    add_parts_in::<N>(
        parts,
        out,
        CUBE_POS - products.first_cube as usize,
        products.sums as usize,
        products.count as usize,
        products.width as usize,
        1.0f32,
    );
}

impl WeightParts {
    /// Adds all parts; `a` is A, `[2·D, N]`.
    pub(super) fn add(self, a: &CubeTensor, [d_inner, d_state]: [usize; 2]) -> WeightGradients {
        let Self { x_proj, dt_proj, taps, scan } = self;
        let widths = [&x_proj, &dt_proj].map(|of| of.sizes[2]);
        let lanes = widths.map(|width| lanes(width, 4)).into_iter().min().unwrap_or(1);
        // One allocation; the products come first, where their vectors are aligned.
        let counts = [
            x_proj.sizes[0] * x_proj.sizes[2],
            dt_proj.sizes[0] * dt_proj.sizes[2],
            taps.columns,
            2 * d_inner * d_state,
            2 * d_inner,
            2 * d_inner,
        ];
        let all = empty(a, [counts.iter().sum::<usize>()], DType::F32);
        let mut first = 0;
        let out = counts.map(|count| {
            first += count;
            view(&all, first - count, &[count], &[1])
        });
        let mut first_cube = 0;
        let mut products = |[sums, count, width]: [usize; 3]| {
            let width = width / lanes;
            let own = [first_cube, sums, count, width].map(|n| n as u32);
            first_cube += (sums * width).div_ceil(PARTS_CUBE[0]);
            ProductsLaunch::new(own[0], own[1], own[2], own[3])
        };
        let of_products = [&x_proj, &dt_proj].map(|of| products(of.sizes));
        let [of_x_proj, of_dt_proj] = of_products;
        let of_taps = ColumnsLaunch::new(first_cube as u32, taps.rows as u32, taps.columns as u32);
        first_cube += taps.columns.div_ceil(ROWS_CUBE[0]);
        let [of_a, of_d, of_bias] = scan.each_ref().map(|(_, sizes)| {
            let (own, next) = table(*sizes, first_cube);
            first_cube = next;
            own
        });
        let [part_a, part_d, part_bias] = scan.map(|(parts, _)| parts.into_buffer_arg());
        let [to_x_proj, to_dt_proj, to_taps, to_a, to_d, to_bias] =
            out.each_ref().map(|out| out.clone().into_buffer_arg());
        let client = a.client.clone();
        // SAFETY: every table has the sizes of its buffers, and `all` room for all sums; `lanes`
        // divides the widths of the products, and so their places in `all`.
        unsafe {
            add_weight_gradients::launch_unchecked(
                &client,
                cubes(&client, first_cube),
                CubeDim::new_1d(UNITS as u32),
                lanes,
                x_proj.parts.into_buffer_arg(),
                dt_proj.parts.into_buffer_arg(),
                taps.parts.into_buffer_arg(),
                part_a,
                part_d,
                part_bias,
                a.clone().into_buffer_arg(),
                to_x_proj,
                to_dt_proj,
                to_taps,
                to_a,
                to_d,
                to_bias,
                TablesLaunch::new(of_x_proj, of_dt_proj, of_taps, of_a, of_d, of_bias),
                d_inner as u32,
                d_state as u32,
            );
        }
        let [x_proj, dt_proj, taps, a_log, d, delta_bias] = out;
        WeightGradients { x_proj, dt_proj, taps, a_log, d, delta_bias }
    }
}

/// Adds the parts of the gradients of B and C; the cubes of C come after those of B.
#[cube(launch_unchecked)]
fn add_token_gradients<F: Float>(
    part_b: &[f32],
    part_c: &[f32],
    b: &mut [F],
    c: &mut [F],
    table_b: Table,
    table_c: Table,
    #[define(F)] _dtype: ElemType,
) {
    let mut sums = Shared::<[f32]>::new_slice(UNITS);
    let cube = CUBE_POS as u32;
    if cube >= table_c.first_cube {
        add_table::<F>(part_c, c, &table_c, 1, 1, &mut sums);
    } else {
        add_table::<F>(part_b, b, &table_b, 1, 1, &mut sums);
    }
}

/// Adds the parts of the gradients of B and C into `into`.
pub(super) fn add_token_parts(
    [(part_b, sizes_b), (part_c, sizes_c)]: [Partial; 2],
    into: [&CubeTensor; 2],
) {
    let (table_b, first_c) = table(sizes_b, 0);
    let (table_c, count) = table(sizes_c, first_c);
    let client = into[0].client.clone();
    let dtype = elem(into[0]);
    let [b, c] = into.map(|to| to.clone().into_buffer_arg());
    // SAFETY: every table has the sizes of its buffers.
    unsafe {
        add_token_gradients::launch_unchecked(
            &client,
            cubes(&client, count),
            CubeDim::new_1d(UNITS as u32),
            part_b.into_buffer_arg(),
            part_c.into_buffer_arg(),
            b,
            c,
            table_b,
            table_c,
            dtype,
        );
    }
}

#[cfg(all(test, feature = "wgpu"))]
pub(super) mod tests;
