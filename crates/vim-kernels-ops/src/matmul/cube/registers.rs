//! A product with a stationary right matrix in registers: for few terms, in bf16 on tensor cores.
//!
//! Each plane holds the fragments of its columns, of all terms, and goes through rows, which pass
//! through a ring of stages in shared memory. So only the left matrix is read from there. Columns
//! are permuted so that a unit has sums of adjacent ones, which it writes without shared memory.

use cubecl::cmma::{self, MatrixIdent};
use cubecl::prelude::*;

use super::arithmetic::Arithmetic;
use super::copies::{commit_copies, copy_lhs, wait_copies};
use super::mma::{multiply_add, packed};
use super::plan::{Extents, MatmulPlan};
use super::right_fragments::{Eight, copy_right, distance, load_right};
use super::tile::plane_begin;

/// As [`super::weight_stationary::weight_stationary`]; both matrices are copied without registers.
///
/// Cubes are `(column of tiles, worker, product)`; workers take the rows of tiles in turn.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(crate) fn weight_in_registers<S: Float, O: Float, NL: Size, NR: Size, NO: Size>(
    lhs: &[Vector<S, NL>],
    rhs: &[Vector<S, NR>],
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    sizes: Extents,
    #[comptime] plan: MatmulPlan,
    #[define(S)] _stage_type: ElemType,
    #[define(O)] _out_type: ElemType,
) {
    let ahead = comptime!(plan.stages - 1);
    let apart = comptime!(plan.rhs_begin() > 0);
    let m = sizes.m as usize;
    let base = (CUBE_POS_Z * sizes.out_batch_stride) as usize;
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);
    let mut row = CUBE_POS_Y as usize * comptime!(plan.tile[0]);
    let stride = CUBE_COUNT_Y as usize * comptime!(plan.tile[0]);

    let mut staged = Shared::<[Eight<S>]>::new_aligned_slice(
        comptime!(plan.register_shared_memory() / (2 * 8)),
        16usize,
    );
    if comptime!(apart) {
        #[unroll]
        for stage in 0..ahead {
            copy_rows::<S, NL>(&mut staged, stage, lhs, row + stage * stride, &sizes, plan);
        }
    }
    copy_right::<S, NR>(&mut staged, rhs, first_column, &sizes, plan);
    commit_copies(true);
    wait_copies(0usize, true);
    sync_cube();
    let right = load_right::<S>(&staged, plan);
    if comptime!(!apart) {
        // All planes have read what the first rows replace.
        sync_cube();
        #[unroll]
        for stage in 0..ahead {
            copy_rows::<S, NL>(&mut staged, stage, lhs, row + stage * stride, &sizes, plan);
        }
    }

    let mut stage = 0usize.runtime();
    while row < m {
        wait_copies(comptime!(ahead - 1), true);
        // The barrier also ends all reads of the previous stage, which is refilled.
        sync_cube();
        let previous = (stage + ahead) % comptime!(plan.stages);
        copy_rows::<S, NL>(&mut staged, previous, lhs, row + ahead * stride, &sizes, plan);
        multiply_rows::<S, O, NO>(
            &staged,
            stage,
            &right,
            bias,
            out,
            base,
            row,
            first_column,
            &sizes,
            plan,
        );
        row += stride;
        stage = (stage + 1) % comptime!(plan.stages);
    }
}

/// Copies the rows of a tile from `row` on into a stage, as one group; an empty one past the last.
#[cube]
fn copy_rows<S: Float, N: Size>(
    staged: &mut Shared<[Eight<S>]>,
    stage: usize,
    from: &[Vector<S, N>],
    row: usize,
    sizes: &Extents,
    #[comptime] plan: MatmulPlan,
) {
    let lanes = N::value().comptime();
    let first = (CUBE_POS_Z * sizes.lhs_batch_stride) as usize;
    if row < sizes.m as usize {
        let to = staged.with_vector_size_mut::<N>();
        let base = stage * comptime!(plan.lhs().len() / lanes);
        copy_lhs::<S, N>(to, base, from, first, row, 0usize, sizes.k as usize, sizes, true, plan);
    }
    commit_copies(true);
}

