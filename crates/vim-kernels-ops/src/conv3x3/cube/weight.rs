//! The gradient of the weight as a product through a ring of stages in shared memory.

use cubecl::prelude::*;

use super::pixels::{ImageSize, Pixels, advance, copies_per_unit, copy_shifted, locate};
use crate::matmul::cube::copies::{commit_copies, copy_rhs, wait_copies};
use crate::matmul::cube::plan::{Extents, MatmulPlan};
use crate::matmul::cube::tile::{
    Corner, Stages, accumulate, begins, fetch_addends, stages, write, zeros,
};

/// `out [9, m, n] = Σ_pixel x[pixel at tap, m]·grad[pixel, n]`, a part of the sum to a result.
///
/// Cubes are `(column of tiles, rows of tiles of a tap after those of another, part)`; `m`, `n` and
/// `k` are input channels, output channels and pixels, and the result's batch stride is that of a
/// tap.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(super) fn weight_gradient<S: Float, O: Float, NL: Size, NR: Size, NO: Size>(
    x: &[Vector<S, NL>],
    grad: &[Vector<S, NR>],
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    sizes: Extents,
    size: ImageSize,
    #[comptime] plan: MatmulPlan,
    #[define(S)] _stage_type: ElemType,
    #[define(O)] _out_type: ElemType,
) {
    let (lhs_lanes, rhs_lanes) = (NL::value().comptime(), NR::value().comptime());
    let copies = comptime!(plan.copies(lhs_lanes) && plan.copies(rhs_lanes));
    let depth = comptime!(plan.depth as u32);
    let ahead = comptime!(plan.stages - 1);
    let (stage, threads) = (comptime!(plan.lhs()), comptime!(plan.threads()));
    let per_unit = comptime!(copies_per_unit(stage, lhs_lanes, threads));
    let tiles = (sizes.m + comptime!(plan.tile[0] as u32 - 1)) / comptime!(plan.tile[0] as u32);
    let tap = CUBE_POS_Y / tiles;
    let first_row = (CUBE_POS_Y % tiles) as usize * comptime!(plan.tile[0]);
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);
    let begin = CUBE_POS_Z * sizes.part;
    let end = min(begin + sizes.part, sizes.k);

    let mut stages = stages::<S, NL, NR>(comptime!(plan.stages), plan);
    let mut sums = zeros(plan);
    let (right, down) = (depth % size.width, depth / size.width % size.height);
    let mut pixels = locate::<NL>(begin, &size, stage, threads);
    let steps = (end - begin + comptime!(depth - 1)) / depth;
    #[unroll]
    for step in 0..ahead {
        copy_pixels::<S, NL, NR>(
            &mut stages,
            x,
            grad,
            &pixels,
            tap,
            step,
            begin + comptime!(step as u32 * depth),
            end,
            first_row,
            first_column,
            &sizes,
            &size,
            copies,
            plan,
        );
        advance(&mut pixels, depth, down, right, &size, per_unit);
    }
    for step in 0..steps {
        wait_copies(comptime!(ahead - 1), copies);
        // The barrier also ends all reads of the previous stage, which is refilled.
        sync_cube();
        let next = step + comptime!(ahead as u32);
        copy_pixels::<S, NL, NR>(
            &mut stages,
            x,
            grad,
            &pixels,
            tap,
            (next % comptime!(plan.stages as u32)) as usize,
            begin + next * depth,
            end,
            first_row,
            first_column,
            &sizes,
            &size,
            copies,
            plan,
        );
        advance(&mut pixels, depth, down, right, &size, per_unit);
        let stage = (step % comptime!(plan.stages as u32)) as usize;
        let (from_lhs, from_rhs) = begins::<NL, NR>(stage, plan);
        accumulate::<S, NL, NR>(&mut sums, &stages.lhs, &stages.rhs, from_lhs, from_rhs, plan);
    }
    let base = (tap * sizes.out_batch_stride + CUBE_POS_Z * sizes.out_part_stride) as usize;
    let corner = Corner { base, row: first_row, column: first_column };
    let addends = fetch_addends::<O, NO>(out, &corner, &sizes, plan);
    write::<O, NO>(&sums, &addends, &mut stages.out, bias, out, &corner, &sizes, plan);
}

/// Copies the channels of a stage's pixels, of x at `tap` and of the gradient from pixel `k` on, as
/// one group; zeros from `end` on.
#[cube]
#[expect(clippy::too_many_arguments, reason = "two matrices and their places")]
fn copy_pixels<S: Float, NL: Size, NR: Size>(
    stages: &mut Stages<S, NL, NR>,
    x: &[Vector<S, NL>],
    grad: &[Vector<S, NR>],
    pixels: &Pixels,
    tap: u32,
    stage: usize,
    k: u32,
    end: u32,
    first_row: usize,
    first_column: usize,
    sizes: &Extents,
    size: &ImageSize,
    #[comptime] copies: bool,
    #[comptime] plan: MatmulPlan,
) {
    let (lhs_base, rhs_base) = begins::<NL, NR>(stage, plan);
    let (channels, lhs_row_stride) = (sizes.m as usize, sizes.lhs_row_stride as usize);
    copy_shifted::<S, NL>(
        &mut stages.lhs,
        lhs_base,
        x,
        pixels,
        tap,
        end,
        first_row,
        channels,
        lhs_row_stride,
        size,
        comptime!(plan.lhs()),
        comptime!(plan.threads()),
        copies,
    );
    copy_rhs::<S, NR>(
        &mut stages.rhs,
        rhs_base,
        grad,
        0usize,
        first_column,
        k as usize,
        end as usize,
        sizes,
        copies,
        plan,
    );
    commit_copies(copies);
}
