//! The sums of the backward scan, each in a fixed order: of a token's gradients of B and C over a
//! cube's channels, and of what cubes leave over segments, batch and strips of channels, with the
//! launch that adds them.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::backward_step::Adjoint;
use super::coords::{UnitCoords, is_state, unit_in_cube};
use super::layout::{MAX_STATE_VECTOR, PLANE, ScanPlan};
use super::reading::Walks;
use vim_kernels_core::cube::tables::{Table, TableSizes, UNITS, add_table, table};
use vim_kernels_core::cube::{cubes, elem};

/// Shared memory of [`reduce_over_channels`], in floats.
pub(super) fn sums_len(plan: ScanPlan) -> usize {
    if plan.pairs_channels() || plan.spec.b_constant && plan.spec.c_constant {
        1
    } else if plan.planes {
        plan.units / PLANE * plan.chunk() * 2 * HALF
    } else {
        plan.chunk() * 2 * plan.states + 2 * plan.states * plan.units
    }
}

/// A plane's sums for B; those for C follow.
const HALF: usize = PLANE / 2;

/// The sum over the plane's channels of one of the token's gradients of B and C, of units that have
/// states of [two channels](super::reading).
#[cube]
pub(super) fn sum_over_plane(adjoint: &Adjoint, #[comptime] plan: ScanPlan) -> f32 {
    let lane = UNIT_POS_X % comptime!(PLANE as u32);
    // Units with the same states exchange. By their order, each gives its last four.
    let half = comptime!(plan.states_per_channel() / 2);
    let mut values = Array::<f32>::new(comptime!(2 * half));
    #[unroll]
    for n in 0..half {
        values[n] = adjoint.b[n] + plane_shuffle_xor(adjoint.b[n + half], 2u32);
        values[n + half] = adjoint.c[n] + plane_shuffle_xor(adjoint.c[n + half], 2u32);
    }
    halve(&mut values, 4usize, 4u32, lane);
    halve(&mut values, 2usize, 16u32, lane);
    halve(&mut values, 1usize, 8u32, lane);
    values[0]
}

/// Keeps the unit's [sum](sum_over_plane) of the `j`-th token in place of the first states before
/// that token, which all units of the plane have read.
#[cube]
pub(super) fn keep_sum<W: Size>(
    before: &mut Shared<[Vector<f32, W>]>,
    sum: f32,
    order: usize,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let lane = UNIT_POS_X as usize % PLANE;
    let value = order + lane / 8 + (lane & 4) * comptime!(HALF / 4);
    let plane = unit_in_cube(plan) / PLANE;
    let sums = before.with_vector_size_mut::<Const<1>>();
    sums[first_saved(j, plane, plan) * MAX_STATE_VECTOR + value] = Vector::new(sum);
}

/// Index of the first vector that a plane stores for the `j`-th token of a chunk.
#[cube]
fn first_saved(j: usize, plane: usize, #[comptime] plan: ScanPlan) -> usize {
    j * comptime!(plan.spec.sweeps() * plan.saved_vectors() * plan.units) + plane * PLANE
}

/// Sums the gradients of B and C of the `j`-th token over the cube's channels, or over each
/// plane's.
#[cube]
pub(super) fn reduce_over_channels(
    sums: &mut Shared<[f32]>,
    adjoint: &Adjoint,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let unit = unit_in_cube(plan);
    if comptime!(plan.planes) {
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
        // Each round exchanges half of the values with the opposite lane and adds: after five, lane
        // i has the sum of value i over the plane.
        let mut values = Array::<f32>::new(PLANE);
        #[unroll]
        for n in 0..HALF {
            let in_bounds = comptime!(n < plan.states);
            values[n] = if comptime!(in_bounds && !plan.spec.b_constant) {
                adjoint.b[n]
            } else {
                0.0f32.runtime()
            };
            values[HALF + n] = if comptime!(in_bounds && !plan.spec.c_constant) {
                adjoint.c[n]
            } else {
                0.0f32.runtime()
            };
        }
        #[unroll]
        for round in 0..5usize {
            let half = comptime!(HALF >> round);
            halve(&mut values, half, comptime!(half as u32), lane);
        }
        sums[(unit / PLANE * plan.chunk() + j) * PLANE + unit % PLANE] = values[0];
    } else {
        let scratch = comptime!(plan.chunk() * 2 * plan.states);
        #[unroll]
        for n in 0..plan.states {
            sums[scratch + n * plan.units + unit] =
                if comptime!(plan.spec.b_constant) { 0.0f32.runtime() } else { adjoint.b[n] };
            sums[scratch + (plan.states + n) * plan.units + unit] =
                if comptime!(plan.spec.c_constant) { 0.0f32.runtime() } else { adjoint.c[n] };
        }
        sync_cube();
        let mut value = unit;
        while value < comptime!(2 * plan.states) {
            let mut sum = 0.0f32;
            for i in 0..plan.units {
                sum += sums[scratch + value * plan.units + i];
            }
            sums[j * 2 * plan.states + value] = sum;
            value += plan.units;
        }
        sync_cube();
    }
}

