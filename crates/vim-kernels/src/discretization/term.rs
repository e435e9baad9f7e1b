//! Terms of a coefficient; some are constants known when a kernel is compiled.

use crate::real::Real;

/// `c₀ + delta·c₁ + delta²·c₂`.
#[inline(always)]
pub(crate) fn horner<T: Real>(delta: &T, [c0, c1, c2]: [Term<T>; 3]) -> Term<T> {
    c2.times(delta).plus(c1).times(delta).plus(c0)
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
