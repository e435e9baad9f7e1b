//! Coefficients that depend on x = delta·a only, up to a factor per token: `a_bar(x)` and
//! `b_bar = token_factor(delta)·ψ(x)`. The gradients of both by delta and by a pass through x once,
//! and are summed; the remaining ψ is what the gradient of u needs as well.
//!
//! A polynomial in x: `b_bar = delta·ψ(x)`, with `∂b_bar/∂delta = ψ + delta·ψ′·a` and
//! `∂b_bar/∂a = delta·ψ′·delta`. (For a ψ that stays bounded, as the inverse of bilinear, the first
//! expression would cancel at large |x|.)
//!
//! A single φ function above the first, evaluated exactly: `b_bar = w·deltaᵏ·φₖ(x)`, k ≥ 2, with
//! `∂b_bar/∂delta = w·deltaᵏ⁻¹·(k·φₖ + x·φₖ′)`, where at large |x| the second term cancels a k-th
//! of the first and no more (of φ₁ it would cancel all), and `∂b_bar/∂a = w·deltaᵏ⁺¹·φₖ′`. With
//! `v = x·log₂e` and `χₖ = (ln 2)ᵏ·φₖ`: near 0 `χₖ = (ln 2)ᵏ/k! + v·χₖ₊₁`, far from it
//! `χₖ = (χₖ₋₁ − (ln 2)ᵏ⁻¹/(k−1)!)/v`, `χ₀ = eˣ`, with constants known when a kernel is compiled.
//! So the only state term is a, and the token terms are delta and deltaᵏ. At v = 0 the closed form
//! is NaN, but the polynomial is selected.

use super::{
    Coefficient, DEGREE, FactoredCoefficients, FactoredMethod, NEAR, NEAR_FOR_SLOPES, TOP_DEGREE,
    TokenTerms, fitted_phi, polynomial,
};
use crate::discretization::phi::inverse_factorial;
use crate::discretization::{Decay, Gain};
use crate::real::{Real, Term};

/// ln 2.
const UNIT: f64 = std::f64::consts::LN_2;

/// Derivatives of coefficients that depend on delta and a only through x, up to the token factor.
/// With dx the gradient of x, the gradient of a is `delta·dx`, that of delta `a·dx` plus the part
/// of `token_factor′·ψ`.
pub(crate) struct ViaX<T> {
    pub(crate) a_bar: T,
    /// `∂a_bar/∂x` where it is not `a_bar` itself.
    pub(crate) decay_slope: Option<T>,
    /// ψ and ψ′ over their [factors](FactoredMethod::factors).
    pub(crate) gain: T,
    pub(crate) gain_slope: T,
}

impl FactoredMethod {
    /// The factor per token that [`Factored`](super::Coefficient::Factored) leaves out: a power of
    /// delta times a constant.
    pub(crate) fn token_factor<T: Real>(self, token: &TokenTerms<T>) -> T {
        let (power, factor) = self.token_factor_power();
        token.powers[power].clone().scale(factor).like(&token.delta)
    }

    /// Its derivative by delta.
    pub(crate) fn token_factor_slope<T: Real>(self, token: &TokenTerms<T>) -> T {
        let (power, factor) = self.token_factor_power();
        token.powers[power - 1].clone().scale(factor * power as f64).like(&token.delta)
    }

    fn token_factor_power(self) -> (usize, f64) {
        let of_phi = |(k, weight)| (k, weight / UNIT.powi(k as i32));
        self.phi_k().map_or((1, 1.0), of_phi)
    }

    /// Whether all gradients pass through x once, by [`Self::backward_via_x`].
    pub(crate) fn goes_via_x(self) -> bool {
        self.is_polynomial_in_x() || self.phi_k().is_some()
    }

    /// The derivatives, from [token terms](Self::backward_token) and [state
    /// terms](Self::backward_state).
    pub(crate) fn backward_via_x<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> ViaX<T> {
        match self.phi_k() {
            Some((k, _)) => phi_k_slopes(k, token, &state[0]),
            None => self.backward_polynomial(token, state),
        }
    }

