//! How the tokens of all sequences are cut into strips, one for each thread along them.

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernel::STEP;

/// Threads that the strips are cut for: about as many as the largest GPUs run at once. Constant, so
/// that the order of a sum does not depend on the GPU.
const THREADS: usize = 1 << 17;
/// The shortest strip: its first W − 1 tokens are read twice.
const SHORTEST: usize = 8;

/// How the tokens of all sequences are cut into strips.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Strips {
    /// `D` divided by the channels of a thread.
    pub(crate) groups: usize,
    /// Row stride of x and of its gradient, divided by the channels of a thread.
    pub(crate) pitch: usize,
    /// `L`.
    pub(crate) len: usize,
    /// Tokens of a strip.
    pub(crate) tokens: usize,
    /// Strips of a sequence.
    pub(crate) per_sequence: usize,
    /// Strips of all sequences.
    pub(crate) total: usize,
}

impl Strips {
    /// Strips of `x [B, L, D]` for threads of `lanes` channels that read `beyond` tokens past their
    /// strip; a thread's tokens fill whole steps.
    pub(crate) fn new(x: &CubeTensor, lanes: usize, beyond: usize) -> Self {
        let [batch, len, d_inner] = x.shape().dims();
        let groups = d_inner / lanes;
        let wanted = THREADS.div_ceil(batch * groups);
        let steps = (len.div_ceil(wanted).max(SHORTEST) + beyond).div_ceil(STEP);
        let tokens = steps * STEP - beyond;
        let per_sequence = len.div_ceil(tokens);
        let pitch = x.meta.strides()[1] / lanes;
        Self { groups, pitch, len, tokens, per_sequence, total: batch * per_sequence }
    }

    /// Strips of the windows of W tokens that overlap `x [B, L, D]`, of which there are W − 1 more
    /// than tokens: a window's last token and its first are `reach` apart. `threads` of `lanes`
    /// channels fill the device once; a strip and the `reach` windows after it fill whole steps.
    pub(crate) fn of_windows(
        x: &CubeTensor,
        lanes: usize,
        reach: usize,
        threads: usize,
        step: usize,
    ) -> Self {
        let [batch, len, d_inner] = x.shape().dims();
        let groups = d_inner / lanes;
        let whole = batch * groups;
        // Short of a few strips a sequence, rounding down would leave much of the device idle, and
        // a remainder of threads would take as long as all: more of them leave less.
        let waves = if 3 * whole <= threads { 1 } else { 3 };
        let wanted = (waves * threads / whole).max(1);
        let windows = len + reach;
        let tokens = windows.div_ceil(wanted).max(SHORTEST);
        let tokens = (tokens + reach).next_multiple_of(step) - reach;
        let per_sequence = windows.div_ceil(tokens);
        let pitch = x.meta.strides()[1] / lanes;
        Self { groups, pitch, len, tokens, per_sequence, total: batch * per_sequence }
    }

    pub(crate) fn launch(self) -> StripsLaunch {
        let Self { groups, pitch, len, tokens, per_sequence, total } = self;
        StripsLaunch::new(groups, pitch, len, tokens, per_sequence, total)
    }
}

/// A strip of a group of channels.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Strip {
    /// The group's element in the first token of the sequence, of a dense tensor and of x.
    pub(crate) base: usize,
    pub(crate) base_x: usize,
    /// The first token, and the one after the last.
    pub(crate) first: usize,
    pub(crate) end: usize,
}

#[cube]
pub(crate) fn strip_of(strips: &Strips, strip: usize, group: usize) -> Strip {
    let len = strips.len;
    let row = (strip / strips.per_sequence) * len;
    let first = (strip % strips.per_sequence) * strips.tokens;
    let end = select(first + strips.tokens < len, first + strips.tokens, len);
    Strip { base: row * strips.groups + group, base_x: row * strips.pitch + group, first, end }
}
