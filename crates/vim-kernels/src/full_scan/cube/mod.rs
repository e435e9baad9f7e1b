//! The scan with a full A on a GPU.
//!
//! A channel of a batch element is a team of units (threads), one to a state: unit n holds row n of
//! the channel's A and state n in registers, and goes through the tokens in order. The team solves
//! each token's system together ([`solve`]); a block holds as many teams as fit into
//! [`UNITS`] units. A team is a power of two of units, so it never spans two planes (warps), and
//! where the device has planes of 32 the units of a team wait for each other only, not for the block.

mod backward;
mod coords;
mod forward;
mod launch;
mod solve;
mod sum;

use super::{CHUNK, FullScanSpec};

/// Units of a block. With N = 32 its shared memory is 31.5 KiB in the backward pass; 32 KiB is what
/// every device has.
const UNITS: usize = 128;

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// N.
    n: usize,
    /// Units of a team: the power of two from N up.
    team: usize,
    /// Whether the units of a plane can wait for each other.
    planes: bool,
    spec: FullScanSpec,
    /// Whether the forward pass keeps the states at the starts of chunks.
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
