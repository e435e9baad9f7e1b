//! The arithmetic of a discretization, counted by evaluating its formula on a counting number.

use std::cell::Cell;
use std::ops::{Add, Mul, Neg, Sub};

use burn::tensor::Tensor;

use super::{Discretization, Series, discretize};
use vim_kernels_core::Real;

impl Discretization {
    /// Operations to compute the coefficients of one state at one token from `delta` and `a`.
    ///
    /// Each addition, multiplication, exponential and reciprocal counts as one; sign changes and
    /// selections are free. Where one of two expressions is selected, both are evaluated, as in the
    /// reference.
    #[must_use]
    pub fn operations(self, series: Series) -> u64 {
        let count = Cell::new(0);
        let number = Tally(&count);
        discretize(self, series, number, number);
        count.get()
    }
}

/// A number that only counts the operations on it.
#[derive(Clone, Copy)]
struct Tally<'a>(&'a Cell<u64>);

impl Tally<'_> {
    fn count(self, operations: u64) -> Self {
        self.0.set(self.0.get() + operations);
        self
    }
}

impl Add for Tally<'_> {
    type Output = Self;
    fn add(self, _: Self) -> Self {
        self.count(1)
    }
}

impl Sub for Tally<'_> {
    type Output = Self;
    fn sub(self, _: Self) -> Self {
        self.count(1)
    }
}

impl Mul for Tally<'_> {
    type Output = Self;
    fn mul(self, _: Self) -> Self {
        self.count(1)
    }
}

impl Neg for Tally<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self
    }
}

impl Real for Tally<'_> {
    const SERIES_TERMS: usize = <Tensor<1> as Real>::SERIES_TERMS;

    fn scale(self, _: f64) -> Self {
        self.count(1)
    }
    fn offset(self, _: f64) -> Self {
        self.count(1)
    }
    fn mul_add(self, _: Self, _: f64) -> Self {
        self.count(2)
    }
    fn constant(&self, _: f64) -> Self {
        *self
    }
    fn exp(self) -> Self {
        self.count(1)
    }
    fn recip(self) -> Self {
        self.count(1)
    }
    fn choose_near(self, _: f64, _: Self, _: Self) -> Self {
        self
    }
    fn near_zero(self, _: f64) -> Self {
        self
    }
    fn away_from_zero(self, _: f64) -> Self {
        self
    }
    fn at_least(self, _: f64) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted by hand from the formulas.
    #[test]
    fn methods_take_what_their_formulas_say() {
        // T terms by Horner's rule take T − 1 multiplications and as many additions.
        let terms = |t: u64| 2 * (t - 1);
        // φ₃'s series down to φₖ, 1/x, and the closed form with its multiplication by 1/xᵏ.
        let phi = |k: u64| terms(14) + 2 * (3 - k) + 1 + [2, 4, 8][k as usize - 1];
        // φ₁′: eˣ·(x − 1) + 1 over x², and near 0 φ₂ + x·(φ₃ + x·φ₃′), each φ from its own series.
        let slope1 = 6 + terms(13) + (terms(14) + 2) + (terms(14) + 2 + 2);
        // delta·A and its exponential.
        let start = 2;
        for (method, exact, taylor) in [
            (Discretization::Zoh, start, start),
            // φ₂, times delta twice.
            (Discretization::Foh, start + phi(2) + 2, start + terms(4) + 2),
            // delta·A; 1 − x/2 and its reciprocal, twice; 2·that − 1; times delta.
            (Discretization::Bilinear, 1 + 3 + 3 + 2 + 1, 1 + 3 + 3 + 2 + 1),
            // φ₁ + ½·delta·φ₂, times delta.
            (
                Discretization::Poly,
                start + phi(1) + phi(2) + 1 + 1 + 1 + 1,
                start + terms(4) + terms(3) + 1 + 1 + 1 + 1,
            ),
            // (½·φ₃·delta + φ₂)·delta + φ₁, times delta.
            (
                Discretization::HighOrder,
                start + phi(1) + phi(2) + phi(3) + 1 + 2 + 2 + 1,
                start + terms(4) + terms(3) + terms(2) + 1 + 2 + 2 + 1,
            ),
            (Discretization::Rk4, start + terms(4) + 1, start + terms(4) + 1),
            (Discretization::ZohExact, start + phi(1) + 1, 0),
            // ½·delta, and ½·eˣ·delta.
            (Discretization::ExpTrapezoidal, start + 1 + 2, 0),
            (Discretization::FohLinear, start + phi(2) + 1 + slope1 + 1, 0),
            // 1/(1 − x/2) for each of three; 2·that − 1; half of it times delta, twice.
            (Discretization::Tustin, 1 + 3 * 3 + 2 + 2 * 2, 0),
        ] {
            for &series in method.series() {
                let count = if series == Series::Exact { exact } else { taylor };
                assert_eq!(method.operations(series), count, "{method}");
            }
        }
    }
}
