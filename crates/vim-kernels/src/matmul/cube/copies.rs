//! Copies of matrix windows into shared memory.

use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::plan::{Share, Stage};

/// Copies a window of the matrix that begins at vector `first` into shared memory, from vector
/// `base` on, with zeros beyond `rows` and `columns`.
///
/// With `copies` the copies are asynchronous, and [`wait_copies`] waits for them; otherwise they
/// are complete on return.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a window of a matrix has these sides")]
pub(super) fn copy_window<S: Float, N: Size>(
    to: &mut Shared<[Vector<S, N>]>,
    base: usize,
    from: &[Vector<S, N>],
    first: usize,
    row_stride: usize,
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
    #[comptime] stage: Stage,
    #[comptime] share: Share,
    #[comptime] copies: bool,
) {
    let lanes = N::value().comptime();
    let per_row = comptime!(stage.columns / lanes);
    let stage_row_stride = comptime!(stage.row_stride() / lanes);
    let vectors = comptime!(stage.rows * stage.columns / lanes);
    #[unroll]
    for i in 0..comptime!(share.count) {
        let at = UNIT_POS as usize + comptime!(i * share.threads);
        if comptime!((i + 1) * share.threads <= vectors) || at < vectors {
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
pub(super) fn commit_copies(#[comptime] copies: bool) {
    if comptime!(copies) {
        gpu_asm!("cp.async.commit_group;");
    }
}

/// Waits for all of the thread's groups of copies except the last `ahead`.
#[cube]
pub(super) fn wait_copies(#[comptime] ahead: usize, #[comptime] copies: bool) {
    if comptime!(copies) {
        gpu_asm!("cp.async.wait_group {ahead};", ahead = const ahead);
    }
}
