//! The factored form for the backward scan: the coefficients once more, from fewer state terms, and
//! their derivatives.
//!
//! Those of the bilinear method both come from the Cayley transform: `a_bar = 2r − 1`, `b_bar =
//! delta·r`, `r = 1/(1 − x/2)`. As `∂r/∂x = ½r²`, `∂a_bar/∂x` and `∂b_bar/∂delta` are r², and
//! `∂b_bar/∂a` is ½delta²·r²: every gradient takes r once or twice. The derivative by delta has no
//! subtraction, so nothing cancels at large |x|.
//!
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
    Coefficient, FactoredCoefficients, Fit, SMALLEST_RATE, Table, TokenTerms, UNIT, fitted_phi,
    polynomial, total, weighted,
};
use crate::discretization::phi::inverse_factorial;
use crate::discretization::{Decay, Form};
use vim_kernels_core::{Real, Term};

/// The coefficients with their derivatives.
pub(crate) struct FactoredSlopes<T> {
    pub(crate) a_bar: T,
    /// `∂a_bar/∂x` where it is not `a_bar` itself.
    pub(crate) decay_slope: Option<T>,
    pub(crate) b_bar: Coefficient<T>,
    /// `∂b_bar/∂delta`.
    pub(crate) d_delta: Coefficient<T>,
    /// `∂b_bar/∂a`, absent where it is zero.
    pub(crate) d_a: Option<T>,
}

/// Derivatives of coefficients that depend on delta and a only through x, up to the token factor.
/// With dx the gradient of x, the gradient of a is `delta·dx`, that of delta `a·dx` plus the part
/// of `token_factor′·ψ`.
pub(crate) struct ViaX<T> {
    pub(crate) a_bar: T,
    /// `∂a_bar/∂x` where it is not `a_bar` itself.
    pub(crate) decay_slope: Option<T>,
    /// ψ and ψ′ over their [factors](Form::factors).
    pub(crate) gain: T,
    pub(crate) gain_slope: T,
}

impl<T: Real> Coefficient<T> {
    pub(crate) fn value(&self, token_factor: &T) -> T {
        match self {
            Self::PerToken(value) | Self::PerState(value) => value.clone(),
            Self::Factored(value) => value.clone() * token_factor.clone(),
        }
    }
}

impl Form {
    /// Number of terms in [`Self::backward_state`].
    pub(crate) fn backward_state_len(self) -> usize {
        if self.highest() == 0 || self.phi_k().is_some() || self.two_taps() { 1 } else { 2 }
    }

    /// Terms of a state with rate `a` for the backward scan.
    pub(crate) fn backward_state<T: Real>(self, a: T) -> Vec<T> {
        if self.backward_state_len() == 1 {
            return vec![a];
        }
        let inverse = a.clone().away_from_zero(SMALLEST_RATE).recip();
        vec![a, inverse]
    }

    /// Terms of a token for the backward scan.
    pub(crate) fn backward_token<T: Real>(self, delta: T) -> TokenTerms<T> {
        let top = self.highest() + 1;
        let mut near = Table::new();
        if self.highest() > 0 && self.phi_k().is_none() && !self.two_taps() {
            let fit = self.fit();
            for c in fitted_phi(top, fit.top + 1, fit.slopes) {
                let mut row = [0.0; 5];
                row[top] = c;
                near.push(row);
            }
        }
        self.of_token(delta, &near, true)
    }

