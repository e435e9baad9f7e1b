//! Copies of matrix windows into shared memory.

use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::plan::{Extents, MatmulPlan, Stage};

/// Copies the terms `k..end` of the left matrix, which begins at vector `first`, in the rows of a
/// tile from `row` on, into shared memory from vector `base` on, with zeros past the last of both.
///
/// With `copies` the copies are asynchronous, and [`wait_copies`] waits for them; otherwise they
/// are complete on return.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a matrix and a place in it")]
pub(super) fn copy_lhs<S: Float, N: Size>(
    to: &mut [Vector<S, N>],
    base: usize,
    from: &[Vector<S, N>],
    first: usize,
    row: usize,
    k: usize,
    end: usize,
    sizes: &Extents,
    #[comptime] copies: bool,
    #[comptime] plan: MatmulPlan,
) {
    let (m, row_stride) = (sizes.m as usize, sizes.lhs_row_stride as usize);
    let (stage, threads) = (comptime!(plan.lhs()), comptime!(plan.threads()));
    if comptime!(plan.form.lhs_by_columns) {
        copy_window::<S, N>(
            to, base, from, first, row_stride, k, end, row, m, stage, threads, copies,
        );
    } else {
        copy_window::<S, N>(
            to, base, from, first, row_stride, row, m, k, end, stage, threads, copies,
        );
    }
}

/// The same of the right matrix, in the columns of a tile from `column` on.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a matrix and a place in it")]
pub(crate) fn copy_rhs<S: Float, N: Size>(
    to: &mut [Vector<S, N>],
    base: usize,
    from: &[Vector<S, N>],
    first: usize,
    column: usize,
    k: usize,
    end: usize,
    sizes: &Extents,
    #[comptime] copies: bool,
    #[comptime] plan: MatmulPlan,
) {
    let (n, row_stride) = (sizes.n as usize, sizes.rhs_row_stride as usize);
    let (stage, threads) = (comptime!(plan.rhs()), comptime!(plan.threads()));
    if comptime!(plan.form.rhs_by_columns) {
        copy_window::<S, N>(
            to, base, from, first, row_stride, column, n, k, end, stage, threads, copies,
        );
    } else {
        copy_window::<S, N>(
            to, base, from, first, row_stride, k, end, column, n, stage, threads, copies,
        );
    }
}

/// Copies a window of the matrix that begins at vector `first` into shared memory, from vector
/// `base` on, with zeros beyond `rows` and `columns`.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a window of a matrix has these sides")]
fn copy_window<S: Float, N: Size>(
    to: &mut [Vector<S, N>],
    base: usize,
    from: &[Vector<S, N>],
    first: usize,
    row_stride: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
    #[comptime] stage: Stage,
    #[comptime] threads: usize,
    #[comptime] copies: bool,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    let stage_row_stride = comptime!(stage.row_stride() / lanes);
    let vectors = comptime!(stage.rows * stage.columns / lanes);
    #[unroll]
    for i in 0..comptime!(vectors.div_ceil(threads)) {
        let at = UNIT_POS as usize + comptime!(i * threads);
        if comptime!((i + 1) * threads <= vectors) || at < vectors {
            let y = row + at / per_row;
            let x = column + (at % per_row) * lanes;
            let source = first + y * row_stride + x / lanes;
            let place = base + (at / per_row) * stage_row_stride + at % per_row;
            let in_bounds = y < rows && x < columns;
            if comptime!(copies) {
                let count = select(in_bounds, 1usize, 0usize);
                copy_async_checked(
                    &from[source..source + count],
                    &mut to[place..place + 1],
                    comptime!(lanes as u32),
                );
            } else {
                let mut value = Vector::<S, N>::new(S::new(0.0f32));
                if in_bounds {
                    value = from[source];
                }
                to[place] = value;
            }
        }
    }
}

/// Commits the copies begun since the last commit as one group.
#[cube]
pub(crate) fn commit_copies(#[comptime] copies: bool) {
    if comptime!(copies) {
        // Without its memory named, an instruction counts as one that writes all of the kernel's
        // buffers.
        gpu_asm!(
            "cp.async.commit_group;",
            options(explicit_mem, reads_address_space shared, writes_address_space shared)
        );
    }
}

/// Waits for all of the thread's groups of copies except the last `ahead`.
#[cube]
pub(crate) fn wait_copies(#[comptime] ahead: usize, #[comptime] copies: bool) {
    if comptime!(copies) {
        gpu_asm!(
            "cp.async.wait_group {ahead};",
            ahead = const ahead,
            options(explicit_mem, reads_address_space shared, writes_address_space shared)
        );
    }
}
