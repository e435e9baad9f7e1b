//! Sixteen `f32` side by side, with the transcendental functions the kernels need.
//!
//! Plain arrays and counted loops: the compiler turns each method into a vector instruction with
//! AVX-512, two with AVX2. Every function here propagates NaN.

use std::ops::{Add, AddAssign, Mul, Neg, Sub};

use crate::real::Real;

/// Lanes in a vector.
pub const LANES: usize = 16;

/// Sixteen `f32`; `FMA` says whether the code is compiled where fused multiply-add is an
/// instruction.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Lanes<const FMA: bool>([f32; LANES]);

impl<const FMA: bool> Lanes<FMA> {
    pub const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    pub fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    /// The first `LANES` values of `from`, padded with zeros.
    #[inline(always)]
    pub fn load(from: &[f32]) -> Self {
        match from.first_chunk::<LANES>() {
            Some(full) => Self(*full),
            None => Self(load_part(from)),
        }
    }

    /// Stores as many lanes as fit into `to`.
    #[inline(always)]
    pub fn store(self, to: &mut [f32]) {
        match to.first_chunk_mut::<LANES>() {
            Some(full) => *full = self.0,
            None => store_part(&self.0, to),
        }
    }

    #[inline(always)]
    pub fn to_array(self) -> [f32; LANES] {
        self.0
    }

    /// The sum of the lanes, in a fixed order.
    #[inline(always)]
    pub fn sum(self) -> f32 {
        let mut sums = self.0;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                sums[i] += sums[i + half];
            }
            half /= 2;
        }
        sums[0]
    }

    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        let mut out = self.0;
        for value in &mut out {
            *value = f(*value);
        }
        Self(out)
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = f(out[i], other.0[i]);
        }
        Self(out)
    }

    /// `self · factor + term`.
    #[inline(always)]
    pub fn fma(self, factor: Self, term: Self) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = fused::<FMA>(out[i], factor.0[i], term.0[i]);
        }
        Self(out)
    }

    /// 1/(1 + e⁻ˣ).
    #[inline(always)]
    pub fn sigmoid(self) -> Self {
        (-self).exp().offset(1.0).recip()
    }

    /// x·sigmoid(x).
    #[inline(always)]
    pub fn silu(self) -> Self {
        self * self.sigmoid()
    }

    /// [`silu`](Self::silu) and its derivative, σ·(1 + x·(1 − σ)), by one exponential.
    #[inline(always)]
    pub fn silu_and_slope(self) -> [Self; 2] {
        let s = self.sigmoid();
        [self * s, s * self.fma((-s).offset(1.0), Self::splat(1.0))]
    }

    /// The derivative of [`silu`](Self::silu).
    #[inline(always)]
    pub fn silu_slope(self) -> Self {
        let [_, slope] = self.silu_and_slope();
        slope
    }

    /// ln(1 + eˣ) = max(x, 0) + ln(1 + e^−|x|), exact to rounding on both sides of 0, and its
    /// derivative, [`sigmoid`](Self::sigmoid), by one exponential.
    #[inline(always)]
    pub fn softplus_and_slope(self) -> [Self; 2] {
        // 2·atanh(s) = ln((1 + s)/(1 − s)) with s = y/(2 + y) ≤ 1/3 is ln(1 + y), without
        // cancelling.
        let y = self.map(|x| -x.abs()).exp();
        let s = y * y.offset(2.0).recip();
        let s2 = s * s;
        let mut series = Self::splat(2.0 / 17.0);
        for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
            series = series.mul_add(s2, 2.0 / odd);
        }
        let softplus = s.fma(series, self.map(|x| if x < 0.0 { 0.0 } else { x }));
        // 1/(1 + e^−|x|) above 0, e^−|x| times that below.
        let above = y.offset(1.0).recip();
        let mut slope = (y * above).0;
        for i in 0..LANES {
            slope[i] = if self.0[i] < 0.0 { slope[i] } else { above.0[i] };
        }
        [softplus, Self(slope)]
    }
}

// The last lanes of a row, apart: inlined, the compiler merges their copy of unknown length with
// that of a whole vector, and calls `memcpy` for both.
#[cold]
#[inline(never)]
fn load_part(from: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..from.len()].copy_from_slice(from);
    lanes
}

#[cold]
#[inline(never)]
fn store_part(lanes: &[f32; LANES], to: &mut [f32]) {
    let len = to.len();
    to.copy_from_slice(&lanes[..len]);
}

