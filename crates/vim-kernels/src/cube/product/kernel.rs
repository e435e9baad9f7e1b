//! A product of matrices on tensor cores: bf16 in, sums in f32.
//!
//! A cube makes a tile of the result. Both matrices pass through shared memory in steps of [`DEPTH`] terms, in two
//! buffers: while the planes multiply one, its threads already hold what goes into the other. Whatever the matrices'
//! types, they are rounded to bf16 on the way.

use cubecl::cmma::{self, MatrixIdent};
use cubecl::prelude::*;

use super::plan::{DEPTH, Extents, ProductPlan, Stage};

/// What a thread moves of a step.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a window of a matrix has these sides")]
fn fetch<F: Float, N: Size>(
    to: &mut Array<Vector<F, N>>,
    from: &[Vector<F, N>],
    pitch: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
    #[comptime] stage: Stage,
    #[comptime] share: usize,
    #[comptime] threads: usize,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    #[unroll]
    for i in 0..share {
        let at = UNIT_POS as usize + comptime!(i * threads);
        let y = row + at / per_row;
        let x = column + (at % per_row) * lanes;
        let mut value = Vector::<F, N>::new(F::new(0.0f32));
        if y < rows && x < columns {
            value = from[y * pitch + x / lanes];
        }
        to[i] = value;
    }
}

/// Puts it into a buffer, rounded.
#[cube]
fn put<S: Float, F: Float, N: Size>(
    to: &mut Shared<[Vector<S, N>]>,
    from: &Array<Vector<F, N>>,
    buffer: usize,
    #[comptime] stage: Stage,
    #[comptime] share: usize,
    #[comptime] threads: usize,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    let pitch = comptime!(stage.pitch() / lanes);
    let whole = comptime!((stage.rows * stage.columns / lanes).is_multiple_of(threads));
    let base = buffer * comptime!(stage.len() / lanes);
    #[unroll]
    for i in 0..share {
        let at = UNIT_POS as usize + comptime!(i * threads);
        if comptime!(whole || i + 1 < share) || at < comptime!(stage.rows * stage.columns / lanes) {
            to[base + (at / per_row) * pitch + at % per_row] = Vector::cast_from(from[i]);
        }
    }
}

