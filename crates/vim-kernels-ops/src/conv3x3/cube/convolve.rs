//! The convolution, and the gradient of its input, as a product through a ring of stages in shared
//! memory, as [`crate::matmul::cube`] has them.

use cubecl::prelude::*;

use super::super::TAPS;
use super::pixels::{ImageSize, Pixels, copy_shifted, locate};
use crate::matmul::cube::copies::{commit_copies, copy_rhs, wait_copies};
use crate::matmul::cube::plan::{Extents, MatmulPlan};
use crate::matmul::cube::tile::{
    Corner, Stages, accumulate, begins, fetch_addends, stages, write, zeros,
};

/// `out [m, n] = Σ_tap x[pixel at tap, k]·weight[tap][k, n] + bias`.
///
/// `weight` is `[9, k, n]` by rows; or, with `mirrored`, `[9, n, k]` whose taps are in reverse: the
/// gradient of x. Cubes are `(column of tiles, row of tiles)`; `m`, `n` and `k` are pixels, output
/// and input channels, and the right matrix's batch stride is that of a tap.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "three matrices and their types")]
pub(super) fn convolve<S: Float, O: Float, NL: Size, NR: Size, NO: Size>(
    x: &[Vector<S, NL>],
    weight: &[Vector<S, NR>],
    bias: &[f32],
    out: &mut [Vector<O, NO>],
    sizes: Extents,
    size: ImageSize,
    #[comptime] mirrored: bool,
    #[comptime] plan: MatmulPlan,
    #[define(S)] _stage_type: ElemType,
    #[define(O)] _out_type: ElemType,
) {
    let (lhs_lanes, rhs_lanes) = (NL::value().comptime(), NR::value().comptime());
    let copies = comptime!(plan.copies(lhs_lanes) && plan.copies(rhs_lanes));
    let ahead = comptime!(plan.stages - 1);
    let first_row = CUBE_POS_Y as usize * comptime!(plan.tile[0]);
    let first_column = CUBE_POS_X as usize * comptime!(plan.tile[1]);

    let mut stages = stages::<S, NL, NR>(comptime!(plan.stages), plan);
    let mut sums = zeros(plan);
    let (stage, threads) = (comptime!(plan.lhs()), comptime!(plan.threads()));
    let pixels = locate::<NL>(first_row as u32, &size, stage, threads);
    // A stage has terms of one tap.
    let blocks = (sizes.k + comptime!(plan.depth as u32 - 1)) / comptime!(plan.depth as u32);
    let steps = blocks * comptime!(TAPS as u32);
    #[unroll]
    for step in 0..comptime!(ahead as u32) {
        copy_step::<S, NL, NR>(
            &mut stages,
            x,
            weight,
            &pixels,
            step,
            blocks,
            first_column,
            &sizes,
            &size,
            mirrored,
            copies,
            plan,
        );
    }
    for step in 0..steps {
        wait_copies(comptime!(ahead - 1), copies);
        // The barrier also ends all reads of the previous stage, which is refilled.
        sync_cube();
        copy_step::<S, NL, NR>(
            &mut stages,
            x,
            weight,
            &pixels,
            step + comptime!(ahead as u32),
            blocks,
            first_column,
            &sizes,
            &size,
            mirrored,
            copies,
            plan,
        );
        let stage = (step % comptime!(plan.stages as u32)) as usize;
        let (from_lhs, from_rhs) = begins::<NL, NR>(stage, plan);
        accumulate::<S, NL, NR>(&mut sums, &stages.lhs, &stages.rhs, from_lhs, from_rhs, plan);
    }
    let corner = Corner { base: 0usize, row: first_row, column: first_column };
    let addends = fetch_addends::<O, NO>(out, &corner, &sizes, plan);
    write::<O, NO>(&sums, &addends, &mut stages.out, bias, out, &corner, &sizes, plan);
}

/// Copies the terms of a step into its stage, as one group; zeros after the last step.
#[cube]
#[expect(clippy::too_many_arguments, reason = "two matrices and their places")]
fn copy_step<S: Float, NL: Size, NR: Size>(
    stages: &mut Stages<S, NL, NR>,
    x: &[Vector<S, NL>],
    weight: &[Vector<S, NR>],
    pixels: &Pixels,
    step: u32,
    blocks: u32,
    first_column: usize,
    sizes: &Extents,
    size: &ImageSize,
    #[comptime] mirrored: bool,
    #[comptime] copies: bool,
    #[comptime] plan: MatmulPlan,
) {
    let stage = (step % comptime!(plan.stages as u32)) as usize;
    let (lhs_base, rhs_base) = begins::<NL, NR>(stage, plan);
    let last = comptime!(TAPS as u32 - 1);
    let terms = select(step < blocks * comptime!(TAPS as u32), sizes.k, 0u32) as usize;
    let tap = min(step / blocks, last);
    let k = (step % blocks) as usize * comptime!(plan.depth);
    let lhs_row_stride = sizes.lhs_row_stride as usize;
    copy_shifted::<S, NL>(
        &mut stages.lhs,
        lhs_base,
        x,
        pixels,
        tap,
        sizes.m,
        k,
        terms,
        lhs_row_stride,
        size,
        comptime!(plan.lhs()),
        comptime!(plan.threads()),
        copies,
    );
    let of_weight = if comptime!(mirrored) { last - tap } else { tap };
    let first = (of_weight * sizes.rhs_batch_stride) as usize;
    copy_rhs::<S, NR>(
        &mut stages.rhs,
        rhs_base,
        weight,
        first,
        first_column,
        k,
        terms,
        sizes,
        copies,
        plan,
    );
    commit_copies(copies);
}
