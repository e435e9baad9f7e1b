//! Complex numbers over any of the arithmetics that formulas are written in.
//!
//! Every formula of this crate is holomorphic in x, so [`Complex`] is a [`Real`] like the others: its
//! "|x| < bound" is that of the modulus. Gradients of a real loss by a complex quantity `p + iq` are
//! `∂L/∂p + i·∂L/∂q` throughout; through `w = f(z)` they are pulled back by `conj(f′(z))`.

use std::ops::{Add, Mul, Neg, Sub};

use burn::tensor::Tensor;

use crate::real::Real;

/// What a part of a [`Complex`] must be able to do.
pub trait Trig: Real {
    /// The sine and the cosine.
    #[must_use]
    fn sin_cos(self) -> (Self, Self);

    /// The larger of |`a`| and |`b`|; a constant to differentiation.
    #[must_use]
    fn larger(a: &Self, b: &Self) -> Self;
}

impl Trig for f64 {
    fn sin_cos(self) -> (Self, Self) {
        f64::sin_cos(self)
    }
    fn larger(a: &Self, b: &Self) -> Self {
        a.abs().max(b.abs())
    }
}

impl<const R: usize> Trig for Tensor<R> {
    fn sin_cos(self) -> (Self, Self) {
        (self.clone().sin(), self.cos())
    }
    fn larger(a: &Self, b: &Self) -> Self {
        a.clone().detach().abs().max_pair(b.clone().detach().abs())
    }
}

/// `re + i·im`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

impl<T: Trig> Complex<T> {
    /// `re + i·im`.
    #[inline(always)]
    pub fn new(re: T, im: T) -> Self {
        Self { re, im }
    }

    /// A real number as a complex one.
    #[inline(always)]
    #[must_use]
    pub fn real(re: T) -> Self {
        let im = re.constant(0.0);
        Self { re, im }
    }

    /// `re − i·im`.
    #[inline(always)]
    #[must_use]
    pub fn conj(self) -> Self {
        Self { re: self.re, im: -self.im }
    }

    /// The real part of `conj(self)·other`: a gradient's part along a real argument.
    #[inline(always)]
    #[must_use]
    pub fn dot(self, other: Self) -> T {
        self.re * other.re + self.im * other.im
    }

    /// Both parts times a real number.
    #[inline(always)]
    #[must_use]
    pub fn times(self, factor: T) -> Self {
        Self { re: self.re * factor.clone(), im: self.im * factor }
    }

    /// |x|²; infinite from |x| = 2e19 on in f32, which compares as it should.
    fn modulus_squared(&self) -> T {
        self.re.clone() * self.re.clone() + self.im.clone() * self.im.clone()
    }
}

impl<T: Trig> Add for Complex<T> {
    type Output = Self;
    #[inline(always)]
    fn add(self, rhs: Self) -> Self {
        Self { re: self.re + rhs.re, im: self.im + rhs.im }
    }
}

impl<T: Trig> Sub for Complex<T> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, rhs: Self) -> Self {
        Self { re: self.re - rhs.re, im: self.im - rhs.im }
    }
}

impl<T: Trig> Mul for Complex<T> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, rhs: Self) -> Self {
        Self {
            re: self.re.clone() * rhs.re.clone() - self.im.clone() * rhs.im.clone(),
            im: self.re * rhs.im + self.im * rhs.re,
        }
    }
}

impl<T: Trig> Neg for Complex<T> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self { re: -self.re, im: -self.im }
    }
}

impl<T: Trig> Real for Complex<T> {
    // The terms are bounded by the modulus, as they are on the real line.
    const SERIES_TERMS: usize = T::SERIES_TERMS;

    #[inline(always)]
    fn scale(self, factor: f64) -> Self {
        Self { re: self.re.scale(factor), im: self.im.scale(factor) }
    }
    #[inline(always)]
    fn offset(self, term: f64) -> Self {
        Self { re: self.re.offset(term), im: self.im }
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: f64) -> Self {
        (self * factor).offset(term)
    }
    #[inline(always)]
    fn constant(&self, value: f64) -> Self {
        Self { re: self.re.constant(value), im: self.im.constant(0.0) }
    }
    #[inline(always)]
    fn exp(self) -> Self {
        let modulus = self.re.exp();
        let (sin, cos) = self.im.sin_cos();
        Self { re: modulus.clone() * cos, im: modulus * sin }
    }
    /// Of the number scaled to a largest part of 1, so that |x|² neither overflows nor vanishes.
    #[inline(always)]
    fn recip(self) -> Self {
        let scale = T::larger(&self.re, &self.im).recip();
        let scaled = self.times(scale.clone());
        let factor = scaled.modulus_squared().recip() * scale;
        scaled.conj().times(factor)
    }
    #[inline(always)]
    fn choose_near(self, bound: f64, near: Self, far: Self) -> Self {
        let (square, bound) = (self.modulus_squared(), bound * bound);
        Self {
            re: square.clone().choose_near(bound, near.re, far.re),
            im: square.choose_near(bound, near.im, far.im),
        }
    }
    #[inline(always)]
    fn near_zero(self, bound: f64) -> Self {
        let zero = self.constant(0.0);
        self.clone().choose_near(bound, self, zero)
    }
    #[inline(always)]
    fn away_from_zero(self, bound: f64) -> Self {
        let edge = self.constant(bound);
        self.clone().choose_near(bound, edge, self)
    }
}
