//! What the kernels of a product share: what a thread moves, what a plane multiplies, and how a tile is written.

use cubecl::cmma::{self, MatrixIdent};
use cubecl::prelude::*;

use super::plan::{Extents, ProductPlan, Share, Stage};

/// A thread's vectors of a window of a matrix; zeros beyond `rows` and `columns`.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a window of a matrix has these sides")]
pub(super) fn fetch<F: Float, N: Size>(
    to: &mut Array<Vector<F, N>>,
    from: &[Vector<F, N>],
    pitch: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
    #[comptime] stage: Stage,
    #[comptime] share: Share,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    #[unroll]
    for i in 0..comptime!(share.count) {
        let at = UNIT_POS as usize + comptime!((share.first + i) * share.threads);
        let y = row + at / per_row;
        let x = column + (at % per_row) * lanes;
        let mut value = Vector::<F, N>::new(F::new(0.0f32));
        if y < rows && x < columns {
            value = from[y * pitch + x / lanes];
        }
        to[i] = value;
    }
}

/// Puts them into shared memory from vector `base` on, rounded.
#[cube]
pub(super) fn put<S: Float, F: Float, N: Size>(
    to: &mut Shared<[Vector<S, N>]>,
    from: &Array<Vector<F, N>>,
    base: usize,
    #[comptime] stage: Stage,
    #[comptime] share: Share,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    let pitch = comptime!(stage.pitch() / lanes);
    let vectors = comptime!(stage.rows * stage.columns / lanes);
    #[unroll]
    for i in 0..comptime!(share.count) {
        let at = UNIT_POS as usize + comptime!((share.first + i) * share.threads);
        if comptime!((share.first + i + 1) * share.threads <= vectors) || at < vectors {
            to[base + (at / per_row) * pitch + at % per_row] = Vector::cast_from(from[i]);
        }
    }
}

/// Adds to a plane's `sums` the products of sixteen terms, from term `term` of both stages on, which begin at elements
/// `base_lhs` and `base_rhs`. The sums of fragment `(i, j)`, rows `16·i` and columns `8·j` on, are two vectors: of its upper
/// eight rows and of its lower.
#[cube]
pub(super) fn accumulate<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<2>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    term: usize,
    #[comptime] plan: ProductPlan,
) {
    if comptime!(plan.form.cores) {
        accumulate_on_cores::<S, NL, NR>(
            sums, staged_lhs, staged_rhs, base_lhs, base_rhs, term, plan,
        );
    } else {
        accumulate_by_units::<S, NL, NR>(
            sums, staged_lhs, staged_rhs, base_lhs, base_rhs, term, plan,
        );
    }
}

/// Where a plane's first row and column are in the tile.
#[cube]
fn plane_begin(#[comptime] plan: ProductPlan) -> (usize, usize) {
    let plane = UNIT_POS as usize / 32;
    let per_plane = comptime!(plan.per_plane());
    let row = (plane / comptime!(plan.planes[1])) * comptime!(per_plane[0]);
    let column = (plane % comptime!(plan.planes[1])) * comptime!(per_plane[1]);
    (row, column)
}

