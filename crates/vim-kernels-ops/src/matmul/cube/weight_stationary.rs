//! A product with a stationary right matrix: for few terms, as in a model's layers.
//!
//! A cube holds all terms of its columns of the right matrix in shared memory and iterates over
//! tiles of rows: while its planes multiply one tile, the next is copied. So it waits for memory
//! once per tile, not once per few terms.

use cubecl::prelude::*;

use super::copies::{commit_copies, copy_lhs, copy_rhs, wait_copies};
use super::plan::{Extents, MatmulPlan};
use super::tile::{Corner, accumulate, fetch_addends, stages, write};

/// `out [m, n] = lhs [m, k] · rhs [k, n] + bias`, or added to `out`; `k` is at most `plan.depth`.
///
/// Cubes are `(column of tiles, worker, product)`; workers take the rows of tiles in turn.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(crate) fn weight_stationary<S: Float, O: Float, NL: Size, NR: Size, NO: Size>(
    lhs: &[Vector<S, NL>],
    rhs: &[Vector<S, NR>],
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    sizes: Extents,
    #[comptime] plan: MatmulPlan,
    #[define(S)] _stage_type: ElemType,
    #[define(O)] _out_type: ElemType,
) {
    let (lhs_lanes, rhs_lanes) = (NL::value().comptime(), NR::value().comptime());
    let lhs_len = comptime!(plan.lhs().len() / lhs_lanes);
    let copies = comptime!(plan.copies(lhs_lanes));
    let rhs_copies = comptime!(plan.copies(rhs_lanes));
    let count = comptime!(plan.fragments());
    let (m, k) = (sizes.m as usize, sizes.k as usize);
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);
    let lhs_first = (CUBE_POS_Z * sizes.lhs_batch_stride) as usize;
    let rhs_first = (CUBE_POS_Z * sizes.rhs_batch_stride) as usize;
    let base = (CUBE_POS_Z * sizes.out_batch_stride) as usize;

    let mut stages = stages::<S, NL, NR>(1usize, plan);
    let mut row = CUBE_POS_Y as usize * comptime!(plan.tile[0]);
    let stride = CUBE_COUNT_Y as usize * comptime!(plan.tile[0]);
    copy_lhs::<S, NL>(
        &mut stages.lhs,
        0usize,
        lhs,
        lhs_first,
        row,
        0usize,
        k,
        &sizes,
        copies,
        plan,
    );
    copy_rhs::<S, NR>(
        &mut stages.rhs,
        0usize,
        rhs,
        rhs_first,
        first_column,
        0usize,
        k,
        &sizes,
        rhs_copies,
        plan,
    );
    commit_copies(comptime!(copies || rhs_copies));

    let mut sums = Array::<Vector<f32, Const<4>>>::new(count);
    let mut here = 0usize.runtime();
    while row < m {
        wait_copies(0usize, comptime!(copies || rhs_copies));
        // The barrier also ends all reads of the other stage.
        sync_cube();
        let other = lhs_len - here;
        if row + stride < m {
            let next = row + stride;
            copy_lhs::<S, NL>(
                &mut stages.lhs,
                other,
                lhs,
                lhs_first,
                next,
                0usize,
                k,
                &sizes,
                copies,
                plan,
            );
            commit_copies(copies);
        }
        let corner = Corner { base, row, column: first_column };
        let addends = fetch_addends::<O, NO>(out, &corner, &sizes, plan);
        #[unroll]
        for i in 0..count {
            sums[i] = Vector::new(0.0f32);
        }
        accumulate::<S, NL, NR>(&mut sums, &stages.lhs, &stages.rhs, here, 0usize, plan);
        write::<O, NO>(&sums, &addends, &mut stages.out, bias, out, &corner, &sizes, plan);
        row += stride;
        here = other;
    }
}
