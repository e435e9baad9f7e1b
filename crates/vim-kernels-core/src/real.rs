//! The arithmetic that formulas are written in: `f64` for the oracle, sixteen `f32` lanes for the
//! native kernel, a tensor for the reference, and [`Traced`] for a GPU's kernels. One formula, four
//! number types.

use std::ops::{Add, Mul, Neg, Sub};

use burn::tensor::Tensor;

/// A number, a vector of lanes or a tensor.
///
/// Binary operations on tensors broadcast; nothing else about the types differs for a formula.
pub trait Real:
    Clone + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// Terms of a power series about 0 that reach this type's precision for |x| ≤ 2.
    const SERIES_TERMS: usize;

    /// `self · factor`.
    #[must_use]
    fn scale(self, factor: f64) -> Self;

    /// `self + term`.
    #[must_use]
    fn offset(self, term: f64) -> Self;

    /// `self · factor + term`, fused where the type has it.
    #[must_use]
    fn mul_add(self, factor: Self, term: f64) -> Self;

    /// `value` in the shape of `self`.
    #[must_use]
    fn constant(&self, value: f64) -> Self;

    /// eˣ.
    #[must_use]
    fn exp(self) -> Self;

    /// 2ˣ.
    #[must_use]
    fn exp2(self) -> Self {
        self.scale(std::f64::consts::LN_2).exp()
    }

    /// 1/x.
    #[must_use]
    fn recip(self) -> Self;

    /// `near` where |x| < `bound`, else `far`; `self` is x. The branch that is not selected is
    /// ignored; for tensors it must be finite, or zero times infinity makes the gradient NaN.
    #[must_use]
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self;

    /// x where |x| < `bound`, else a finite value below the bound: an argument at which a series
    /// about 0 is finite. Where the series is not selected, its gradient would otherwise be zero
    /// times infinity, a NaN.
    #[must_use]
    fn near_zero(self, bound: f64) -> Self;

    /// x where |x| ≥ `bound`, else `bound`: an argument at which a closed form that divides by x is
    /// finite, and so is its derivative.
    #[must_use]
    fn away_from_zero(self, bound: f64) -> Self;

    /// x, or `bound` where x (of a complex number, its real part) is below it; NaN stays.
    #[must_use]
    fn at_least(self, bound: f64) -> Self;
}

impl Real for f64 {
    const SERIES_TERMS: usize = 26;

    fn scale(self, factor: f64) -> Self {
        self * factor
    }
    fn offset(self, term: f64) -> Self {
        self + term
    }
    fn mul_add(self, factor: Self, term: f64) -> Self {
        self * factor + term
    }
    fn constant(&self, value: f64) -> Self {
        value
    }
    fn exp(self) -> Self {
        f64::exp(self)
    }
    fn recip(self) -> Self {
        1.0 / self
    }
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self {
        if self.abs() < bound { near } else { far }
    }
    fn near_zero(self, bound: f64) -> Self {
        if self.abs() < bound { self } else { 0.0 }
    }
    fn away_from_zero(self, bound: f64) -> Self {
        if self.abs() < bound { bound } else { self }
    }
    fn at_least(self, bound: f64) -> Self {
        if self < bound { bound } else { self }
    }
}

impl<const R: usize> Real for Tensor<R> {
    const SERIES_TERMS: usize = 14;

    fn scale(self, factor: f64) -> Self {
        self.mul_scalar(factor)
    }
    fn offset(self, term: f64) -> Self {
        self.add_scalar(term)
    }
    fn mul_add(self, factor: Self, term: f64) -> Self {
        self.mul(factor).add_scalar(term)
    }
    fn constant(&self, value: f64) -> Self {
        self.full_like(value)
    }
    fn exp(self) -> Self {
        Tensor::exp(self)
    }
    fn recip(self) -> Self {
        Tensor::recip(self)
    }
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self {
        far.mask_where(self.abs().lower_elem(bound), near)
    }
    fn near_zero(self, bound: f64) -> Self {
        let far = self.clone().abs().greater_equal_elem(bound);
        self.mask_fill(far, 0.0)
    }
    fn away_from_zero(self, bound: f64) -> Self {
        let near = self.clone().abs().lower_elem(bound);
        self.mask_fill(near, bound)
    }
    fn at_least(self, bound: f64) -> Self {
        let below = self.clone().lower_elem(bound);
        self.mask_fill(below, bound)
    }
}

