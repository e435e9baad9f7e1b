//! Plain loops, compiled once for every processor and once for those with AVX2.

use pulp::Arch;

/// Runs `work` with the widest instructions of this processor.
///
/// The compiler vectorises the loops inside; nothing is fused or reordered, so the results are the same
/// bit for bit on every machine. Whatever `work` calls must be `#[inline(always)]` to be included.
#[inline]
pub(crate) fn widest<R>(work: impl FnOnce() -> R) -> R {
    Arch::new().dispatch(work)
}
