//! Plain loops, compiled once for every processor and once for those with AVX2.

/// Runs `work` with the widest instructions of this processor.
///
/// The compiler vectorises the loops inside; nothing is fused or reordered, so the results are the same
/// bit for bit on every machine. Whatever `work` calls must be `#[inline(always)]` to be included.
#[inline]
pub(crate) fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            #[expect(
                unsafe_code,
                reason = "the only way to call a function with target features"
            )]
            // SAFETY: the feature that `avx2` is compiled for was detected above.
            return unsafe { avx2(work) };
        }
    }
    work()
}
