//! Formulas as GPU code: a number that records what is done to it.
//!
//! [`Traced`] implements [`Real`] by emitting CubeCL instructions, so that running a formula of
//! [`crate::discretization`] on it once, while a kernel is built, writes that formula into the
//! kernel. There is no second version of any formula for the GPU.

mod trig;

use std::ops::{Add, Mul, Neg, Sub};

use cubecl::ir::Scope;
use cubecl::prelude::*;

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
