//! Helpers of the fused CPU kernels, in safe Rust: eight channels to a vector, rayon over batch and
//! channels.
//!
//! The kernels are written once for vectors of eight `f32` and compiled twice: for AVX2 with fused
//! multiply-add, selected when the processor has them, and for the target's baseline.

pub(crate) mod lanes;
pub(crate) mod slices;

/// Work that is compiled once for AVX2 + FMA and once without.
///
/// `run` must be `#[inline(always)]`, down to its arithmetic: only what is inlined into a function
/// with a target feature is compiled for it.
pub(crate) trait Kernel {
    type Output;

    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Runs `kernel` with the widest vectors of the processor.
pub(crate) fn widest<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn avx2<K: Kernel>(kernel: K) -> K::Output {
            kernel.run::<true>()
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            #[expect(
                unsafe_code,
                reason = "the only way to call a function with target features"
            )]
            // SAFETY: both features that `avx2` is compiled for were detected above.
            return unsafe { avx2(kernel) };
        }
    }
    kernel.run::<false>()
}
