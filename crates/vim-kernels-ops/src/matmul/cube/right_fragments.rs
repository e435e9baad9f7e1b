//! The right matrix in registers: its fragments, and where their columns lie in the result.

use cubecl::cmma::{self, MatrixIdent};
use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::mma::packed;
use super::plan::{Extents, MatmulPlan};
use super::tile::plane_begin;

/// Two elements in a register.
type Two<S> = Vector<S, Const<2>>;
/// A row of a fragment in shared memory.
pub(super) type Eight<S> = Vector<S, Const<8>>;

/// Vectors of the right matrix that a unit reads before it stores them.
const READ_AHEAD: usize = 4;

/// Where the `x`-th column of a tile is among the columns of fragments. Each unit has the sums of
/// two columns of a fragment: the permutation makes those of successive fragments adjacent.
#[cube]
fn place_of_column(x: usize, #[comptime] plan: MatmulPlan) -> usize {
    let adjacent = comptime!(plan.adjacent());
    let within = x % comptime!(4 * adjacent);
    x - within + (within % adjacent) / 2 * 8 + within / adjacent * 2 + x % 2
}

/// Columns from a unit's first to its `at`-th, of which `adjacent` are beside each other in every
/// four times as many.
pub(super) fn distance(at: usize, adjacent: usize) -> usize {
    at / adjacent * (4 * adjacent) + at % adjacent
}

/// Copies the tile's columns of the right matrix, with zeros beyond its last column and term.
#[cube]
pub(super) fn copy_right<S: Float, N: Size>(
    staged: &mut Shared<[Eight<S>]>,
    from: &[Vector<S, N>],
    first_column: usize,
    sizes: &Extents,
    #[comptime] plan: MatmulPlan,
) {
    let lanes = N::value().comptime();
    let (stage, threads) = (comptime!(plan.rhs()), comptime!(plan.threads()));
    let begin = comptime!(plan.rhs_begin());
    let per_row = comptime!(stage.columns / lanes);
    let vectors = comptime!(stage.rows * per_row);
    let (n, k) = (sizes.n as usize, sizes.k as usize);
    let first = (CUBE_POS_Z * sizes.rhs_batch_stride) as usize;
    let row_stride = sizes.rhs_row_stride as usize;
    if comptime!(plan.form.rhs_by_columns) {
        let to = staged.with_vector_size_mut::<N>();
        for i in 0..comptime!(vectors.div_ceil(threads)) {
            let at = UNIT_POS as usize + i * threads;
            if at < vectors {
                let (y, term) = (at / per_row, (at % per_row) * lanes);
                let column = first_column + y;
                let source = first + column * row_stride + term / lanes;
                let place = begin + place_of_column(y, plan) * comptime!(stage.row_stride()) + term;
                let count = select(column < n && term < k, 1usize, 0usize);
                copy_async_checked(
                    &from[source..source + count],
                    &mut to[place / lanes..place / lanes + 1],
                    comptime!(lanes as u32),
                );
            }
        }
    } else {
        // Pairs of columns, which permuted are no longer adjacent: through registers. Successive
        // units have a few vectors of successive terms, which are in different banks.
        let beside = comptime!(if per_row % 4 == 0 { 4usize } else { 1usize });
        let to = staged.with_vector_size_mut::<Const<2>>();
        for i in 0..comptime!(vectors.div_ceil(threads * READ_AHEAD)) {
            let mut read = Array::<Vector<S, N>>::new(READ_AHEAD);
            #[unroll]
            for ahead in 0..READ_AHEAD {
                let at = UNIT_POS as usize + (i * READ_AHEAD + ahead) * threads;
                let (term, x) = vector_of_right(at, beside, lanes, plan);
                let (term, column) = (min(term, k - 1), min(first_column + x, n - lanes));
                read[ahead] = from[first + term * row_stride + column / lanes];
            }
            #[unroll]
            for ahead in 0..READ_AHEAD {
                let at = UNIT_POS as usize + (i * READ_AHEAD + ahead) * threads;
                if at < vectors {
                    let (term, x) = vector_of_right(at, beside, lanes, plan);
                    let in_bounds = term < k && first_column + x < n;
                    #[unroll]
                    for pair in 0..comptime!(lanes / 2) {
                        let mut two = Two::<S>::empty();
                        #[unroll]
                        for o in 0..2usize {
                            let value = read[ahead].extract(comptime!(pair * 2 + o));
                            two.insert(o, select(in_bounds, value, S::new(0.0f32)));
                        }
                        let column = place_of_column(x + comptime!(pair * 2), plan);
                        let place = begin + term * comptime!(stage.row_stride()) + column;
                        to[place / 2] = two;
                    }
                }
            }
        }
    }
}

