//! The derivatives of the coefficients in factored form.

use super::sums::{polynomial, total, weighted};
use super::{Coefficient, FactoredMethod, NEAR_FOR_SLOPES, TokenTerms};
use crate::discretization::phi::inverse_factorial;
use crate::discretization::term::Term;
use crate::real::Real;

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
                // For bilinear itself a kernel uses `bilinear.rs`; this is for methods that have
                // other terms too. With w = Σ cₚ·deltaᵖ: b = w·r and ∂r/∂x = ½r². In the derivative
                // by delta r² is factored out, so that nothing cancels at large |x|: p·r + ½x·r² =
                // r²·(p − (p − 1)·x/2).
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
}