#[cube]
fn accumulate_on_cores<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<2>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    term: usize,
    #[comptime] plan: ProductPlan,
) {
    let lhs_lanes = NL::value().comptime();
    let rhs_lanes = NR::value().comptime();
    let lhs_pitch = comptime!(plan.lhs().pitch());
    let rhs_pitch = comptime!(plan.rhs().pitch());
    let per_plane = comptime!(plan.per_plane());
    let m_frags = comptime!(per_plane[0] / 16);
    let n_frags = comptime!(per_plane[1] / 8);
    let def = cmma::MmaDefinition::<S, S, f32>::new(16usize, 8usize, 16usize);
    let size!(NA) = def.vector_size(MatrixIdent::A);
    let size!(NB) = def.vector_size(MatrixIdent::B);
    let lane = UNIT_POS as usize % 32;
    let (plane_row, plane_column) = plane_begin(plan);
    let mut left = Array::<Vector<S, NA>>::new(comptime!(m_frags * 4));
    #[unroll]
    for i in 0..m_frags {
        let row = plane_row + comptime!(i * 16);
        let at = if comptime!(plan.form.lhs_by_columns) {
            (term + lane % 8 + (lane / 16) * 8) * lhs_pitch + row + ((lane / 8) % 2) * 8
        } else {
            (row + lane % 16) * lhs_pitch + term + (lane / 16) * 8
        };
        let from = (base_lhs + at) / lhs_lanes;
        let slice = &staged_lhs[from..from + comptime!(8 / lhs_lanes)];
        let loaded = def.load_matrix::<_, NA>(
            slice,
            MatrixIdent::A,
            4usize,
            comptime!(plan.form.lhs_by_columns),
        );
        #[unroll]
        for r in 0..4usize {
            left[i * 4 + r] = loaded[r];
        }
    }
    #[unroll]
    for j in 0..comptime!(n_frags / 2) {
        let column = plane_column + comptime!(j * 16);
        let here = term + ((lane / 8) % 2) * 8;
        let at = if comptime!(plan.form.rhs_by_columns) {
            (column + (lane / 16) * 8 + lane % 8) * rhs_pitch + here
        } else {
            (here + lane % 8) * rhs_pitch + column + (lane / 16) * 8
        };
        let from = (base_rhs + at) / rhs_lanes;
        let slice = &staged_rhs[from..from + comptime!(8 / rhs_lanes)];
        let loaded = def.load_matrix::<_, NB>(
            slice,
            MatrixIdent::B,
            4usize,
            comptime!(!plan.form.rhs_by_columns),
        );
        #[unroll]
        for half in 0..2usize {
            let mut right = Array::<Vector<S, NB>>::new(2usize);
            right[0] = loaded[half * 2];
            right[1] = loaded[half * 2 + 1];
            #[unroll]
            for i in 0..m_frags {
                let mut rows = Array::<Vector<S, NA>>::new(4usize);
                #[unroll]
                for r in 0..4usize {
                    rows[r] = left[i * 4 + r];
                }
                let at = comptime!((i * n_frags + j * 2 + half) * 2);
                let mut sum = Array::<Vector<f32, Const<2>>>::new(2usize);
                sum[0] = sums[at];
                sum[1] = sums[at + 1];
                let sum = def.execute(&rows, &right, &sum);
                sums[at] = sum[0];
                sums[at + 1] = sum[1];
            }
        }
    }
}

