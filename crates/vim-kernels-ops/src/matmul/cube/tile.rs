//! Shared by the kernels of a product: the arithmetic of a plane, and writing a tile.

use cubecl::prelude::*;

use super::arithmetic::Arithmetic;
use super::bf16::accumulate_bf16;
use super::plan::{Extents, MatmulPlan};
use super::tf32::accumulate_tf32;

/// Shared memory of a cube: a ring of stages of each matrix, and the rows of the result that
/// [`write`] passes through it.
#[derive(CubeType)]
pub(crate) struct Stages<S: Float, NL: Size, NR: Size> {
    pub(crate) lhs: Shared<[Vector<S, NL>]>,
    pub(crate) rhs: Shared<[Vector<S, NR>]>,
    pub(crate) out: Shared<[Vector<f32, Const<2>>]>,
}

/// The stages of a cube, `right` of them of the right matrix.
#[cube]
pub(crate) fn stages<S: Float, NL: Size, NR: Size>(
    #[comptime] right: usize,
    #[comptime] plan: MatmulPlan,
) -> Stages<S, NL, NR> {
    let (lhs_lanes, rhs_lanes) = (NL::value().comptime(), NR::value().comptime());
    let lhs = Shared::<[Vector<S, NL>]>::new_aligned_slice(
        comptime!(plan.stages * plan.lhs().len() / lhs_lanes),
        16usize,
    );
    let rhs = Shared::<[Vector<S, NR>]>::new_aligned_slice(
        comptime!(right * plan.rhs().len() / rhs_lanes),
        16usize,
    );
    let out = Shared::<[Vector<f32, Const<2>>]>::new_aligned_slice(
        comptime!(plan.threads() / 32 * plan.out().len() / 2),
        16usize,
    );
    Stages::<S, NL, NR> { lhs, rhs, out }
}

/// Where a tile of the result begins: the vector of the matrix, the row and the column.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Corner {
    pub(crate) base: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// The vectors at which a stage of the left and one of the right matrix begin.
#[cube]
pub(crate) fn begins<NL: Size, NR: Size>(
    stage: usize,
    #[comptime] plan: MatmulPlan,
) -> (usize, usize) {
    let (lhs_lanes, rhs_lanes) = (NL::value().comptime(), NR::value().comptime());
    let lhs = stage * comptime!(plan.lhs().len() / lhs_lanes);
    let rhs = stage * comptime!(plan.rhs().len() / rhs_lanes);
    (lhs, rhs)
}

/// The sums of a plane, all zero; see [`accumulate`].
#[cube]
pub(crate) fn zeros(#[comptime] plan: MatmulPlan) -> Array<Vector<f32, Const<4>>> {
    let count = comptime!(plan.fragments());
    let mut sums = Array::<Vector<f32, Const<4>>>::new(count);
    #[unroll]
    for i in 0..count {
        sums[i] = Vector::new(0.0f32);
    }
    sums
}

/// Adds the products of all terms of both stages, which begin at vectors `base_lhs` and `base_rhs`,
/// to a plane's `sums`, a vector for each fragment `(i, j)`, which begins at row `16·i` and column
/// `8·j`: two of its upper and two of its lower eight rows.
#[cube]
pub(crate) fn accumulate<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<4>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    #[comptime] plan: MatmulPlan,
) {
    if comptime!(plan.form.arithmetic == Arithmetic::Bf16) {
        accumulate_bf16::<S, NL, NR>(sums, staged_lhs, staged_rhs, base_lhs, base_rhs, plan);
    } else if comptime!(plan.form.arithmetic.uses_tensor_cores()) {
        accumulate_tf32::<S, NL, NR>(sums, staged_lhs, staged_rhs, base_lhs, base_rhs, plan);
    } else {
        for sixteen in 0..comptime!(plan.depth / 16) {
            accumulate_by_units::<S, NL, NR>(
                sums,
                staged_lhs,
                staged_rhs,
                base_lhs * NL::value(),
                base_rhs * NR::value(),
                sixteen * 16,
                plan,
            );
        }
    }
}

/// A plane's first row and column in the tile.
#[cube]
pub(super) fn plane_begin(#[comptime] plan: MatmulPlan) -> (usize, usize) {
    let plane = UNIT_POS as usize / 32;
    let per_plane = comptime!(plan.per_plane());
    let row = (plane / comptime!(plan.planes[1])) * comptime!(per_plane[0]);
    let column = (plane % comptime!(plan.planes[1])) * comptime!(per_plane[1]);
    (row, column)
}