    /// [`forward`](Self::forward) from [backward state terms](Self::backward_state): fewer
    /// registers, more arithmetic.
    pub(crate) fn recompute_forward<T: Real>(
        self,
        token: &TokenTerms<T>,
        state: &[T],
    ) -> FactoredCoefficients<T> {
        if let Some(previous) = self.previous {
            return self.taps_forward(previous, token, state);
        }
        if let Some((k, _)) = self.phi_k() {
            return phi_k_coefficients(k, self.fit(), token, &state[0]);
        }
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, exp, inverse) = self.decay_at(token, state, &v);
        let far = match state {
            [_, rate_inverse] => {
                let f = self.far(self.highest(), token, exp, rate_inverse);
                Some(self.combined(&v, |k| (1.0, f[k].clone())))
            }
            _ => None,
        };
        self.finish_forward(token, v, a_bar, inverse, far)
    }

    /// The coefficients and their derivatives from [token terms](Self::backward_token) and [state
    /// terms](Self::backward_state).
    pub(crate) fn backward<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> FactoredSlopes<T> {
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, exp, inverse) = self.decay_at(token, state, &v);
        let decay_slope = self.decay_slope(inverse.clone());
        let exact = self.exact_slopes(token, state, &v, exp);
        let [exact_b, exact_delta, exact_a] = match exact {
            Some(parts) => parts.map(Some),
            None => [None, None, None],
        };
        let [cayley_b, cayley_delta, cayley_a] = match inverse {
            Some(r) if self.cayley() != [0.0; 5] => {
                // For bilinear itself a kernel uses `backward_bilinear`; this is for methods that
                // have other terms too. With w = Σ cₚ·deltaᵖ: b = w·r and ∂r/∂x = ½r². In the
                // derivative by delta r² is factored out, so that nothing cancels at large |x|:
                // p·r + ½x·r² = r²·(p − (p − 1)·x/2).
                let weights = self.cayley();
                let w = weighted(&weights, &token.powers);
                let (mut first, mut second) = ([0.0; 5], [0.0; 5]);
                for p in 1..5 {
                    first[p - 1] = p as f64 * weights[p];
                    second[p] = -0.5 * (p - 1) as f64 * weights[p];
                }
                let square = r.clone() * r.clone();
                let slope = weighted(&second, &token.powers)
                    .times(&state[0])
                    .plus(weighted(&first, &token.powers));
                [
                    Some(w.clone().times(&r)),
                    Some(slope.times(&square)),
                    Some(w.times(&square).scale(0.5).times(&token.delta)),
                ]
            }
            _ => [None, None, None],
        };
        let of_token = token.polynomial.len() <= 1;
        let no_a = exact_a.is_none() && cayley_a.is_none() && token.d_a.is_empty();
        let d_a =
            total(exact_a, polynomial(&token.d_a, &v), cayley_a, false, &v).value(&token.delta);
        FactoredSlopes {
            b_bar: total(exact_b, polynomial(&token.polynomial, &v), cayley_b, of_token, &v),
            d_delta: total(exact_delta, polynomial(&token.d_delta, &v), cayley_delta, of_token, &v),
            d_a: (!no_a).then_some(d_a),
            a_bar,
            decay_slope,
        }
    }

    /// `Σ wₖ·fₖ` and its derivatives by delta and by a.
    fn exact_slopes<T: Real>(
        self,
        token: &TokenTerms<T>,
        state: &[T],
        v: &T,
        exp: T,
    ) -> Option<[T; 3]> {
        let highest = self.highest();
        let [a, inverse] = state else { return None };
        let bound = self.fit().slopes * std::f64::consts::LOG2_E;
        // near[k] for k = 1 … K + 1; far[k] for k = 0 … K.
        let mut near = vec![polynomial(&token.near, v).like(v)];
        for k in (1..=highest).rev() {
            let last = near[near.len() - 1].clone();
            let step = token.powers[k].clone().scale(inverse_factorial(k));
            near.push(Term::Of(a.clone() * last).plus(step).like(v));
        }
        near.push(exp.clone());
        near.reverse();
        // With f of K + 1 far from 0, too, the derivative by a needs no closed form of its own; at
        // the bound that f errs by 2e-4.
        let last = if self.coarse { highest + 1 } else { highest };
        let far = self.far(last, token, exp.clone(), inverse);
        let mut f = vec![exp];
        for k in 1..=last {
            f.push(v.clone().choose_near(bound, near[k].clone(), far[k].clone()));
        }
        let sum = |of: &dyn Fn(usize) -> (f64, T)| self.combined(v, of);
        let b = sum(&|k| (1.0, f[k].clone()));
        let d_delta = sum(&|k| (1.0, f[k - 1].clone()));
        if self.coarse {
            let d_a = token.delta.clone() * b.clone() - sum(&|k| (k as f64, f[k + 1].clone()));
            return Some([b, d_delta, d_a]);
        }
        let d_a_near = token.delta.clone() * b.clone() - sum(&|k| (k as f64, near[k + 1].clone()));
        let d_a_far = (token.delta.clone() * d_delta.clone()
            - sum(&|k| (k as f64, far[k].clone())))
            * inverse.clone();
        let d_a = v.clone().choose_near(bound, d_a_near, d_a_far);
        Some([b, d_delta, d_a])
    }

    /// `f₀ … f_last` far from 0.
    fn far<T: Real>(self, last: usize, token: &TokenTerms<T>, exp: T, inverse: &T) -> Vec<T> {
        let mut far = vec![exp.clone()];
        if last > 0 {
            // One multiply-add, where (eˣ − 1)/a would be two operations.
            far.push(exp * inverse.clone() - inverse.clone());
        }
        for k in 2..=last {
            let step = token.powers[k - 1].clone().scale(-inverse_factorial(k - 1));
            let next = Term::Of(far[k - 1].clone()).plus(step).times(inverse);
            far.push(next.like(inverse));
        }
        far
    }

    /// `Σ wₖ·factor·value` over the values of `of` for every k in use.
    fn combined<T: Real>(self, like: &T, of: impl Fn(usize) -> (f64, T)) -> T {
        let weights = self.weights();
        (1..=self.highest())
            .filter(|&k| weights[k - 1] != 0.0)
            .map(|k| {
                let (factor, value) = of(k);
                Term::Of(value).scale(factor * weights[k - 1])
            })
            .fold(Term::Constant(0.0), Term::plus)
            .like(like)
    }

    /// Whether all gradients pass through x once, by [`Self::backward_via_x`].
    pub(crate) fn goes_via_x(self) -> bool {
        self.is_polynomial_in_x() || self.phi_k().is_some()
    }

    /// The derivatives, from [token terms](Self::backward_token) and [state
    /// terms](Self::backward_state).
    pub(crate) fn backward_via_x<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> ViaX<T> {
        match self.phi_k() {
            Some((k, _)) => phi_k_slopes(k, self.fit(), token, &state[0]),
            None => self.backward_polynomial(token, state),
        }
    }

    /// ψ and the derivatives, from [token terms](Self::backward_token) and [state
    /// terms](Self::backward_state).
    pub(super) fn backward_polynomial<T: Real>(
        self,
        token: &TokenTerms<T>,
        state: &[T],
    ) -> ViaX<T> {
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, _, inverse) = self.decay_at(token, state, &v);
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
        match self.decay {
            Decay::Cayley => inverse.map(|r| r.clone() * r),
            Decay::Exponential => None,
        }
    }

    /// Its derivative by delta.
    pub(crate) fn token_factor_slope<T: Real>(self, token: &TokenTerms<T>) -> T {
        let (power, factor) = self.token_factor_power();
        token.powers[power - 1].clone().scale(factor * power as f64).like(&token.delta)
    }

    pub(super) fn token_factor_power(self) -> (usize, f64) {
        let of_phi = |(k, weight)| (k, weight / UNIT.powi(k as i32));
        let one = if self.is_tustin() { 0.5 } else { 1.0 };
        self.phi_k().map_or((1, one), of_phi)
    }

    /// k and w, if `b_bar` is `w·deltaᵏ·φₖ(x)` with k ≥ 2.
    pub(super) fn phi_k(self) -> Option<(usize, f64)> {
        let weights = self.weights();
        let k = self.highest();
        let alone = k >= 2 && weights.iter().filter(|&&w| w != 0.0).count() == 1;
        let rest = self.polynomial().iter().any(|row| row.iter().any(|&c| c != 0.0))
            || self.cayley() != [0.0; 5];
        let one_tap = !self.two_taps();
        let alone = alone && one_tap && !rest && self.decay == Decay::Exponential;
        alone.then(|| (k, weights[k - 1]))
    }

    /// Whether the method is bilinear.
    pub(crate) fn is_bilinear(self) -> bool {
        self.decay == Decay::Cayley
            && self.evaluates_no_phi()
            && self.polynomial().is_empty()
            && self.cayley() == [0.0, 1.0, 0.0, 0.0, 0.0]
    }

    /// r, from [token terms](Self::backward_token) and [state terms](Self::backward_state).
    pub(crate) fn backward_bilinear<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> T {
        self.inverse(token, state).expect("invariant: its decay is of the Cayley transform")
    }
}

