//! The scan with a full A on a GPU.
//!
//! A channel of a batch element is a team of units (threads), one per state: unit n holds row n of
//! the channel's A and state n in registers, and walks the tokens in order. The team solves each
//! token's system together ([`solve`]); a block holds as many teams as fit into [`UNITS`] units. A
//! team is a power of two of units, so it never spans two planes (warps), and where the device has
//! planes of 32 the units of a team synchronize with each other only, not with the block.

mod backward;
mod coords;
mod forward;
mod launch;
mod solve;
mod sum;

use super::{CHUNK, FullScanSpec};

/// Units of a block. With N = 32 its shared memory is 31.5 KiB in the backward pass; every device
/// has 32 KiB.
const UNITS: usize = 128;

/// Compile-time configuration of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// N.
    n: usize,
    /// Units of a team: N rounded up to a power of two.
    team: usize,
    /// Whether the units of a plane can wait for each other.
    planes: bool,
    spec: FullScanSpec,
    /// Whether the forward pass saves the states at the starts of chunks.
    save: bool,
}

impl Plan {
    fn new(n: usize, planes: bool, spec: FullScanSpec, save: bool) -> Self {
        Self { n, team: n.next_power_of_two(), planes, spec, save }
    }

    /// Channels of a block.
    fn teams(&self) -> usize {
        UNITS / self.team
    }

    /// Floats between the rows of a system in shared memory: the row and its right side, and one
    /// more where that is even, so that a column's entries lie in different banks.
    fn stride(&self) -> usize {
        (self.n + 1) | 1
    }

    /// Tokens between saved states.
    fn chunk(&self) -> usize {
        CHUNK
    }
}