#[inline(always)]
fn fused<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// eˣ within 2 units in the last place; 0 below −126.5·ln 2 = −87.68, ∞ above 127.5·ln 2 = 88.37.
///
/// x = n·ln 2 + r with |r| ≤ ½ ln 2; e^r by the polynomial of Cephes' `expf` (Moshier), 2ⁿ by its
/// bits.
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    // 2ⁿ is 0 at the least n, −127, and ∞ at the most, 128.
    const LOW: f32 = -88.0;
    const HIGH: f32 = 89.0;
    // Adding 1.5·2²³ rounds to an integer and leaves it in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Comparisons with NaN are false, so a NaN stays: `f32::clamp` and `max` would lose it in
    // vectors.
    let clamped = if x < LOW { LOW } else { x };
    let clamped = if clamped > HIGH { HIGH } else { clamped };
    let shifted = fused::<FMA>(clamped, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fused::<FMA>(n, -LN2_LOW, fused::<FMA>(n, -LN2_HIGH, clamped));
    // By pairs of terms: three multiplications in a row where Horner's scheme waits for five.
    let r2 = r * r;
    let low = fused::<FMA>(1.666_666_5e-1, r, 5e-1);
    let middle = fused::<FMA>(8.333_452e-3, r, 4.166_579_6e-2);
    let high = fused::<FMA>(1.987_569_1e-4, r, 1.398_2e-3);
    let p = fused::<FMA>(fused::<FMA>(high, r2, middle), r2, low);
    let e = fused::<FMA>(p, r2, r) + 1.0;
    // The shift drops all of `MAGIC`'s bits.
    e * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

impl<const FMA: bool> Real for Lanes<FMA> {
    const SERIES_TERMS: usize = 14;

    #[inline(always)]
    fn scale(self, factor: f64) -> Self {
        self.map(|x| x * factor as f32)
    }
    #[inline(always)]
    fn offset(self, term: f64) -> Self {
        self.map(|x| x + term as f32)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: f64) -> Self {
        self.fma(factor, Self::splat(term as f32))
    }
    #[inline(always)]
    fn constant(&self, value: f64) -> Self {
        Self::splat(value as f32)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        self.map(exp::<FMA>)
    }
    #[inline(always)]
    fn recip(self) -> Self {
        self.map(|x| 1.0 / x)
    }
    #[inline(always)]
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self {
        let mut out = far.0;
        for i in 0..LANES {
            out[i] = if self.0[i].abs() < bound as f32 { near.0[i] } else { out[i] };
        }
        Self(out)
    }
    /// Nothing is differentiated through the series here, and the branch not selected is dropped.
    #[inline(always)]
    fn near_zero(self, _bound: f64) -> Self {
        self
    }
    #[inline(always)]
    fn away_from_zero(self, bound: f64) -> Self {
        let bound = bound as f32;
        self.map(|x| if x.abs() < bound { bound } else { x })
    }
    #[inline(always)]
    fn at_least(self, bound: f64) -> Self {
        let bound = bound as f32;
        self.map(|x| if x < bound { bound } else { x })
    }
}

impl<const FMA: bool> Add for Lanes<FMA> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}
impl<const FMA: bool> Sub for Lanes<FMA> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
}
impl<const FMA: bool> Mul for Lanes<FMA> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
}
impl<const FMA: bool> Neg for Lanes<FMA> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.map(|x| -x)
    }
}
impl<const FMA: bool> AddAssign for Lanes<FMA> {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(
        f: impl Fn(Lanes<false>) -> Lanes<false>,
        exact: impl Fn(f64) -> f64,
        from: f64,
        to: f64,
    ) -> f64 {
        (0..=200_000)
            .map(|i| {
                let x = (from + (to - from) * f64::from(i) / 200_000.0) as f32;
                let got = f64::from(f(Lanes::splat(x)).0[0]);
                let want = exact(f64::from(x));
                ((got - want) / want).abs()
            })
            .fold(0.0, f64::max)
    }

    fn softplus(x: Lanes<false>) -> Lanes<false> {
        x.softplus_and_slope()[0]
    }

    fn softplus_slope(x: Lanes<false>) -> Lanes<false> {
        x.softplus_and_slope()[1]
    }

    // f32 rounds to 6e-8; two roundings of the reduction and one of the product give a few of
    // those.
    #[test]
    fn transcendental_functions_reach_f32_precision() {
        assert!(worst(Real::exp, f64::exp, -86.0, 88.37) < 2.5e-7);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(worst(softplus, |x| x.exp().ln_1p(), -86.0, 80.0) < 4e-7);
        assert!(worst(softplus_slope, sigmoid, -80.0, 80.0) < 4e-7);
        assert!(worst(Lanes::sigmoid, sigmoid, -80.0, 80.0) < 4e-7);
    }

    #[test]
    fn extremes_are_limits_and_nan_stays() {
        let at = |f: fn(Lanes<false>) -> Lanes<false>, x: f32| f(Lanes::splat(x)).0[0];
        assert_eq!(at(Real::exp, f32::NEG_INFINITY), 0.0);
        assert_eq!(at(Real::exp, -1e4), 0.0);
        assert_eq!(at(Real::exp, -87.7), 0.0);
        assert_eq!(at(Real::exp, 1e4), f32::INFINITY);
        assert_eq!(at(Real::exp, 88.4), f32::INFINITY);
        assert_eq!(at(softplus, 1e4), 1e4);
        assert_eq!(at(softplus, -1e4), 0.0);
        assert_eq!(at(softplus_slope, 1e4), 1.0);
        assert_eq!(at(softplus_slope, -1e4), 0.0);
        assert_eq!(at(Lanes::silu, -1e4), 0.0);
        let all: [fn(Lanes<false>) -> Lanes<false>; 6] =
            [Real::exp, softplus, softplus_slope, Lanes::sigmoid, Lanes::silu, Lanes::silu_slope];
        for f in all {
            assert!(at(f, f32::NAN).is_nan());
        }
    }
}
