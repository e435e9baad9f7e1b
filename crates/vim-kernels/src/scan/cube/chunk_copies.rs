//! Asynchronous copies of a chunk's tokens into shared memory while the previous chunk is computed.
//!
//! Under register pressure `ptxas` sinks loads to their use and stalls at each chunk; `cp.async`
//! needs no registers. At sixteen bytes at a time, eight channels of a token in bf16, it also takes
//! an eighth of the loads and of their addresses.

use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::coords::{Rows, Sizes, UnitCoords, token_at};
use super::plan::{CHUNK, PLANE, ScanPlan};

/// Elements of two chunks of a tensor's channels, `[2, CHUNK, units]`: the current one and the one
/// in flight. A plane copies and reads its own channels only. One element where nothing is copied.
pub(crate) fn chunk_buffer_len(used: bool, plan: ScanPlan) -> usize {
    if used && plan.copy_width > 0 { 2 * CHUNK * plan.units } else { 1 }
}

/// Begins to copy the chunk from step `first` on of batch element `element` of a tensor; past the
/// segment its last token is repeated, and channels beyond the group's last are zero.
#[cube]
pub(crate) fn copy_chunk_async<F: Float>(
    to: &mut Shared<[F]>,
    from: &[F],
    element: usize,
    rows: &Rows,
    first: usize,
    pos: &UnitCoords,
    sizes: &Sizes,
    #[comptime] plan: ScanPlan,
) {
    let width = comptime!(plan.copy_width);
    let per_row = comptime!(PLANE / width);
    let lane = UNIT_POS_X as usize % PLANE;
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let buffer = (first / CHUNK) % 2;
    #[unroll]
    for k in 0..comptime!(CHUNK * per_row / PLANE) {
        let i = lane + comptime!(k * PLANE);
        let (j, part) = (i / per_row, (i % per_row) * width);
        let token = token_at(min(first + j, pos.end - 1), pos, sizes, plan);
        let within = pos.within - lane + part;
        let source = element * rows.batch as usize
            + pos.group * per_group
            + within
            + token * rows.token as usize;
        let place = (buffer * CHUNK + j) * plan.units + UNIT_POS_X as usize - lane + part;
        let count = select(within < per_group, width, 0usize);
        copy_async_checked(
            &from[source..source + count],
            &mut to[place..place + width],
            comptime!(width as u32),
        );
    }
}

/// Commits the copies of a chunk as one group.
#[cube]
pub(crate) fn commit_chunk_copy() {
    gpu_asm!("cp.async.commit_group;");
}

/// Waits for the chunk in flight; the plane's previous chunk may be overwritten afterwards.
#[cube]
pub(crate) fn wait_chunk() {
    gpu_asm!("cp.async.wait_group 0;");
    sync_plane();
}

/// The unit's channel of the `j`-th token of the chunk that begins at `first`.
#[cube]
pub(crate) fn copied_element<F: Float>(
    from: &Shared<[F]>,
    first: usize,
    #[comptime] j: usize,
    #[comptime] plan: ScanPlan,
) -> F {
    let buffer = (first / CHUNK) % 2;
    from[buffer * comptime!(CHUNK * plan.units) + UNIT_POS_X as usize + comptime!(j * plan.units)]
}
