//! Plain loops, compiled three times: for every processor, for AVX2 and for AVX-512.

/// Runs `work` with the widest instructions of this processor.
///
/// The compiler vectorises the loops inside; nothing is fused or reordered, so the results are the
/// same bit for bit on every machine. Functions that `work` calls must be `#[inline(always)]`, or
/// they keep the baseline's instructions.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the only way to call a function with target features")
)]
pub(crate) fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;

        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
        fn avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2")]
        fn avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if has!("avx512f")
            && has!("avx512bw")
            && has!("avx512cd")
            && has!("avx512dq")
            && has!("avx512vl")
        {
            // SAFETY: the features that `avx512` is compiled for were detected above.
            return unsafe { avx512(work) };
        }
        if has!("avx2") {
            // SAFETY: the feature that `avx2` is compiled for was detected above.
            return unsafe { avx2(work) };
        }
    }
    work()
}

/// `value` clamped to 0..=255 and truncated. Equal to `value as u8`, which the compiler does not
/// vectorise.
///
/// Adding 2²³ leaves the nearest whole number in the last bits; it is then corrected downwards.
#[inline(always)]
pub(crate) fn byte_of_f32(value: f32) -> u8 {
    const ONES: f32 = (1 << 23) as f32;
    let value = value.clamp(0.0, 255.0);
    let nearest = value + ONES;
    let is_above = nearest - ONES > value;
    (nearest.to_bits() - u32::from(is_above)) as u8
}

/// As [`byte_of_f32`].
#[inline(always)]
pub(crate) fn byte_of_f64(value: f64) -> u8 {
    const ONES: f64 = (1_u64 << 52) as f64;
    let value = value.clamp(0.0, 255.0);
    let nearest = value + ONES;
    let is_above = nearest - ONES > value;
    (nearest.to_bits() - u64::from(is_above)) as u8
}

/// The floor of `value` and the fraction above it; `value` is within ±2³¹.
///
/// Without SSE4.1 `f64::floor` is a function call. 1.5 · 2⁵² leaves room for a sign.
#[inline(always)]
pub(crate) fn floor(value: f64) -> (i32, f64) {
    const ONES: f64 = (3_u64 << 51) as f64;
    let nearest = value + ONES;
    let rounded = nearest - ONES;
    let is_above = rounded > value;
    let whole = rounded - if is_above { 1.0 } else { 0.0 };
    (nearest.to_bits() as i32 - i32::from(is_above), value - whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_equal_the_casts() {
        let near = |whole: i32| {
            [-1e-3, -1e-6, -0.0, 0.0, 1e-6, 1e-3, 0.25, 0.499_999, 0.5, 0.500_001, 0.75]
                .map(|part| f64::from(whole) + part)
        };
        for value in (-300..600).flat_map(near) {
            let around = [value.next_down(), value, value.next_up()];
            for value in around {
                assert_eq!(byte_of_f64(value), value as u8, "{value:?}");
                let whole = value.floor();
                assert_eq!(floor(value), (whole as i32, value - whole), "{value:?}");
            }
            let value = value as f32;
            for value in [value.next_down(), value, value.next_up()] {
                assert_eq!(byte_of_f32(value), value as u8, "{value:?}");
            }
        }
    }
}