/// Without tensor cores: each unit computes the numbers that it would receive from them.
#[cube]
fn accumulate_by_units<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<4>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    term: usize,
    #[comptime] plan: MatmulPlan,
) {
    let lhs_row_stride = comptime!(plan.lhs().row_stride());
    let rhs_row_stride = comptime!(plan.rhs().row_stride());
    let per_plane = comptime!(plan.per_plane());
    let n_frags = comptime!(per_plane[1] / 8);
    let lane = UNIT_POS as usize % 32;
    let (plane_row, plane_column) = plane_begin(plan);
    for i in 0..comptime!(per_plane[0] / 16) {
        for j in 0..n_frags {
            let column = plane_column + j * 8 + (lane % 4) * 2;
            let mut fragment = sums[i * n_frags + j];
            #[unroll]
            for half in 0..2usize {
                let row = plane_row + i * 16 + comptime!(half * 8) + lane / 4;
                let mut even = fragment.extract(comptime!(half * 2));
                let mut odd = fragment.extract(comptime!(half * 2 + 1));
                for t in term..term + 16 {
                    let left = if comptime!(plan.form.lhs_by_columns) {
                        element::<S, NL>(staged_lhs, base_lhs + t * lhs_row_stride + row)
                    } else {
                        element::<S, NL>(staged_lhs, base_lhs + row * lhs_row_stride + t)
                    };
                    if comptime!(plan.form.rhs_by_columns) {
                        let from = base_rhs + column * rhs_row_stride + t;
                        even += left * element::<S, NR>(staged_rhs, from);
                        odd += left * element::<S, NR>(staged_rhs, from + rhs_row_stride);
                    } else {
                        let from = base_rhs + t * rhs_row_stride + column;
                        even += left * element::<S, NR>(staged_rhs, from);
                        odd += left * element::<S, NR>(staged_rhs, from + 1);
                    }
                }
                fragment.insert(comptime!(half * 2), even);
                fragment.insert(comptime!(half * 2 + 1), odd);
            }
            sums[i * n_frags + j] = fragment;
        }
    }
}

/// Element `at` of vectors in shared memory.
#[cube]
fn element<S: Float, N: Size>(staged: &Shared<[Vector<S, N>]>, at: usize) -> f32 {
    let lanes = N::value().comptime();
    let vector = staged[at / lanes];
    let mut value = f32::cast_from(vector.extract(0usize));
    #[unroll]
    for lane in 1..lanes {
        value = select(at % lanes == lane, f32::cast_from(vector.extract(lane)), value);
    }
    value
}

/// Vectors of `lanes` that a unit writes for eight rows of its plane's part of a tile.
pub(super) fn vectors_per_unit(plan: MatmulPlan, lanes: usize) -> usize {
    (8 * plan.per_plane()[1] / lanes).div_ceil(32)
}

/// Row and column, in the plane's part, of the `k`-th vector that a unit writes of the `eight`-th
/// eight rows.
#[cube]
fn place_of(
    #[comptime] eight: usize,
    #[comptime] k: usize,
    #[comptime] lanes: usize,
    #[comptime] plan: MatmulPlan,
) -> (usize, usize) {
    let per_row = comptime!(plan.per_plane()[1] / lanes);
    let at = UNIT_POS as usize % 32 + comptime!(k * 32);
    (comptime!(eight * 8) + at / per_row, (at % per_row) * lanes)
}