/// Term and first column of the `at`-th vector of the right matrix: `beside` vectors of a term,
/// then those of the next.
#[cube]
fn vector_of_right(
    at: usize,
    #[comptime] beside: usize,
    #[comptime] lanes: usize,
    #[comptime] plan: MatmulPlan,
) -> (usize, usize) {
    let line = at / beside;
    let depth = comptime!(plan.depth);
    (line % depth, (line / depth * beside + at % beside) * lanes)
}

/// The fragments of a plane's columns: of sixteen terms and eight columns, those of the same terms
/// after each other.
#[cube]
pub(super) fn load_right<S: Float>(
    staged: &Shared<[Eight<S>]>,
    #[comptime] plan: MatmulPlan,
) -> Array<Vector<u32, Const<2>>> {
    let n_frags = comptime!(plan.per_plane()[1] / 8);
    let steps = comptime!(plan.depth / 16);
    // Vectors of eight from a row to the next.
    let row_stride = comptime!(plan.rhs().row_stride() / 8);
    let by_columns = comptime!(plan.form.rhs_by_columns);
    let def = cmma::MmaDefinition::<S, S, f32>::new(16usize, 8usize, 16usize);
    let lane = UNIT_POS as usize % 32;
    let (_plane_row, plane_column) = plane_begin(plan);
    let first = if comptime!(by_columns) {
        (plane_column + (lane / 16) * 8 + lane % 8) * row_stride + (lane / 8) % 2
    } else {
        (((lane / 8) % 2) * 8 + lane % 8) * row_stride + plane_column / 8 + lane / 16
    };
    let first = first + comptime!(plan.rhs_begin() / 8);
    let mut right = Array::<Vector<u32, Const<2>>>::new(comptime!(steps * n_frags));
    #[unroll]
    for step in 0..steps {
        #[unroll]
        for j in 0..comptime!(n_frags / 2) {
            let away = if comptime!(by_columns) {
                comptime!(j * 16 * row_stride + step * 2)
            } else {
                comptime!(step * 16 * row_stride + j * 2)
            };
            let from = first + away;
            let loaded = def.load_matrix::<_, Const<2>>(
                &staged[from..from + 1],
                MatrixIdent::B,
                4usize,
                comptime!(!by_columns),
            );
            #[unroll]
            for of in 0..2usize {
                let fragment = packed::<S, Const<2>, Const<2>>(&loaded, comptime!(of * 2));
                right[comptime!(step * n_frags + j * 2 + of)] = fragment;
            }
        }
    }
    right
}

#[cfg(test)]
mod tests {
    use super::super::arithmetic::Arithmetic;
    use super::super::plan::MatmulForm;
    use super::*;

    // Unit `u` of four has columns `2u` and `2u + 1` of each fragment of eight.
    #[test]
    fn a_unit_has_adjacent_columns() {
        for columns in [16, 32, 48, 64] {
            let form = MatmulForm {
                lhs_by_columns: false,
                rhs_by_columns: false,
                arithmetic: Arithmetic::Bf16,
                has_bias: false,
                accumulates: false,
            };
            let tile = [32, 2 * columns];
            let plan = MatmulPlan { form, tile, planes: [1, 2], depth: 16, stages: 2 };
            let adjacent = plan.adjacent();
            let mut seen = vec![false; tile[1]];
            for (plane, unit, at) in (0..tile[1]).map(|i| (i / columns, i % 4, i % columns / 4)) {
                let column = plane * columns + unit * adjacent + distance(at, adjacent);
                let place = plane * columns + at / 2 * 8 + unit * 2 + at % 2;
                assert_eq!(place_of_column(column, plan), place, "{columns}");
                assert!(!std::mem::replace(&mut seen[column], true), "{columns}");
            }
        }
    }
}