    /// Whether `b_bar` is delta times a polynomial in x that is not constant.
    pub(crate) fn is_polynomial_in_x(self) -> bool {
        let first_power = |row: &[f64; 5]| row.iter().enumerate().all(|(p, &c)| p == 1 || c == 0.0);
        self.evaluates_no_phi()
            && !self.b_bar_is_per_token()
            && self.cayley() == [0.0; 5]
            && self.polynomial().iter().all(first_power)
    }

    /// The coefficients in v of ψ, or of its derivative by x.
    fn gain_terms<T>(self, slope: bool) -> Vec<Term<T>> {
        let table = self.polynomial();
        let terms = table.iter().enumerate().skip(usize::from(slope));
        terms
            .map(|(j, row)| {
                let (factor, power) = if slope { (j as f64, j - 1) } else { (1.0, j) };
                Term::Constant(row[1] * factor * UNIT.powi(power as i32))
            })
            .collect()
    }

    /// ψ at `v = x·log₂e`.
    pub(super) fn gain<T: Real>(self, v: &T) -> T {
        polynomial(&self.gain_terms(false), v).like(v)
    }

    /// The coefficients of `delta·ψ·u` in v, which are per token: driving a state needs no product
    /// with u.
    pub(crate) fn drive<T: Real>(self, token: &TokenTerms<T>, u: &T) -> Vec<Term<T>> {
        let step = token.delta.clone() * u.clone();
        self.gain_terms(false).into_iter().map(|term| term.times(&step)).collect()
    }

    /// `delta·ψ·u` from [these coefficients](Self::drive), for a state.
    pub(crate) fn driven<T: Real>(
        self,
        drive: &[Term<T>],
        token: &TokenTerms<T>,
        state: &[T],
    ) -> T {
        let v = token.scaled.clone() * state[0].clone();
        polynomial(drive, &v).like(&v)
    }

    /// ψ and the derivatives, from [token terms](Self::backward_token) and [state
    /// terms](Self::backward_state).
    pub(super) fn backward_polynomial<T: Real>(
        self,
        token: &TokenTerms<T>,
        state: &[T],
    ) -> ViaX<T> {
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, _, inverse) = self.decay(token, state, &v);
        let decay_slope = self.decay_slope(inverse);
        let (gain, gain_slope) = if let Some([alpha, beta, gamma, _]) = self.cubic() {
            let square = (v.clone() * v.clone()).offset(beta);
            let twice = v.clone().scale(2.0).offset(2.0 * alpha);
            let slope = v * twice.clone() + square.clone();
            ((twice * square).offset(2.0 * gamma), slope)
        } else {
            let slope = polynomial(&self.gain_terms(true), &v).like(&v);
            (self.gain(&v), slope)
        };
        ViaX { a_bar, decay_slope, gain, gain_slope }
    }

    /// Constant factors of ψ and ψ′. A token's sums are multiplied by them once.
    pub(crate) fn factors(self) -> [f64; 2] {
        self.cubic().map_or([1.0; 2], |[.., top]| [top / 2.0, top / UNIT])
    }

    /// α, β, γ and c of a cubic ψ, `c·((v + α)·(v² + β) + γ)`: with its derivative
    /// `c·((v² + β) + 2v·(v + α))` it takes four operations, where Horner's rule takes five for
    /// both.
    fn cubic(self) -> Option<[f64; 4]> {
        if !self.is_polynomial_in_x() {
            return None;
        }
        let coefficient = |(j, row): (usize, &[f64; 5])| row[1] * UNIT.powi(j as i32);
        let rising: Vec<f64> = self.polynomial().iter().enumerate().map(coefficient).collect();
        let [c0, c1, c2, c3] = rising.try_into().ok()?;
        let (alpha, beta) = (c2 / c3, c1 / c3);
        Some([alpha, beta, c0 / c3 - alpha * beta, c3])
    }

    /// `∂a_bar/∂x` where it is not `a_bar` itself: for the Cayley transform, the square of
    /// `1/(1 − x/2)`.
    pub(super) fn decay_slope<T: Real>(self, inverse: Option<T>) -> Option<T> {
        match self.form.decay {
            Decay::Cayley => inverse.map(|r| r.clone() * r),
            Decay::Exponential => None,
        }
    }

    /// k and w, if `b_bar` is `w·deltaᵏ·φₖ(x)` with k ≥ 2.
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