/// The same where there are no such cores: each unit makes the numbers that it would have from them.
#[cube]
fn accumulate_by_units<S: Float, NL: Size, NR: Size>(
    sums: &mut Array<Vector<f32, Const<2>>>,
    staged_lhs: &Shared<[Vector<S, NL>]>,
    staged_rhs: &Shared<[Vector<S, NR>]>,
    base_lhs: usize,
    base_rhs: usize,
    term: usize,
    #[comptime] plan: ProductPlan,
) {
    let lhs_pitch = comptime!(plan.lhs().pitch());
    let rhs_pitch = comptime!(plan.rhs().pitch());
    let per_plane = comptime!(plan.per_plane());
    let n_frags = comptime!(per_plane[1] / 8);
    let lane = UNIT_POS as usize % 32;
    let (plane_row, plane_column) = plane_begin(plan);
    for i in 0..comptime!(per_plane[0] / 8) {
        let row = plane_row + i * 8 + lane / 4;
        for j in 0..n_frags {
            let column = plane_column + j * 8 + (lane % 4) * 2;
            let at = (i / 2 * n_frags + j) * 2 + i % 2;
            let (mut even, mut odd) = (sums[at].extract(0usize), sums[at].extract(1usize));
            for t in term..term + 16 {
                let left = if comptime!(plan.form.lhs_by_columns) {
                    element::<S, NL>(staged_lhs, base_lhs + t * lhs_pitch + row)
                } else {
                    element::<S, NL>(staged_lhs, base_lhs + row * lhs_pitch + t)
                };
                if comptime!(plan.form.rhs_by_columns) {
                    let from = base_rhs + column * rhs_pitch + t;
                    even += left * element::<S, NR>(staged_rhs, from);
                    odd += left * element::<S, NR>(staged_rhs, from + rhs_pitch);
                } else {
                    let from = base_rhs + t * rhs_pitch + column;
                    even += left * element::<S, NR>(staged_rhs, from);
                    odd += left * element::<S, NR>(staged_rhs, from + 1);
                }
            }
            let mut pair = Vector::<f32, Const<2>>::empty();
            pair.insert(0usize, even);
            pair.insert(1usize, odd);
            sums[at] = pair;
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

/// Writes a tile of the result, from row and column `first_*` on and vector `base` of `out` on. Through shared memory, so that
/// neighbouring threads write neighbouring numbers, sixteen bytes each; a row of every plane's fragments at a time, which takes little
/// of it. The cube waits for itself before this returns.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a tile, its place and its type")]
pub(super) fn write<O: Float, NO: Size>(
    sums: &Array<Vector<f32, Const<2>>>,
    staged: &mut Shared<[Vector<f32, Const<2>>]>,
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    base: usize,
    first_row: usize,
    first_column: usize,
    sizes: &Extents,
    #[comptime] plan: ProductPlan,
) {
    let out_lanes = NO::value().comptime();
    let per_plane = comptime!(plan.per_plane());
    let m_frags = comptime!(per_plane[0] / 16);
    let n_frags = comptime!(per_plane[1] / 8);
    let threads = comptime!(plan.threads());
    let pitch = comptime!(plan.out().pitch());
    let per_row = comptime!(plan.tile[1] / out_lanes);
    let count = comptime!(plan.out().rows * per_row);
    let lane = UNIT_POS as usize % 32;
    let plane = UNIT_POS as usize / 32;
    let plane_row = (plane / comptime!(plan.planes[1])) * 16;
    let plane_column = (plane % comptime!(plan.planes[1])) * comptime!(per_plane[1]);
    #[unroll]
    for i in 0..m_frags {
        #[unroll]
        for half in 0..2usize {
            let row = plane_row + comptime!(half * 8) + lane / 4;
            #[unroll]
            for j in 0..n_frags {
                let column = plane_column + comptime!(j * 8) + (lane % 4) * 2;
                staged[(row * pitch + column) / 2] = sums[comptime!((i * n_frags + j) * 2 + half)];
            }
        }
        sync_cube();
        #[unroll]
        for k in 0..comptime!(count.div_ceil(threads)) {
            let at = UNIT_POS as usize + comptime!(k * threads);
            let (y, x) = (at / per_row, (at % per_row) * out_lanes);
            let row = first_row + (y / 16) * comptime!(per_plane[0]) + comptime!(i * 16) + y % 16;
            let column = first_column + x;
            if at < count && row < sizes.m as usize && column < sizes.n as usize {
                let from = y * pitch + x;
                let mut value = Vector::<f32, NO>::empty();
                if comptime!(plan.form.cores) {
                    value = staged.with_vector_size::<NO>()[from / out_lanes];
                } else {
                    // WGSL reads shared memory as it is declared.
                    #[unroll]
                    for o in 0..out_lanes {
                        let pair = staged[(from + o) / 2];
                        let odd = (from + o) % 2 == 1;
                        value.insert(o, select(odd, pair.extract(1usize), pair.extract(0usize)));
                    }
                }
                if comptime!(plan.form.has_bias) {
                    let mut offset = Vector::<f32, NO>::empty();
                    #[unroll]
                    for o in 0..out_lanes {
                        offset.insert(o, bias[column + o]);
                    }
                    value += offset;
                }
                let to = base + row * sizes.out_pitch as usize + column / out_lanes;
                if comptime!(plan.form.adds) {
                    value += Vector::cast_from(out[to]);
                }
                out[to] = Vector::cast_from(value);
            }
        }
        sync_cube();
    }
}
