//! A product that holds a few terms at a time in shared memory: for long sums.
//!
//! Both matrices pass through a ring of stages: while one stage is multiplied, the next ones are
//! copied.

use cubecl::prelude::*;

use super::copies::{commit_copies, copy_lhs, copy_rhs, wait_copies};
use super::plan::{Extents, MatmulPlan};
use super::tile::{Corner, Stages, accumulate, begins, fetch_addends, stages, write, zeros};

/// `out [m, n] = lhs [m, k] · rhs [k, n] + bias`, or added to `out`.
///
/// Cubes are `(column of tiles, row of tiles, part of the sum)`; the parts of one product follow
/// those of another.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(crate) fn pipelined<S: Float, O: Float, NL: Size, NR: Size, NO: Size>(
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
    let copies = comptime!(plan.copies(lhs_lanes) && plan.copies(rhs_lanes));
    let depth = comptime!(plan.depth);
    let ahead = comptime!(plan.stages - 1);
    let first_row = CUBE_POS_Y as usize * comptime!(plan.tile[0]);
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);
    let (which, part) = (CUBE_POS_Z / sizes.parts, CUBE_POS_Z % sizes.parts);
    let begin = (part * sizes.part) as usize;
    let lhs_first = (which * sizes.lhs_batch_stride) as usize;
    let rhs_first = (which * sizes.rhs_batch_stride) as usize;
    let end = min(begin + sizes.part as usize, sizes.k as usize);

    let mut stages = stages::<S, NL, NR>(comptime!(plan.stages), plan);
    let mut sums = zeros(plan);
    let steps = (end - begin + comptime!(depth - 1)) / depth;
    #[unroll]
    for step in 0..ahead {
        copy_both::<S, NL, NR>(
            &mut stages,
            lhs,
            rhs,
            lhs_first,
            rhs_first,
            step,
            first_row,
            first_column,
            begin + comptime!(step * depth),
            end,
            &sizes,
            copies,
            plan,
        );
    }
    for step in 0..steps {
        wait_copies(comptime!(ahead - 1), copies);
        // The barrier also ends all reads of the previous stage, which is refilled.
        sync_cube();
        let next = step + ahead;
        copy_both::<S, NL, NR>(
            &mut stages,
            lhs,
            rhs,
            lhs_first,
            rhs_first,
            next % comptime!(plan.stages),
            first_row,
            first_column,
            begin + next * depth,
            end,
            &sizes,
            copies,
            plan,
        );
        let stage = step % comptime!(plan.stages);
        let (from_lhs, from_rhs) = begins::<NL, NR>(stage, plan);
        accumulate::<S, NL, NR>(&mut sums, &stages.lhs, &stages.rhs, from_lhs, from_rhs, plan);
    }
    let base = (which * sizes.out_batch_stride + part * sizes.out_part_stride) as usize;
    let corner = Corner { base, row: first_row, column: first_column };
    let addends = fetch_addends::<O, NO>(out, &corner, &sizes, plan);
    write::<O, NO>(&sums, &addends, &mut stages.out, bias, out, &corner, &sizes, plan);
}

/// Copies the terms from `k` on of both matrices into a stage, with zeros from `end` on, as one
/// group.
#[cube]
#[expect(clippy::too_many_arguments, reason = "two matrices and their places")]
fn copy_both<S: Float, NL: Size, NR: Size>(
    stages: &mut Stages<S, NL, NR>,
    lhs: &[Vector<S, NL>],
    rhs: &[Vector<S, NR>],
    lhs_first: usize,
    rhs_first: usize,
    stage: usize,
    row: usize,
    column: usize,
    k: usize,
    end: usize,
    sizes: &Extents,
    #[comptime] copies: bool,
    #[comptime] plan: MatmulPlan,
) {
    let (left, right) = begins::<NL, NR>(stage, plan);
    copy_lhs::<S, NL>(&mut stages.lhs, left, lhs, lhs_first, row, k, end, sizes, copies, plan);
    copy_rhs::<S, NR>(&mut stages.rhs, right, rhs, rhs_first, column, k, end, sizes, copies, plan);
    commit_copies(copies);
}
