//! Helpers of the fused CPU kernels: sixteen channels to a vector, rayon over batch and channels.
//!
//! The kernels are written once for vectors of sixteen `f32` and compiled three times: for AVX-512,
//! for AVX2 with fused multiply-add, each selected when the processor has it, and for the target's
//! baseline. The first two do the same arithmetic on each lane.

pub mod lanes;
pub mod product;
pub mod slices;

/// Work that is compiled for AVX-512, for AVX2 + FMA, and for neither.
///
/// `run` must be `#[inline(always)]`, down to its arithmetic: only what is inlined into a function
/// with a target feature is compiled for it.
pub trait Kernel {
    type Output;

    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Runs `kernel` with the widest vectors of the processor.
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
        fn avx512<K: Kernel>(kernel: K) -> K::Output {
            kernel.run::<true>()
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2<K: Kernel>(kernel: K) -> K::Output {
            kernel.run::<true>()
        }
        if has_avx512() {
            #[expect(
                unsafe_code,
                reason = "the only way to call a function with target features"
            )]
            // SAFETY: all features that `avx512` is compiled for were detected above.
            return unsafe { avx512(kernel) };
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

/// Whether the processor has the parts of AVX-512 that servers have since 2017, and what comes with
/// them.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected as detected;
    detected!("avx512f")
        && detected!("avx512bw")
        && detected!("avx512cd")
        && detected!("avx512dq")
        && detected!("avx512vl")
        && detected!("avx2")
        && detected!("fma")
}