/// `a_bar`, and `b_bar` divided by [`Form::token_factor`], from token terms and a rate.
fn phi_k_coefficients<T: Real>(
    k: usize,
    fit: Fit,
    token: &TokenTerms<T>,
    a: &T,
) -> FactoredCoefficients<T> {
    let v = token.scaled.clone() * a.clone();
    let exp = v.clone().exp2();
    let near = fitted_chi(k, fit.degree + 1, fit.near, &v);
    let [_, far] = far_chi(k, &v.clone().recip(), exp.clone());
    let chi = v.choose_near(fit.near / UNIT, near, far);
    FactoredCoefficients { a_bar: exp, b_bar: Coefficient::Factored(chi), b_prev: None }
}

/// The same with its derivative, `(ln 2)ᵏ·φₖ′`.
fn phi_k_slopes<T: Real>(k: usize, fit: Fit, token: &TokenTerms<T>, a: &T) -> ViaX<T> {
    let v = token.scaled.clone() * a.clone();
    let exp = v.clone().exp2();
    let ratio = -(k as f64) / UNIT;
    // φₖ′ = φₖ − k·φₖ₊₁ near 0, and (φₖ₋₁ − k·φₖ)/x far from it.
    let above = fitted_chi(k + 1, fit.top + 1, fit.slopes, &v);
    let near = above.clone().mul_add(v.clone(), chi_at_zero(k));
    let near_slope = above.scale(ratio) + near.clone();
    let inverse = v.clone().recip();
    let [below, far] = far_chi(k, &inverse, exp.clone());
    // (χₖ₋₁·ln2 − k·χₖ)/v, over ln2.
    let far_slope = (far.clone().scale(ratio) + below) * inverse;
    let bound = fit.slopes / UNIT;
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

/// `χₖ` by the polynomial with `count` coefficients that fits it for |x| < `bound`.
fn fitted_chi<T: Real>(k: usize, count: usize, bound: f64, v: &T) -> T {
    let rising = fitted_phi(k, count, bound);
    let coefficient = |j: usize| rising[j] * UNIT.powi((j + k) as i32);
    let last = v.clone().scale(coefficient(count - 1)).offset(coefficient(count - 2));
    (0..count - 2).rev().fold(last, |sum, j| sum.mul_add(v.clone(), coefficient(j)))
}

/// `χₖ₋₁` and `χₖ` by their closed form, from 1/v and eˣ.
fn far_chi<T: Real>(k: usize, inverse: &T, exp: T) -> [T; 2] {
    // One multiply-add, where (eˣ − 1)/v would be two operations.
    let first = exp.clone() * inverse.clone() - inverse.clone();
    (2..=k).fold([exp, first], |[_, below], k| {
        [below.clone(), below.offset(-chi_at_zero(k - 1)) * inverse.clone()]
    })
}
