//! How channels are cut for the native scan: blocks of eight lanes, strips of eight blocks.

use crate::native::lanes::LANES;

/// Blocks of a strip, the unit of parallel work: few enough that many threads share a batch
/// element, enough that the strip's gradients of B and C (`[L, N]` each) are summed before they
/// leave the core.
const BLOCKS: usize = 8;

/// Sizes of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) len: usize,
    pub(crate) d_inner: usize,
    pub(crate) d_state: usize,
    pub(crate) groups: usize,
}

/// Consecutive channels of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strip {
    pub(crate) group: usize,
    pub(crate) first: usize,
    pub(crate) channels: usize,
}

impl Sizes {
    /// The strips, by channel. They depend on the sizes alone, so sums over them do not depend on
    /// the number of threads.
    pub(crate) fn strips(&self) -> Vec<Strip> {
        let per_group = self.d_inner / self.groups;
        (0..self.groups)
            .flat_map(|group| {
                (0..per_group).step_by(BLOCKS * LANES).map(move |start| Strip {
                    group,
                    first: group * per_group + start,
                    channels: (per_group - start).min(BLOCKS * LANES),
                })
            })
            .collect()
    }

    /// Where the `[N]` row of B or C for `token` of `batch` starts in `[B, L, G, N]`.
    pub(crate) fn row(&self, batch: usize, token: usize, group: usize) -> usize {
        ((batch * self.len + token) * self.groups + group) * self.d_state
    }
}

impl Strip {
    /// The strip's blocks, as (first channel, channels ≤ 8).
    pub(crate) fn blocks(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.channels)
            .step_by(LANES)
            .map(move |start| (self.first + start, (self.channels - start).min(LANES)))
    }
}
