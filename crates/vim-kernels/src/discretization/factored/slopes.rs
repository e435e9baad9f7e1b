//! The factored form for the backward scan: the coefficients once more, from fewer state terms, and
//! their derivatives.
//!
//! Those of the bilinear method both come from the Cayley transform: `a_bar = 2r − 1`, `b_bar =
//! delta·r`, `r = 1/(1 − x/2)`. As `∂r/∂x = ½r²`, `∂a_bar/∂x` and `∂b_bar/∂delta` are r², and
//! `∂b_bar/∂a` is ½delta²·r²: every gradient takes r once or twice. The derivative by delta has no
//! subtraction, so nothing cancels at large |x|.

use super::via_x::phi_k_coefficients;
use super::{
    Coefficient, FactoredCoefficients, FactoredMethod, NEAR_FOR_SLOPES, SMALLEST_RATE, TOP_DEGREE,
    Table, TokenTerms, fitted_phi, polynomial, total, weighted,
};
use crate::discretization::Decay;
use crate::discretization::phi::inverse_factorial;
use crate::real::{Real, Term};

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

impl FactoredMethod {
    /// Number of terms in [`Self::backward_state`].
    pub(crate) fn backward_state_len(self) -> usize {
        if self.highest() == 0 || self.phi_k().is_some() { 1 } else { 2 }
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
        if self.highest() > 0 && self.phi_k().is_none() {
            for c in fitted_phi::<{ TOP_DEGREE + 1 }>(top, NEAR_FOR_SLOPES) {
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
        if let Some((k, _)) = self.phi_k() {
            return phi_k_coefficients(k, token, &state[0]);
        }
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, exp, inverse) = self.decay(token, state, &v);
        let far = match state {
            [_, rate_inverse] => {
                let f = self.far(token, exp, rate_inverse);
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
        let (a_bar, exp, inverse) = self.decay(token, state, &v);
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
        let bound = NEAR_FOR_SLOPES * std::f64::consts::LOG2_E;
        // near[k] for k = 1 … K + 1; far[k] for k = 0 … K.
        let mut near = vec![polynomial(&token.near, v).like(v)];
        for k in (1..=highest).rev() {
            let last = near[near.len() - 1].clone();
            let step = token.powers[k].clone().scale(inverse_factorial(k));
            near.push(Term::Of(a.clone() * last).plus(step).like(v));
        }
        near.push(exp.clone());
        near.reverse();
        let far = self.far(token, exp.clone(), inverse);
        let mut f = vec![exp];
        for k in 1..=highest {
            f.push(v.clone().choose_near(bound, near[k].clone(), far[k].clone()));
        }
        let sum = |of: &dyn Fn(usize) -> (f64, T)| self.combined(v, of);
        let b = sum(&|k| (1.0, f[k].clone()));
        let d_delta = sum(&|k| (1.0, f[k - 1].clone()));
        let d_a_near = token.delta.clone() * b.clone() - sum(&|k| (k as f64, near[k + 1].clone()));
        let d_a_far = (token.delta.clone() * d_delta.clone()
            - sum(&|k| (k as f64, far[k].clone())))
            * inverse.clone();
        let d_a = v.clone().choose_near(bound, d_a_near, d_a_far);
        Some([b, d_delta, d_a])
    }

    /// `f₀ … f_K` far from 0.
    fn far<T: Real>(self, token: &TokenTerms<T>, exp: T, inverse: &T) -> Vec<T> {
        let mut far = vec![exp.clone()];
        if self.highest() > 0 {
            // One multiply-add, where (eˣ − 1)/a would be two operations.
            far.push(exp * inverse.clone() - inverse.clone());
        }
        for k in 2..=self.highest() {
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

    /// Whether the method is bilinear.
    pub(crate) fn is_bilinear(self) -> bool {
        self.form.decay == Decay::Cayley
            && self.evaluates_no_phi()
            && self.polynomial().is_empty()
            && self.cayley() == [0.0, 1.0, 0.0, 0.0, 0.0]
    }

    /// r, from [token terms](Self::backward_token) and [state terms](Self::backward_state).
    pub(crate) fn backward_bilinear<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> T {
        self.inverse(token, state).expect("invariant: its decay is of the Cayley transform")
    }
}
