//! The arguments of the native scan, and the number of states that it saves.

use super::strip::{Sizes, Strip};
use crate::native::lanes::{LANES, Lanes};
use crate::scan::ScanSpec;

/// Tokens between saved states.
pub(crate) const CHUNK: usize = 16;

/// The arguments of a scan as contiguous slices; shapes as in [`crate::selective_scan()`].
#[derive(Clone, Copy)]
pub(crate) struct ScanInputs<'a> {
    pub(crate) sizes: Sizes,
    pub(crate) spec: ScanSpec,
    pub(crate) u: &'a [f32],
    pub(crate) delta: &'a [f32],
    pub(crate) a: &'a [f32],
    pub(crate) b: &'a [f32],
    pub(crate) c: &'a [f32],
    pub(crate) d: Option<&'a [f32]>,
    pub(crate) z: Option<&'a [f32]>,
    pub(crate) delta_bias: Option<&'a [f32]>,
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

/// Floats that a strip saves: for each block, sweep, chunk and state, eight lanes.
pub(crate) fn chunk_states_len(sizes: Sizes, spec: ScanSpec, strip: Strip) -> usize {
    strip.blocks().count() * spec.sweeps() * sizes.len.div_ceil(CHUNK) * sizes.d_state * LANES
}
