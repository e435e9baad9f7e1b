//! Formulas as GPU code: a number that records what is done to it.
//!
//! [`Traced`] implements [`Real`] by emitting CubeCL instructions, so that running a formula of
//! [`crate::discretization`] on it once, while a kernel is built, writes that formula into the
//! kernel. There is no second version of any formula for the GPU.

use std::ops::{Add, Mul, Neg, Sub};

use cubecl::ir::Scope;
use cubecl::prelude::*;

use crate::complex::Trig;
use crate::real::Real;

/// An f32 of a kernel under construction.
#[derive(Clone)]
pub(crate) struct Traced<'a> {
    scope: &'a Scope,
    /// Whether the target takes PTX: the special function unit's exponential and reciprocal.
    ptx: bool,
    value: NativeExpand<f32>,
}

impl<'a> Traced<'a> {
    /// The current value: a later change of the variable does not change what was recorded.
    pub(crate) fn new(scope: &'a Scope, ptx: bool, value: NativeExpand<f32>) -> Self {
        let value = value.read_value(scope).into();
        Self { scope, ptx, value }
    }

    /// The recorded value, for the kernel's own code.
    pub(crate) fn value(self) -> NativeExpand<f32> {
        self.value
    }

    fn with(&self, value: NativeExpand<f32>) -> Self {
        Self { scope: self.scope, ptx: self.ptx, value }
    }

    fn number(&self, value: f64) -> NativeExpand<f32> {
        NativeExpand::from_lit(self.scope, value as f32)
    }
}

#[cube]
fn plus(a: f32, b: f32) -> f32 {
    a + b
}

#[cube]
fn minus(a: f32, b: f32) -> f32 {
    a - b
}

#[cube]
fn times(a: f32, b: f32) -> f32 {
    a * b
}

#[cube]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    fma(a, b, c)
}

#[cube]
fn negated(a: f32) -> f32 {
    -a
}

/// 2ˣ; on CUDA to two units in the last place by `ex2.approx`, a twentieth of the cost of `exp`.
#[cube]
pub(crate) fn exp2(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("ex2.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        y
    } else {
        (x * std::f32::consts::LN_2).exp()
    }
}

/// 1/x; on CUDA to one unit in the last place by `rcp.approx`, where a division takes a slow path.
#[cube]
pub(crate) fn reciprocal(x: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("rcp.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
        y
    } else {
        1.0f32 / x
    }
}

#[cube]
fn nearer(x: f32, bound: f32, near: f32, far: f32) -> f32 {
    select(x.abs() < bound, near, far)
}

impl Add for Traced<'_> {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        self.with(plus::expand(self.scope, self.value, rhs.value))
    }
}

impl Sub for Traced<'_> {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        self.with(minus::expand(self.scope, self.value, rhs.value))
    }
}

impl Mul for Traced<'_> {
    type Output = Self;
    fn mul(self, rhs: Self) -> Self {
        self.with(times::expand(self.scope, self.value, rhs.value))
    }
}

impl Neg for Traced<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.with(negated::expand(self.scope, self.value))
    }
}

impl Real for Traced<'_> {
    const SERIES_TERMS: usize = 14;

    fn scale(self, factor: f64) -> Self {
        let factor = self.number(factor);
        self.with(times::expand(self.scope, self.value, factor))
    }
    fn offset(self, term: f64) -> Self {
        let term = self.number(term);
        self.with(plus::expand(self.scope, self.value, term))
    }
    fn mul_add(self, factor: Self, term: f64) -> Self {
        let term = self.number(term);
        self.with(fused::expand(self.scope, self.value, factor.value, term))
    }
    fn constant(&self, value: f64) -> Self {
        self.with(self.number(value))
    }
    fn exp(self) -> Self {
        self.scale(std::f64::consts::LOG2_E).exp2()
    }
    fn exp2(self) -> Self {
        self.with(exp2::expand(self.scope, self.value, self.ptx))
    }
    fn recip(self) -> Self {
        self.with(reciprocal::expand(self.scope, self.value, self.ptx))
    }
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self {
        let bound = self.number(bound);
        self.with(nearer::expand(self.scope, self.value, bound, near.value, far.value))
    }
    fn near_zero(self, bound: f64) -> Self {
        let zero = self.constant(0.0);
        self.clone().choose_near(bound, self, zero)
    }
    fn away_from_zero(self, bound: f64) -> Self {
        let edge = self.constant(bound);
        self.clone().choose_near(bound, edge, self)
    }
}

#[derive(CubeType)]
#[expect(dead_code, reason = "kernels read the fields of its expansion")]
struct SineCosine {
    sin: f32,
    cos: f32,
}

/// Sine and cosine in arithmetic, as WGSL's own are only accurate to 5e-4: to 2e-7 for
/// |x| ≤ 1e4, and of modulus 1 within 1e-6 for every finite x.
///
/// x is reduced by quarter turns, subtracted in three parts (Cody and Waite), then the polynomials
/// of Cephes' `sinf` and `cosf` on [−π/4, π/4] apply. From |x| = 1e5 on an f32 does not determine
/// its phase to 0.004, and at 1e7 not at all; there the remainder is clamped to its range, so that
/// no decay grows.
#[cube]
fn sine_cosine(x: f32) -> SineCosine {
    let turns = (x * std::f32::consts::FRAC_2_PI).round();
    let rest = x - turns * 1.570_312_5f32;
    let rest = rest - turns * 4.837_513e-4f32;
    let rest = rest - turns * 7.549_79e-8f32;
    let r = max(min(rest, 0.79f32), -0.79f32);
    let q = r * r;
    let sin = r + r * q * (-1.666_665_5e-1f32 + q * (8.332_161e-3f32 - q * 1.951_529_6e-4f32));
    let cos = 1.0f32 - 0.5f32 * q
        + q * q * (4.166_664_6e-2f32 + q * (-1.388_731_6e-3f32 + q * 2.443_315_7e-5f32));
    let quadrant = turns - 4.0f32 * (turns * 0.25f32).floor();
    let odd = quadrant == 1.0f32 || quadrant == 3.0f32;
    let sin_abs = select(odd, cos, sin);
    let cos_abs = select(odd, sin, cos);
    SineCosine {
        sin: select(quadrant >= 2.0f32, -sin_abs, sin_abs),
        cos: select(quadrant == 1.0f32 || quadrant == 2.0f32, -cos_abs, cos_abs),
    }
}

#[cube]
fn larger(a: f32, b: f32) -> f32 {
    max(a.abs(), b.abs())
}

impl Trig for Traced<'_> {
    fn sin_cos(self) -> (Self, Self) {
        let both = sine_cosine::expand(self.scope, self.value);
        (self.with(both.sin), self.with(both.cos))
    }
    fn larger(a: &Self, b: &Self) -> Self {
        a.with(larger::expand(a.scope, a.value, b.value))
    }
}