/// Multiplies a plane's rows of a tile, sixteen at a time, and writes the result.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a tile, its place and its type")]
fn multiply_rows<S: Float, O: Float, NO: Size>(
    staged: &Shared<[Eight<S>]>,
    stage: usize,
    right: &Array<Vector<u32, Const<2>>>,
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    base: usize,
    row: usize,
    first_column: usize,
    sizes: &Extents,
    #[comptime] plan: MatmulPlan,
) {
    let lanes = NO::value().comptime();
    let per_plane = comptime!(plan.per_plane());
    let (plane_rows, columns) = comptime!((per_plane[0], per_plane[1]));
    let n_frags = comptime!(columns / 8);
    let steps = comptime!(plan.depth / 16);
    let row_stride = comptime!(plan.lhs().row_stride() / 8);
    let adjacent = comptime!(plan.adjacent());
    // Vectors that a unit writes of a row.
    let vectors = comptime!(columns / 4 / lanes);
    let addend_count =
        comptime!(if plan.form.accumulates { plane_rows / 8 * vectors } else { 1usize });
    let def = cmma::MmaDefinition::<S, S, f32>::new(16usize, 8usize, 16usize);
    let lane = UNIT_POS as usize % 32;
    let (plane_row, plane_column) = plane_begin(plan);
    let first_lhs =
        stage * comptime!(plan.lhs().len() / 8) + (plane_row + lane % 16) * row_stride + lane / 16;
    let first_row = row + plane_row + lane / 4;
    let first_column = first_column + plane_column + (lane % 4) * adjacent;

    // Loaded early and unconditionally, as in `fetch_addends`.
    let mut addends = Array::<Vector<O, NO>>::new(addend_count);
    if comptime!(plan.form.accumulates) {
        #[unroll]
        for eight in 0..comptime!(plane_rows / 8) {
            let y = min(first_row + comptime!(eight * 8), sizes.m as usize - 1);
            #[unroll]
            for v in 0..vectors {
                let away = comptime!(distance(v * lanes, adjacent));
                let x = min(first_column + away, sizes.n as usize - lanes);
                let from = base + y * sizes.out_row_stride as usize + x / lanes;
                addends[comptime!(eight * vectors + v)] = out[from];
            }
        }
    }
    #[unroll]
    for i in 0..comptime!(plane_rows / 16) {
        let mut sums = Array::<Vector<f32, Const<4>>>::new(n_frags);
        #[unroll]
        for j in 0..n_frags {
            sums[j] = Vector::new(0.0f32);
        }
        // The current sixteen terms and the next.
        let mut left = Array::<Vector<u32, Const<4>>>::new(2usize);
        #[unroll]
        for turn in 0..comptime!(steps + 1) {
            if comptime!(turn < steps) {
                let from = first_lhs + comptime!(i * 16 * row_stride + turn * 2);
                let loaded = def.load_matrix::<_, Const<2>>(
                    &staged[from..from + 1],
                    MatrixIdent::A,
                    4usize,
                    false,
                );
                left[comptime!(turn % 2)] = packed::<S, Const<2>, Const<4>>(&loaded, 0usize);
            }
            if comptime!(turn > 0) {
                let rows = left[comptime!((turn + 1) % 2)];
                #[unroll]
                for j in 0..n_frags {
                    let columns = right[comptime!((turn - 1) * n_frags + j)];
                    sums[j] = multiply_add(rows, columns, sums[j], Arithmetic::Bf16);
                }
            }
        }
        #[unroll]
        for half in 0..2usize {
            let eight = comptime!(i * 2 + half);
            let y = first_row + comptime!(eight * 8);
            #[unroll]
            for v in 0..vectors {
                let x = first_column + comptime!(distance(v * lanes, adjacent));
                if y < sizes.m as usize && x < sizes.n as usize {
                    let mut value = Vector::<f32, NO>::empty();
                    #[unroll]
                    for o in 0..lanes {
                        let at = comptime!(v * lanes + o);
                        let fragment = sums[comptime!(at / 2)];
                        value.insert(o, fragment.extract(comptime!(half * 2 + at % 2)));
                    }
                    if comptime!(plan.form.has_bias) {
                        let mut offset = Vector::<f32, NO>::empty();
                        #[unroll]
                        for o in 0..lanes {
                            offset.insert(o, bias[x + o]);
                        }
                        value += offset;
                    }
                    if comptime!(plan.form.accumulates) {
                        value += Vector::cast_from(addends[comptime!(eight * vectors + v)]);
                    }
                    let to = base + y * sizes.out_row_stride as usize + x / lanes;
                    out[to] = Vector::cast_from(value);
                }
            }
        }
    }
}
