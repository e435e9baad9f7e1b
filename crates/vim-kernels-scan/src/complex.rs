//! Complex numbers over any of the arithmetics that formulas are written in.
//!
//! Every formula of this crate is holomorphic in x, so [`Complex`] is a [`Real`] like the others:
//! its "|x| < bound" is that of the modulus. Gradients of a real loss by a complex quantity
//! `p + iq` are `∂L/∂p + i·∂L/∂q` throughout; through `w = f(z)` they are pulled back by
//! `conj(f′(z))`.

use std::ops::{Add, Mul, Neg, Sub};

use burn::tensor::Tensor;

use vim_kernels_core::Real;

/// What a part of a [`Complex`] must support.
pub trait Trig: Real {
    /// The sine and the cosine.
    #[must_use]
    fn sin_cos(self) -> (Self, Self);

    /// The larger of |`a`| and |`b`|; autodiff treats it as a constant.
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

    /// The real part of `conj(self)·other`: the component of a gradient along a real argument.
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
    /// Of the number scaled so that its largest part is 1: |x|² neither overflows nor vanishes.
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
    #[inline(always)]
    fn at_least(self, bound: f64) -> Self {
        Self { re: self.re.at_least(bound), im: self.im }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discretization::phi::{phi, phi_derivative};
    use crate::discretization::{Discretization, discretize, linearize};
    use burn::tensor::{Device, TensorData};
    use strum::VariantArray;

    type Number = Complex<f64>;

    fn modulus(x: Number) -> f64 {
        x.re.hypot(x.im)
    }

    /// Points of the left half plane, both axes included, to |x| = 50, as f32 has them.
    fn points() -> Vec<Number> {
        let quarter = std::f64::consts::FRAC_PI_2;
        (0..150)
            .flat_map(|i| (0..=40).map(move |j| (i, j)))
            .map(|(i, j)| {
                let r = 10f64.powf(-2.0 + 3.7 * f64::from(i) / 150.0);
                let (sin, cos) = (quarter * (1.0 + f64::from(j) / 20.0)).sin_cos();
                Complex::new(f64::from((r * cos) as f32), f64::from((r * sin) as f32))
            })
            .collect()
    }

    /// φₖ(x) = ∫₀¹ e^{(1−s)x} s^{k−1}/(k−1)! ds, or its derivative, by Gauss–Legendre on 200
    /// panels.
    fn quadrature(k: usize, slope: bool, x: Number) -> Number {
        const NODES: [(f64, f64); 5] = [
            (0.0, 0.568_888_888_888_888_9),
            (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
            (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
            (0.906_179_845_938_664, 0.236_926_885_056_189_1),
            (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
        ];
        let factorial = if k == 3 { 2.0 } else { 1.0 };
        // Finer towards s = 1, where the integrand lives for x far to the left.
        let edge = |i: u32| 1.0 - (1.0 - f64::from(i) / 200.0).powi(3);
        let mut sum = Complex::new(0.0, 0.0);
        for (low, high) in (0..200).map(|i| (edge(i), edge(i + 1))) {
            for (node, weight) in NODES {
                let s = (low + high) / 2.0 + (high - low) / 2.0 * node;
                let power = s.powi(k as i32 - 1) * if slope { 1.0 - s } else { 1.0 };
                let weight = weight * (high - low) / 2.0 * power / factorial;
                sum = sum + x.scale(1.0 - s).exp().scale(weight);
            }
        }
        sum
    }

    /// The far forms were arranged for real x; this checks them on the whole left half plane, in
    /// f64 and f32.
    #[test]
    fn phi_is_right_for_complex_x() {
        let points = points();
        let device = Device::flex();
        let column = |part: fn(&Number) -> f64| {
            let part: Vec<f32> = points.iter().map(|x| part(x) as f32).collect();
            Tensor::<1>::from_data(TensorData::new(part, [points.len()]), &device)
        };
        let x32 = Complex::new(column(|x| x.re), column(|x| x.im));
        for k in 1..=3 {
            for slope in [false, true] {
                let single = if slope {
                    phi_derivative(k, x32.clone(), x32.clone().exp())
                } else {
                    phi(k, x32.clone(), x32.clone().exp())
                };
                let read = |t: Tensor<1>| t.into_data().iter::<f64>().collect::<Vec<f64>>();
                let single = read(single.re).into_iter().zip(read(single.im));
                for (&x, (re, im)) in points.iter().zip(single) {
                    let double =
                        if slope { phi_derivative(k, x, x.exp()) } else { phi(k, x, x.exp()) };
                    let want = quadrature(k, slope, x);
                    // φ₁ has zeros at 2πi·n, where only its absolute error can be small.
                    let size = modulus(want).max(0.1 / modulus(x).max(1.0));
                    let off = modulus(double - want) / size;
                    assert!(off <= 1e-12, "f64 phi{k} slope {slope} at {x:?}: {off:.1e}");
                    let off = modulus(Complex::new(re, im) - want) / modulus(want).max(size);
                    assert!(off <= 1.5e-6, "f32 phi{k} slope {slope} at {x:?}: {off:.1e}");
                }
            }
        }
    }

    /// Along the real and along the imaginary direction alike: the coefficients are holomorphic.
    #[test]
    fn derivatives_hold_in_both_directions() {
        for &method in Discretization::VARIANTS.iter().filter(|method| method.form().published) {
            for &series in method.series() {
                for (delta, re, im) in
                    [(0.1, -1.0, 2.0), (0.7, -0.01, 3.0), (0.7, -4.0, -16.0), (1.0, -1.4, 1.4)]
                {
                    let (delta, a) = (Complex::real(delta), Complex::new(re, im));
                    let lin = linearize(method, series, delta, a);
                    let at = |delta, a| discretize(method, series, delta, a);
                    for step in [Complex::new(1e-6, 0.0), Complex::new(0.0, 1e-6)] {
                        let slope =
                            |plus: Number, minus: Number| (plus - minus).scale(0.5) * step.recip();
                        let close = |got: Number, plus, minus| {
                            let want = slope(plus, minus);
                            // Differences of values of about 1 over 2e-6: 1e-9.
                            let near = modulus(got - want) <= 1e-7 * modulus(want).max(1.0);
                            assert!(near, "{method} {series} at {a:?}: {got:?} {want:?}");
                        };
                        let (plus, minus) = (at(delta + step, a), at(delta - step, a));
                        close(lin.d_delta.a_bar, plus.a_bar, minus.a_bar);
                        close(lin.d_delta.b_bar, plus.b_bar, minus.b_bar);
                        let (plus, minus) = (at(delta, a + step), at(delta, a - step));
                        close(lin.d_a.a_bar, plus.a_bar, minus.a_bar);
                        close(lin.d_a.b_bar, plus.b_bar, minus.b_bar);
                    }
                }
            }
        }
    }

    #[test]
    fn reciprocals_neither_overflow_nor_vanish() {
        for size in [1e-300, 1e-160, 1.0, 1e160, 1e300] {
            for x in [Complex::new(3.0, -4.0), Complex::new(0.0, 2.0), Complex::new(-1.0, 0.0)] {
                let x = x.scale(size);
                let one = x * x.recip();
                assert!(modulus(one - Complex::new(1.0, 0.0)) <= 1e-15, "{x:?}: {one:?}");
            }
        }
    }
}
