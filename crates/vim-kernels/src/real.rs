//! The arithmetic that formulas are written in: `f64` for the oracle, eight `f32` lanes for the
//! native kernel, a tensor for the reference. One formula, three number types.

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
}

/// A number known when the kernel is compiled, or a value: what is 0 or 1 costs no arithmetic.
#[derive(Clone)]
pub(crate) enum Term<T> {
    Constant(f64),
    Of(T),
}

impl<T: Real> Term<T> {
    #[inline(always)]
    pub(crate) fn scale(self, factor: f64) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(value * factor),
            Self::Of(value) if factor == 1.0 => Self::Of(value),
            Self::Of(value) => Self::Of(value.scale(factor)),
        }
    }

    #[inline(always)]
    pub(crate) fn times(self, factor: &T) -> Self {
        match self {
            Self::Constant(0.0) => Self::Constant(0.0),
            Self::Constant(value) => Self::Of(factor.clone()).scale(value),
            Self::Of(value) => Self::Of(value * factor.clone()),
        }
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
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
    pub(crate) fn like(self, x: &T) -> T {
        match self {
            Self::Constant(value) => x.constant(value),
            Self::Of(value) => value,
        }
    }
}

/// `c₀ + delta·c₁ + delta²·c₂`.
#[inline(always)]
pub(crate) fn horner<T: Real>(delta: &T, [c0, c1, c2]: [Term<T>; 3]) -> Term<T> {
    c2.times(delta).plus(c1).times(delta).plus(c0)
}
