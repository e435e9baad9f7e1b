//! A product whose right matrix stays: for few terms, as a layer's have.
//!
//! A cube holds all terms of its columns of the right matrix in shared memory, and goes through tiles of rows: while its
//! planes multiply one, its threads already hold the next. Memory is then waited for once a tile, and not once for every
//! few terms.

use cubecl::prelude::*;

use super::plan::{Extents, ProductPlan};
use super::tile::{accumulate, fetch, put, write};

/// Vectors of the right matrix that a thread holds at once while it is brought in.
const HELD: usize = 8;

/// `out [m, n] = lhs [m, k] · rhs [k, n] + bias`, or added to what is in `out`; `k` is at most `plan.depth`.
///
/// Cubes are `(column of tiles, worker)`; a worker takes every so many-th row of tiles, as many as there are workers.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(crate) fn panel<S: Float, L: Float, R: Float, O: Float, NL: Size, NR: Size, NO: Size>(
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
    let lhs_lanes = NL::value().comptime();
    let rhs_lanes = NR::value().comptime();
    let lhs_stage = comptime!(plan.lhs());
    let rhs_stage = comptime!(plan.rhs());
    let lhs_share = comptime!(lhs_stage.share(lhs_lanes, plan.threads()));
    let rhs_share = comptime!(rhs_stage.share(rhs_lanes, plan.threads()));
    let count = comptime!(plan.fragments() * 2);
    let (m, n, k) = (sizes.m as usize, sizes.n as usize, sizes.k as usize);
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);

    let mut staged_lhs = Shared::<[Vector<S, NL>]>::new_aligned_slice(
        comptime!(lhs_stage.len() / lhs_lanes),
        16usize,
    );
    let mut staged_rhs = Shared::<[Vector<S, NR>]>::new_aligned_slice(
        comptime!(rhs_stage.len() / rhs_lanes),
        16usize,
    );
    let mut staged_out = Shared::<[Vector<f32, Const<2>>]>::new_aligned_slice(
        comptime!(plan.out().len() / 2),
        16usize,
    );
    #[unroll]
    for batch in 0..comptime!(rhs_share.count.div_ceil(HELD)) {
        let part = comptime!(rhs_share.part(batch * HELD, HELD));
        let mut held = Array::<Vector<R, NR>>::new(comptime!(part.count));
        let pitch = sizes.rhs_pitch as usize;
        if comptime!(plan.form.rhs_by_columns) {
            fetch::<R, NR>(&mut held, rhs, pitch, first_column, n, 0usize, k, rhs_stage, part);
        } else {
            fetch::<R, NR>(&mut held, rhs, pitch, 0usize, k, first_column, n, rhs_stage, part);
        }
        put::<S, R, NR>(&mut staged_rhs, &held, 0usize, rhs_stage, part);
    }

    let mut sums = Array::<Vector<f32, Const<2>>>::new(count);
    let mut held = Array::<Vector<L, NL>>::new(comptime!(lhs_share.count));
    let pitch = sizes.lhs_pitch as usize;
    let mut row = CUBE_POS_Y as usize * comptime!(plan.tile[0]);
    let stride = CUBE_COUNT_Y as usize * comptime!(plan.tile[0]);
    fetch::<L, NL>(&mut held, lhs, pitch, row, m, 0usize, k, lhs_stage, lhs_share);
    while row < m {
        put::<S, L, NL>(&mut staged_lhs, &held, 0usize, lhs_stage, lhs_share);
        sync_cube();
        // Beyond the last row nothing is read.
        fetch::<L, NL>(&mut held, lhs, pitch, row + stride, m, 0usize, k, lhs_stage, lhs_share);
        #[unroll]
        for i in 0..count {
            sums[i] = Vector::new(0.0f32);
        }
        for step in 0..comptime!(plan.depth / 16) {
            accumulate::<S, NL, NR>(
                &mut sums,
                &staged_lhs,
                &staged_rhs,
                0usize,
                0usize,
                step * 16,
                plan,
            );
        }
        write::<O, NO>(&sums, &mut staged_out, bias, out, 0usize, row, first_column, &sizes, plan);
        row += stride;
    }
}
