//! One small linear system, solved by a team of units.

use cubecl::prelude::*;

use super::coords::{UnitCoords, sync_team};
use super::{Plan, UNITS};

/// Columns after which the rows are shortened.
const SEGMENT: usize = 8;

/// [`Ord::min`], by name: in a kernel `min` is the device's.
fn min_of(a: usize, b: usize) -> usize {
    a.min(b)
}

/// Shared memory for the systems of a block.
#[derive(CubeType)]
pub(super) struct Workspace {
    /// The rows that units publish, with right sides: `[UNITS, stride]`.
    rows: Shared<[f32]>,
    /// Each unit's pivot candidate, for even and for odd columns: `[2, UNITS]`.
    keys: Shared<[u32]>,
    /// Solutions, `[UNITS]`.
    x: Shared<[f32]>,
}

#[cube]
pub(super) fn workspace(#[comptime] plan: Plan) -> Workspace {
    Workspace {
        rows: Shared::<[f32]>::new_slice(comptime!(plan.stride() * UNITS)),
        keys: Shared::<[u32]>::new_slice(comptime!(2 * UNITS)),
        x: Shared::<[f32]>::new_slice(UNITS),
    }
}

/// A number that grows with |value| and has its row in its last five bits; 0 for a row that has
/// been a pivot. NaN is larger than all: it becomes the pivot and spreads.
#[cube]
fn key(value: f32, n: usize, free: bool) -> u32 {
    let size = u32::reinterpret(value) & 0x7fff_ffe0u32;
    select(free, size | 0x8000_0000u32 | (n as u32), 0u32)
}

/// Unit n's unknown of the team's system. `row` is row n, N coefficients and the right side; it is
/// overwritten.
///
/// Gauss-Jordan elimination with partial pivoting: for each column, every unit subtracts a multiple
/// of the pivot row from its own. Rows stay with their units, and there is no back substitution.
/// One barrier per column: the row that is read for a column is one that nobody writes then.
///
/// A singular system gives infinities or NaN.
#[cube]
pub(super) fn solve(
    row: &mut Array<f32>,
    work: &mut Workspace,
    place: &UnitCoords,
    #[comptime] plan: Plan,
) -> f32 {
    let size = comptime!(plan.n);
    let stride = comptime!(plan.stride());
    let first = place.unit - place.n;
    let own = place.unit * stride;
    let real = place.n < size;
    let mut free = real;
    // The unknown that this unit's row yields, and the reciprocal of its coefficient.
    let mut unknown = 0u32;
    let mut inverse = 0.0f32;

    #[unroll]
    for j in 0..comptime!(size + 1) {
        work.rows[own + j] = row[j];
    }
    work.keys[place.unit] = key(row[0], place.n, free);
    sync_team(plan);

    // Registers need constant indices, so the loop over a row is unrolled; the loop over columns is
    // not, or compiling would take minutes. A segment of columns works on the row from its start
    // on.
    let mut start = comptime!(0usize);
    #[unroll]
    for _ in 0..comptime!(size.div_ceil(SEGMENT)) {
        for k in start..comptime!(min_of(start + SEGMENT, size)) {
            let now = (k % 2) * UNITS + first;
            let mut best = 0u32;
            #[unroll]
            for m in 0..size {
                best = max(best, work.keys[now + m]);
            }
            let pivot = (best & 31u32) as usize;
            let mine = pivot == place.n;
            let top = (first + pivot) * stride;
            let scale = 1.0f32 / work.rows[top + k];
            let factor = select(mine, 0.0f32, work.rows[own + k] * scale);
            free = free && !mine;
            unknown = select(mine, k as u32, unknown);
            inverse = select(mine, scale, inverse);
            #[unroll]
            for j in start..comptime!(size + 1) {
                row[j] -= factor * work.rows[top + j];
            }
            if !mine {
                #[unroll]
                for j in start..comptime!(size + 1) {
                    work.rows[own + j] = row[j];
                }
            }
            let next = ((k + 1) % 2) * UNITS;
            work.keys[next + place.unit] = key(work.rows[own + k + 1], place.n, free);
            sync_team(plan);
        }
        comptime!(start += SEGMENT);
    }
    if real {
        work.x[first + unknown as usize] = row[size] * inverse;
    }
    sync_team(plan);
    select(real, work.x[place.unit], 0.0f32)
}
