//! The arguments of the native scan, and how channels are cut: blocks of sixteen lanes, strips of
//! four blocks.

use crate::scan::ScanSpec;
use vim_kernels_core::native::lanes::{LANES, Lanes};

/// Tokens between saved states.
pub(crate) const CHUNK: usize = 16;

/// The arguments of a scan as contiguous slices; shapes as in [`crate::selective_scan()`].
#[derive(Clone, Copy)]
pub struct ScanInputs<'a> {
    pub sizes: Sizes,
    pub spec: ScanSpec,
    pub u: &'a [f32],
    pub delta: &'a [f32],
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub c: &'a [f32],
    pub d: Option<&'a [f32]>,
    pub z: Option<&'a [f32]>,
    pub delta_bias: Option<&'a [f32]>,
}

impl ScanInputs<'_> {
    /// The `width` channels from `first` on, of a token, in a `[B, L, D]`.
    ///
    /// A method, not a closure: closures are not always inlined, and then miss the wide vectors.
    #[inline(always)]
    pub(super) fn columns<const FMA: bool>(
        &self,
        of: &[f32],
        batch: usize,
        token: usize,
        first: usize,
        width: usize,
    ) -> Lanes<FMA> {
        let at = (batch * self.sizes.len + token) * self.sizes.d_inner + first;
        Lanes::load(&of[at..at + width])
    }
}

/// Floats that a strip saves: for each block, sweep, chunk and state, its lanes.
pub(crate) fn chunk_states_len(sizes: Sizes, spec: ScanSpec, strip: Strip) -> usize {
    strip.blocks().count() * spec.sweeps() * sizes.len.div_ceil(CHUNK) * sizes.d_state * LANES
}

/// Blocks of a strip, the unit of parallel work: few enough that many threads share a batch
/// element, enough that the strip's gradients of B and C (`[L, N]` each) are summed before they
/// leave the core.
const BLOCKS: usize = 4;

/// Sizes of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub batch: usize,
    pub len: usize,
    pub d_inner: usize,
    pub d_state: usize,
    pub groups: usize,
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
    /// The strip's blocks, as (first channel, channels ≤ 16).
    pub(crate) fn blocks(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.channels)
            .step_by(LANES)
            .map(move |start| (self.first + start, (self.channels - start).min(LANES)))
    }
}