/// `out [m, n] = lhs [m, k] · rhs [k, n] + bias`, or added to what is in `out`; where the launch is more than one
/// cube deep, each layer sums its own part of the terms into a result of its own.
///
/// Cubes are `(column of tiles, row of tiles, part)`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(crate) fn product<S: Float, L: Float, R: Float, O: Float, NL: Size, NR: Size, NO: Size>(
    lhs: &[Vector<L, NL>],
    rhs: &[Vector<R, NR>],
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    sizes: Extents,
    #[comptime] plan: ProductPlan,
    #[define(S)] _stage_type: ElemType,
    #[define(L)] _lhs_type: ElemType,
    #[define(R)] _rhs_type: ElemType,
    #[define(O)] _out_type: ElemType,
) {
    let threads = comptime!(plan.threads());
    let lhs_lanes = NL::value().comptime();
    let rhs_lanes = NR::value().comptime();
    let out_lanes = NO::value().comptime();
    let lhs_stage = comptime!(plan.lhs());
    let rhs_stage = comptime!(plan.rhs());
    let lhs_share = comptime!(lhs_stage.share(lhs_lanes, threads));
    let rhs_share = comptime!(rhs_stage.share(rhs_lanes, threads));
    let per_plane = comptime!(plan.per_plane());
    let m_frags = comptime!(per_plane[0] / 16);
    let n_frags = comptime!(per_plane[1] / 8);

    let (m, n) = (sizes.m as usize, sizes.n as usize);
    let first_row = CUBE_POS_Y as usize * comptime!(plan.tile[0]);
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);
    let begin = CUBE_POS_Z as usize * sizes.part as usize;
    let end = min(begin + sizes.part as usize, sizes.k as usize);
    let (lhs_pitch, rhs_pitch) = (sizes.lhs_pitch as usize, sizes.rhs_pitch as usize);

    let mut staged_lhs = Shared::<[Vector<S, NL>]>::new_aligned_slice(
        comptime!(2 * lhs_stage.len() / lhs_lanes),
        16usize,
    );
    let mut staged_rhs = Shared::<[Vector<S, NR>]>::new_aligned_slice(
        comptime!(2 * rhs_stage.len() / rhs_lanes),
        16usize,
    );
    let mut held_lhs = Array::<Vector<L, NL>>::new(lhs_share);
    let mut held_rhs = Array::<Vector<R, NR>>::new(rhs_share);

    let def = cmma::MmaDefinition::<S, S, f32>::new(16usize, 8usize, 16usize);
    let size!(NA) = def.vector_size(MatrixIdent::A);
    let size!(NB) = def.vector_size(MatrixIdent::B);
    let size!(NC) = def.vector_size(MatrixIdent::Accumulator);
    let mut sums = Array::<Vector<f32, NC>>::new(comptime!(m_frags * n_frags * 2));
    #[unroll]
    for i in 0..comptime!(m_frags * n_frags * 2) {
        sums[i] = Vector::new(0.0f32);
    }

    let lane = UNIT_POS_PLANE as usize;
    let plane = UNIT_POS as usize / 32;
    let plane_row = (plane / comptime!(plan.planes[1])) * comptime!(per_plane[0]);
    let plane_column = (plane % comptime!(plan.planes[1])) * comptime!(per_plane[1]);

    let steps = (end - begin + comptime!(DEPTH - 1)) / DEPTH;
    for step in 0..steps + 1 {
        // What this step multiplies went into its buffer a step ago; the first only fills.
        if step < steps {
            let k = begin + step * DEPTH;
            if comptime!(plan.lhs_by_columns) {
                fetch::<L, NL>(
                    &mut held_lhs,
                    lhs,
                    lhs_pitch,
                    k,
                    end,
                    first_row,
                    m,
                    lhs_stage,
                    lhs_share,
                    threads,
                );
            } else {
                fetch::<L, NL>(
                    &mut held_lhs,
                    lhs,
                    lhs_pitch,
                    first_row,
                    m,
                    k,
                    end,
                    lhs_stage,
                    lhs_share,
                    threads,
                );
            }
            if comptime!(plan.rhs_by_columns) {
                fetch::<R, NR>(
                    &mut held_rhs,
                    rhs,
                    rhs_pitch,
                    first_column,
                    n,
                    k,
                    end,
                    rhs_stage,
                    rhs_share,
                    threads,
                );
            } else {
                fetch::<R, NR>(
                    &mut held_rhs,
                    rhs,
                    rhs_pitch,
                    k,
                    end,
                    first_column,
                    n,
                    rhs_stage,
                    rhs_share,
                    threads,
                );
            }
        }
        if step > 0 {
            let buffer = (step - 1) % 2;
            let base_lhs = buffer * comptime!(lhs_stage.len());
            let base_rhs = buffer * comptime!(rhs_stage.len());
            #[unroll]
            for depth in 0..comptime!(DEPTH / 16) {
                let mut left = Array::<Vector<S, NA>>::new(comptime!(m_frags * 4));
                #[unroll]
                for i in 0..m_frags {
                    let row = plane_row + comptime!(i * 16);
                    let at = if comptime!(plan.lhs_by_columns) {
                        (comptime!(depth * 16) + lane % 8 + (lane / 16) * 8)
                            * comptime!(lhs_stage.pitch())
                            + row
                            + ((lane / 8) % 2) * 8
                    } else {
                        (row + lane % 16) * comptime!(lhs_stage.pitch())
                            + comptime!(depth * 16)
                            + (lane / 16) * 8
                    };
                    let from = (base_lhs + at) / lhs_lanes;
                    let slice = &staged_lhs[from..from + comptime!(8 / lhs_lanes)];
                    let loaded = def.load_matrix::<_, NA>(
                        slice,
                        MatrixIdent::A,
                        4usize,
                        comptime!(plan.lhs_by_columns),
                    );
                    #[unroll]
                    for r in 0..4usize {
                        left[i * 4 + r] = loaded[r];
                    }
                }
                #[unroll]
                for j in 0..comptime!(n_frags / 2) {
                    let column = plane_column + comptime!(j * 16);
                    let term = comptime!(depth * 16) + ((lane / 8) % 2) * 8;
                    let at = if comptime!(plan.rhs_by_columns) {
                        (column + (lane / 16) * 8 + lane % 8) * comptime!(rhs_stage.pitch()) + term
                    } else {
                        (term + lane % 8) * comptime!(rhs_stage.pitch()) + column + (lane / 16) * 8
                    };
                    let from = (base_rhs + at) / rhs_lanes;
                    let slice = &staged_rhs[from..from + comptime!(8 / rhs_lanes)];
                    let loaded = def.load_matrix::<_, NB>(
                        slice,
                        MatrixIdent::B,
                        4usize,
                        comptime!(!plan.rhs_by_columns),
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
                            let mut sum = Array::<Vector<f32, NC>>::new(2usize);
                            sum[0] = sums[at];
                            sum[1] = sums[at + 1];
                            let sum = def.execute(&rows, &right, &sum);
                            sums[at] = sum[0];
                            sums[at + 1] = sum[1];
                        }
                    }
                }
            }
        }
        if step < steps {
            put::<S, L, NL>(&mut staged_lhs, &held_lhs, step % 2, lhs_stage, lhs_share, threads);
            put::<S, R, NR>(&mut staged_rhs, &held_rhs, step % 2, rhs_stage, rhs_share, threads);
        }
        sync_cube();
    }

    // Through shared memory, so that neighbouring threads write neighbouring numbers, sixteen bytes each.
    let pitch = comptime!(plan.out().pitch());
    let mut staged = Shared::<[Vector<f32, Const<2>>]>::new_aligned_slice(
        comptime!(plan.out().len() / 2),
        16usize,
    );
    #[unroll]
    for i in 0..m_frags {
        #[unroll]
        for half in 0..2usize {
            let row = plane_row + comptime!(i * 16 + half * 8) + lane / 4;
            #[unroll]
            for j in 0..n_frags {
                let column = plane_column + comptime!(j * 8) + (lane % 4) * 2;
                let sum = sums[comptime!((i * n_frags + j) * 2 + half)];
                let mut pair = Vector::<f32, Const<2>>::empty();
                pair.insert(0usize, sum.extract(0usize));
                pair.insert(1usize, sum.extract(1usize));
                staged[(row * pitch + column) / 2] = pair;
            }
        }
    }
    sync_cube();
    let staged = staged.with_vector_size::<NO>();
    let base = CUBE_POS_Z as usize * sizes.out_part as usize;
    let per_row = comptime!(plan.tile[1] / out_lanes);
    let count = comptime!(plan.tile[0] * per_row);
    #[unroll]
    for i in 0..comptime!(count.div_ceil(threads)) {
        let at = UNIT_POS as usize + comptime!(i * threads);
        let (y, x) = (at / per_row, (at % per_row) * out_lanes);
        let (row, column) = (first_row + y, first_column + x);
        if at < count && row < m && column < n {
            let mut value = staged[(y * pitch + x) / out_lanes];
            if comptime!(plan.has_bias) {
                let mut offset = Vector::<f32, NO>::empty();
                #[unroll]
                for o in 0..out_lanes {
                    offset.insert(o, bias[column + o]);
                }
                value += offset;
            }
            let to = base + row * sizes.out_pitch as usize + column / out_lanes;
            if comptime!(plan.adds) {
                value += Vector::cast_from(out[to]);
            }
            out[to] = Vector::cast_from(value);
        }
    }
}