/// Exchanges half of `2·half` values with the lane `across`, and adds what it gives.
#[cube]
fn halve(values: &mut Array<f32>, #[comptime] half: usize, #[comptime] across: u32, lane: u32) {
    let upper = lane & across != 0;
    #[unroll]
    for i in 0..half {
        let (low, high) = (values[i], values[i + half]);
        let keep = select(upper, high, low);
        let send = select(upper, low, high);
        values[i] = keep + plane_shuffle_xor(send, across);
    }
}

/// Writes the sums of a chunk of `tokens` from step `begin` on as partial gradients of B and C.
#[cube]
pub(super) fn write_bc_partials<W: Size>(
    sums: &Shared<[f32]>,
    before: &Shared<[Vector<f32, W>]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    walks: &Walks,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    if comptime!(plan.pairs_channels()) {
        write_in_fours::<W>(before, part_b, part_c, begin, tokens, walks, plan);
    } else {
        let mut i = UNIT_POS_X as usize;
        while i < tokens * 2 * plan.states {
            let j = i / comptime!(2 * plan.states);
            let value = i % comptime!(2 * plan.states);
            let of_c = value >= plan.states;
            let n = if of_c { value - plan.states } else { value };
            let mut sum = 0.0f32;
            if comptime!(plan.planes) {
                let lane = n + select(of_c, HALF, 0usize);
                #[unroll]
                for plane in 0..comptime!(plan.units / PLANE) {
                    sum += sums[(plane * plan.chunk() + j) * PLANE + lane];
                }
            } else {
                sum = sums[i];
            }
            if is_state(n, pos) {
                let at = walks.partial.at(begin + j) + n;
                if of_c {
                    if comptime!(!plan.spec.c_constant) {
                        part_c[at] = sum;
                    }
                } else if comptime!(!plan.spec.b_constant) {
                    part_b[at] = sum;
                }
            }
            i += plan.units;
        }
    }
}

/// [`write_bc_partials`] of the sums that [`keep_sum`] kept, four states at a time.
#[cube]
fn write_in_fours<W: Size>(
    before: &Shared<[Vector<f32, W>]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    walks: &Walks,
    #[comptime] plan: ScanPlan,
) {
    let part_b = part_b.as_vectorized_mut().with_vector_size_mut::<W>();
    let part_c = part_c.as_vectorized_mut().with_vector_size_mut::<W>();
    let per_token = comptime!(2 * HALF / MAX_STATE_VECTOR);
    #[unroll]
    for round in 0..comptime!((plan.chunk() * per_token).div_ceil(plan.units)) {
        let i = unit_in_cube(plan) + round * plan.units;
        let (j, four) = (i / per_token, i % per_token);
        if j < tokens {
            let mut sum = Vector::<f32, W>::new(0.0f32);
            #[unroll]
            for plane in 0..comptime!(plan.units / PLANE) {
                sum += before[first_saved(j, plane, plan) + four];
            }
            let of_c = four >= comptime!(per_token / 2);
            let at = walks.partial.at(begin + j) / MAX_STATE_VECTOR + four % (per_token / 2);
            if of_c {
                part_c[at] = sum;
            } else {
                part_b[at] = sum;
            }
        }
    }
}

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
    if first_cube == 0 {
        return;
    }
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
    use vim_kernels_core::cube::dense;

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