/// The values that a tile is added to, in the order in which [`write`] writes it; past the last row
/// and column, values of the last one. Loaded early and unconditionally: a load whose value a
/// condition selects stalls where it stands, and the next one begins only after it.
#[cube]
pub(crate) fn fetch_addends<O: Float, NO: Size>(
    out: &mut [Vector<O, NO>],
    corner: &Corner,
    sizes: &Extents,
    #[comptime] plan: MatmulPlan,
) -> Array<Vector<O, NO>> {
    let lanes = NO::value().comptime();
    let vectors_per_unit = comptime!(vectors_per_unit(plan, lanes));
    let eights = comptime!(if plan.form.accumulates { plan.per_plane()[0] / 8 } else { 0 });
    let mut addends = Array::<Vector<O, NO>>::new(comptime!((eights * vectors_per_unit).max(1)));
    let (plane_row, plane_column) = plane_begin(plan);
    #[unroll]
    for eight in 0..eights {
        #[unroll]
        for k in 0..vectors_per_unit {
            let (y, x) = place_of(eight, k, lanes, plan);
            let row = min(corner.row + plane_row + y, sizes.m as usize - 1);
            let column = min(corner.column + plane_column + x, sizes.n as usize - lanes);
            let from = corner.base + row * sizes.out_row_stride as usize + column / lanes;
            addends[comptime!(eight * vectors_per_unit + k)] = out[from];
        }
    }
    addends
}

/// Writes a tile of the result, from `corner` on. It passes through shared memory so that adjacent
/// units write adjacent 16-byte vectors: eight rows of a plane at a time, synchronized within the
/// plane.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a tile, its place and its type")]
pub(crate) fn write<O: Float, NO: Size>(
    sums: &Array<Vector<f32, Const<4>>>,
    addends: &Array<Vector<O, NO>>,
    staged: &mut Shared<[Vector<f32, Const<2>>]>,
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    corner: &Corner,
    sizes: &Extents,
    #[comptime] plan: MatmulPlan,
) {
    let lanes = NO::value().comptime();
    let per_plane = comptime!(plan.per_plane());
    let n_frags = comptime!(per_plane[1] / 8);
    let row_stride = comptime!(plan.out().row_stride());
    let vectors_per_unit = comptime!(vectors_per_unit(plan, lanes));
    let lane = UNIT_POS as usize % 32;
    let begin = (UNIT_POS as usize / 32) * comptime!(plan.out().len());
    let (plane_row, plane_column) = plane_begin(plan);
    #[unroll]
    for eight in 0..comptime!(per_plane[0] / 8) {
        #[unroll]
        for j in 0..n_frags {
            let at = begin + (lane / 4) * row_stride + comptime!(j * 8) + (lane % 4) * 2;
            let fragment = sums[comptime!(eight / 2 * n_frags + j)];
            let mut pair = Vector::<f32, Const<2>>::empty();
            pair.insert(0usize, fragment.extract(comptime!(eight % 2 * 2)));
            pair.insert(1usize, fragment.extract(comptime!(eight % 2 * 2 + 1)));
            staged[at / 2] = pair;
        }
        wait_for_plane(plan);
        #[unroll]
        for k in 0..vectors_per_unit {
            let (y, x) = place_of(eight, k, lanes, plan);
            let row = corner.row + plane_row + y;
            let column = corner.column + plane_column + x;
            // The last vectors may be fewer than the units.
            let in_bounds = y < comptime!(eight * 8 + 8);
            if in_bounds && row < sizes.m as usize && column < sizes.n as usize {
                let from = begin + (y % 8) * row_stride + x;
                let mut value = Vector::<f32, NO>::empty();
                if comptime!(plan.form.arithmetic.uses_tensor_cores()) {
                    value = staged.with_vector_size::<NO>()[from / lanes];
                } else {
                    // WGSL reads shared memory with the declared type only.
                    #[unroll]
                    for o in 0..lanes {
                        let pair = staged[(from + o) / 2];
                        let odd = (from + o) % 2 == 1;
                        value.insert(o, select(odd, pair.extract(1usize), pair.extract(0usize)));
                    }
                }
                if comptime!(plan.form.has_bias) {
                    let mut offset = Vector::<f32, NO>::empty();
                    #[unroll]
                    for o in 0..lanes {
                        offset.insert(o, bias[column + o]);
                    }
                    value += offset;
                }
                if comptime!(plan.form.accumulates) {
                    value += Vector::cast_from(addends[comptime!(eight * vectors_per_unit + k)]);
                }
                let to = corner.base + row * sizes.out_row_stride as usize + column / lanes;
                out[to] = Vector::cast_from(value);
            }
        }
        wait_for_plane(plan);
    }
}

/// Synchronizes the plane, or the cube where no plane is known.
#[cube]
fn wait_for_plane(#[comptime] plan: MatmulPlan) {
    if comptime!(plan.form.arithmetic.uses_tensor_cores()) {
        sync_plane();
    } else {
        sync_cube();
    }
}
