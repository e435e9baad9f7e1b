//! Methods whose `b_bar` is a single φ function above the first, evaluated exactly:
//! `b_bar = w·deltaᵏ·φₖ(x)`, k ≥ 2.
//!
//! As for a polynomial in x (`polynomial.rs`), a gradient passes through x once:
//! `∂b_bar/∂delta = w·deltaᵏ⁻¹·(k·φₖ + x·φₖ′)`, where at large |x| the second term cancels a k-th
//! of the first and no more (of φ₁ it would cancel all), and `∂b_bar/∂a = w·deltaᵏ⁺¹·φₖ′`.
//!
//! With `v = x·log₂e` and `χₖ = (ln 2)ᵏ·φₖ`: near 0 `χₖ = (ln 2)ᵏ/k! + v·χₖ₊₁`, far from it
//! `χₖ = (χₖ₋₁ − (ln 2)ᵏ⁻¹/(k−1)!)/v`, `χ₀ = eˣ`, with constants known when a kernel is compiled.
//! So the only state term is a, and the token terms are delta and deltaᵏ. At v = 0 the closed form
//! is NaN, but the polynomial is selected.

use super::{
    Coefficient, DEGREE, FactoredCoefficients, FactoredMethod, NEAR, NEAR_FOR_SLOPES, TOP_DEGREE,
    TokenTerms, ViaX,
};
use crate::discretization::phi::{fitted_phi, inverse_factorial};
use crate::discretization::{Decay, Gain};
use crate::real::Real;

/// ln 2.
const UNIT: f64 = std::f64::consts::LN_2;

impl FactoredMethod {
    /// k and w, if the method has this form.
    pub(super) fn phi_k(self) -> Option<(usize, f64)> {
        let weights = self.weights();
        let k = self.highest();
        let alone = k >= 2 && weights.iter().filter(|&&w| w != 0.0).count() == 1;
        let rest = self.polynomial().iter().any(|row| row.iter().any(|&c| c != 0.0))
            || self.form.gains.contains(&Gain::Cayley);
        (alone && !rest && self.form.decay == Decay::Exponential).then(|| (k, weights[k - 1]))
    }
}

/// `a_bar`, and `b_bar` divided by [`FactoredMethod::token_factor`], from token terms and a rate.
pub(super) fn phi_k_coefficients<T: Real>(
    k: usize,
    token: &TokenTerms<T>,
    a: &T,
) -> FactoredCoefficients<T> {
    let v = token.scaled.clone() * a.clone();
    let exp = v.clone().exp2();
    let near = fitted_chi::<{ DEGREE + 1 }, T>(k, NEAR, &v);
    let [_, far] = far_chi(k, &v.clone().recip(), exp.clone());
    let chi = v.choose_near(NEAR / UNIT, near, far);
    FactoredCoefficients { a_bar: exp, b_bar: Coefficient::Factored(chi) }
}

/// The same with its derivative, `(ln 2)ᵏ·φₖ′`.
pub(super) fn phi_k_slopes<T: Real>(k: usize, token: &TokenTerms<T>, a: &T) -> ViaX<T> {
    let v = token.scaled.clone() * a.clone();
    let exp = v.clone().exp2();
    let ratio = -(k as f64) / UNIT;
    // φₖ′ = φₖ − k·φₖ₊₁ near 0, and (φₖ₋₁ − k·φₖ)/x far from it.
    let above = fitted_chi::<{ TOP_DEGREE + 1 }, T>(k + 1, NEAR_FOR_SLOPES, &v);
    let near = above.clone().mul_add(v.clone(), chi_at_zero(k));
    let near_slope = above.scale(ratio) + near.clone();
    let inverse = v.clone().recip();
    let [below, far] = far_chi(k, &inverse, exp.clone());
    // (χₖ₋₁·ln2 − k·χₖ)/v, over ln2.
    let far_slope = (far.clone().scale(ratio) + below) * inverse;
    let bound = NEAR_FOR_SLOPES / UNIT;
    ViaX {
        a_bar: exp,
        decay_slope: None,
        gain: v.clone().choose_near(bound, near, far),
        gain_slope: v.choose_near(bound, near_slope, far_slope),
    }
}

/// `χₖ(0)`.
fn chi_at_zero(k: usize) -> f64 {
    UNIT.powi(k as i32) * inverse_factorial(k)
}

/// `χₖ` by the polynomial with `N` coefficients that fits it for |x| < `bound`.
fn fitted_chi<const N: usize, T: Real>(k: usize, bound: f64, v: &T) -> T {
    let rising = fitted_phi::<N>(k, bound);
    let coefficient = |j: usize| rising[j] * UNIT.powi((j + k) as i32);
    let last = v.clone().scale(coefficient(N - 1)).offset(coefficient(N - 2));
    (0..N - 2).rev().fold(last, |sum, j| sum.mul_add(v.clone(), coefficient(j)))
}

/// `χₖ₋₁` and `χₖ` by their closed form, from 1/v and eˣ.
fn far_chi<T: Real>(k: usize, inverse: &T, exp: T) -> [T; 2] {
    // One multiply-add, where (eˣ − 1)/v would be two operations.
    let first = exp.clone() * inverse.clone() - inverse.clone();
    (2..=k).fold([exp, first], |[_, below], k| {
        [below.clone(), below.offset(-chi_at_zero(k - 1)) * inverse.clone()]
    })
}
