//! A product of matrices on tensor cores, bf16 in and sums in f32; or without them, in f32.
//!
//! A cube makes a tile of the result. Both matrices pass through shared memory in steps of [`ProductPlan::depth`] terms, in two
//! buffers: while the planes multiply one, its threads already hold what goes into the other. Whatever the matrices'
//! types, for tensor cores they are rounded to bf16 on the way.

use cubecl::prelude::*;

use super::plan::{Extents, ProductPlan};
use super::tile::{accumulate, fetch, put, write};

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
    let lhs_lanes = NL::value().comptime();
    let rhs_lanes = NR::value().comptime();
    let lhs_stage = comptime!(plan.lhs());
    let rhs_stage = comptime!(plan.rhs());
    let lhs_share = comptime!(lhs_stage.share(lhs_lanes, plan.threads()));
    let rhs_share = comptime!(rhs_stage.share(rhs_lanes, plan.threads()));
    let count = comptime!(plan.fragments() * 2);
    let depth = comptime!(plan.depth);

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
    let mut held_lhs = Array::<Vector<L, NL>>::new(comptime!(lhs_share.count));
    let mut held_rhs = Array::<Vector<R, NR>>::new(comptime!(rhs_share.count));

    let mut sums = Array::<Vector<f32, Const<2>>>::new(count);
    #[unroll]
    for i in 0..count {
        sums[i] = Vector::new(0.0f32);
    }

    let steps = (end - begin + comptime!(depth - 1)) / depth;
    for step in 0..steps + 1 {
        // What this step multiplies went into its buffer a step ago; the first only fills.
        if step < steps {
            let k = begin + step * depth;
            if comptime!(plan.form.lhs_by_columns) {
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
                );
            }
            if comptime!(plan.form.rhs_by_columns) {
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
                );
            }
        }
        if step > 0 {
            let buffer = (step - 1) % 2;
            let base_lhs = buffer * comptime!(lhs_stage.len());
            let base_rhs = buffer * comptime!(rhs_stage.len());
            #[unroll]
            for sixteen in 0..comptime!(depth / 16) {
                accumulate::<S, NL, NR>(
                    &mut sums,
                    &staged_lhs,
                    &staged_rhs,
                    base_lhs,
                    base_rhs,
                    sixteen * 16,
                    plan,
                );
            }
        }
        if step < steps {
            let base_lhs = (step % 2) * comptime!(lhs_stage.len() / lhs_lanes);
            let base_rhs = (step % 2) * comptime!(rhs_stage.len() / rhs_lanes);
            put::<S, L, NL>(&mut staged_lhs, &held_lhs, base_lhs, lhs_stage, lhs_share);
            put::<S, R, NR>(&mut staged_rhs, &held_rhs, base_rhs, rhs_stage, rhs_share);
        }
        sync_cube();
    }
    let mut staged_out = Shared::<[Vector<f32, Const<2>>]>::new_aligned_slice(
        comptime!(plan.out().len() / 2),
        16usize,
    );
    let base = CUBE_POS_Z as usize * sizes.out_part as usize;
    write::<O, NO>(&sums, &mut staged_out, bias, out, base, first_row, first_column, &sizes, plan);
}