/// A number known when the kernel is compiled, or a value: what is 0 or 1 costs no arithmetic.
#[derive(Clone)]
pub enum Term<T> {
    /// Known when the kernel is compiled.
    Constant(f64),
    /// A value.
    Of(T),
}

impl<T: Real> Term<T> {
    /// The term times a number.
    #[inline(always)]
    pub fn scale(self, factor: f64) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(value * factor),
            Self::Of(value) if factor == 1.0 => Self::Of(value),
            Self::Of(value) => Self::Of(value.scale(factor)),
        }
    }

    /// The term times a value.
    #[inline(always)]
    pub fn times(self, factor: &T) -> Self {
        match self {
            Self::Constant(0.0) => Self::Constant(0.0),
            Self::Constant(value) => Self::Of(factor.clone()).scale(value),
            Self::Of(value) => Self::Of(value * factor.clone()),
        }
    }

    /// The sum of two terms.
    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Constant(a), Self::Constant(b)) => Self::Constant(a + b),
            (Self::Of(a), Self::Of(b)) => Self::Of(a + b),
            (Self::Of(a), Self::Constant(b)) | (Self::Constant(b), Self::Of(a)) => {
                if b == 0.0 {
                    Self::Of(a)
                } else {
                    Self::Of(a.offset(b))
                }
            }
        }
    }

    /// The term as a value; a constant takes the shape of `x`.
    #[inline(always)]
    pub fn like(self, x: &T) -> T {
        match self {
            Self::Constant(value) => x.constant(value),
            Self::Of(value) => value,
        }
    }
}

/// `c₀ + delta·c₁ + delta²·c₂`.
#[inline(always)]
pub fn horner<T: Real>(delta: &T, [c0, c1, c2]: [Term<T>; 3]) -> Term<T> {
    c2.times(delta).plus(c1).times(delta).plus(c0)
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use traced::{Traced, exp2, reciprocal};

/// Formulas as GPU code: a number that records what is done to it.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[doc(hidden)]
mod traced {
    use std::ops::{Add, Mul, Neg, Sub};

    use cubecl::ir::Scope;
    use cubecl::prelude::*;

    use super::Real;

    /// An f32 of a kernel under construction.
    ///
    /// Its arithmetic emits CubeCL instructions, so that running a formula of
    /// a discretization on it once, while a kernel is built, writes that formula into the
    /// kernel. There is no second version of any formula for the GPU.
    #[derive(Clone)]
    pub struct Traced<'a> {
        pub scope: &'a Scope,
        /// Whether the target takes PTX: the special function unit's exponential and reciprocal.
        ptx: bool,
        pub value: NativeExpand<f32>,
    }

    impl<'a> Traced<'a> {
        /// The current value: a later change of the variable does not change what was recorded.
        pub fn new(scope: &'a Scope, ptx: bool, value: NativeExpand<f32>) -> Self {
            let value = value.read_value(scope).into();
            Self { scope, ptx, value }
        }

        /// The recorded value, for the kernel's own code.
        pub fn value(self) -> NativeExpand<f32> {
            self.value
        }

        /// `value` in the same kernel.
        pub fn with(&self, value: NativeExpand<f32>) -> Self {
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

    /// 2ˣ; on CUDA to two units in the last place by `ex2.approx`, a twentieth of the cost of
    /// `exp`.
    #[cube]
    pub fn exp2(x: f32, #[comptime] ptx: bool) -> f32 {
        if comptime!(ptx) {
            let y: f32;
            gpu_asm!("ex2.approx.ftz.f32 {y}, {x};", x = in(_) x, y = out(_) y, options(pure, nomem));
            y
        } else {
            (x * std::f32::consts::LN_2).exp()
        }
    }

    /// 1/x; on CUDA to one unit in the last place by `rcp.approx`, where a division takes a slow
    /// path.
    #[cube]
    pub fn reciprocal(x: f32, #[comptime] ptx: bool) -> f32 {
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

    #[cube]
    fn not_below(x: f32, bound: f32) -> f32 {
        select(x < bound, bound, x)
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
        fn at_least(self, bound: f64) -> Self {
            let bound = self.number(bound);
            self.with(not_below::expand(self.scope, self.value, bound))
        }
    }
}
