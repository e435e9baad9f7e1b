//! Partial sums of a backward scan over segments, batch and strips of channels, and the launch that
//! adds them.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::tables::{Table, TableSizes, UNITS, add_table, table};
use crate::cube::{cubes, elem};

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

/// The tables of the gradients of the weights.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Tables {
    pub(crate) b: Table,
    pub(crate) c: Table,
    pub(crate) a: Table,
    pub(crate) d: Table,
    pub(crate) bias: Table,
}

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
    let mut next = |sizes: TableSizes| {
        let (own, next) = table(sizes, first_cube);
        first_cube = next;
        own
    };
    let [table_b, table_c, table_a, table_d, table_bias] = tables.map(&mut next);
    let [b, c, a, d, bias] = parts.map(CubeTensor::into_buffer_arg);
    let [sum_b, sum_c, sum_a, sum_d, sum_bias] = sums.map(|sum| sum.clone().into_buffer_arg());
    // SAFETY: every table has the sizes of its buffers.
    unsafe {
        add_rows::launch_unchecked(
            &client,
            cubes(&client, first_cube),
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
    let cube = CUBE_POS as u32;
    if cube >= tables.bias.first_cube {
        add_table::<f32>(&part.bias, bias, &tables.bias, d_inner, d_state, &mut sums);
    } else if cube >= tables.d.first_cube {
        add_table::<f32>(&part.d, d, &tables.d, d_inner, d_state, &mut sums);
    } else if cube >= tables.a.first_cube {
        add_table::<f32>(&part.a, a, &tables.a, d_inner, d_state, &mut sums);
    } else if cube >= tables.c.first_cube {
        add_table::<FC>(&part.c, c, &tables.c, d_inner, d_state, &mut sums);
    } else {
        add_table::<FB>(&part.b, b, &tables.b, d_inner, d_state, &mut sums);
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::tensor::{Device, Tensor};
    use burn_cubecl::CubeBackend;

    use super::*;
    use crate::cube::dense;

    // WebGPU launches 65 535 cubes in a row.
    #[test]
    fn sums_of_more_columns_than_a_row_of_cubes_has() {
        let on_device = |count: usize, value: f32| {
            let tensor = Tensor::<1>::full([count], value, &Device::default());
            dense(tensor.try_into_primitive::<CubeBackend>().expect("a GPU's"))
        };
        let width = 65_536 * UNITS + 1;
        let parts = [width, 1, 1, 1, 1].map(|count| on_device(count, 7.0));
        let sums = [width, 1, 1, 1, 1].map(|count| on_device(count, 0.0));
        let tables = [width, 1, 1, 1, 1].map(|width| (1, width, false, [width; 2]));
        add_partial_sums(parts, sums.each_ref(), tables, [1, 1]);
        for sum in sums {
            let sum = Tensor::<1>::from_primitive::<CubeBackend>(sum);
            let last = sum.dims()[0] - 1;
            assert_eq!(sum.narrow(0, last, 1).into_scalar::<f32>(), 7.0);
        }
    }
}
