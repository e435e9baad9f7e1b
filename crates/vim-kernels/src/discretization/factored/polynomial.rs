//! Methods whose `b_bar` is delta times a polynomial in x: `b_bar = delta·ψ(x)`.
//!
//! With `∂b_bar/∂delta = ψ + delta·ψ′·a` and `∂b_bar/∂a = delta·ψ′·delta`, the gradients of both
//! pass through x, like those of `a_bar`, and are summed with them; the remaining ψ is what the
//! gradient of u needs as well. (For a ψ that stays bounded, as the inverse of bilinear, the first
//! expression would cancel at large |x|.)

use super::sums::polynomial;
use super::{FactoredMethod, TokenTerms, ViaX};
use crate::discretization::Decay;
use crate::discretization::term::Term;
use crate::real::Real;

impl FactoredMethod {
    /// Whether the method has this form, and ψ is not constant.
    pub(crate) fn is_polynomial_in_x(self) -> bool {
        let first_power = |row: &[f64; 5]| row.iter().enumerate().all(|(p, &c)| p == 1 || c == 0.0);
        self.evaluates_no_phi()
            && !self.b_bar_is_per_token()
            && self.cayley() == [0.0; 5]
            && self.polynomial().iter().all(first_power)
    }

    /// The coefficients in v of ψ, or of its derivative by x.
    fn gain_terms<T>(self, slope: bool) -> Vec<Term<T>> {
        let unit = std::f64::consts::LN_2;
        let table = self.polynomial();
        let terms = table.iter().enumerate().skip(usize::from(slope));
        terms
            .map(|(j, row)| {
                let (factor, power) = if slope { (j as f64, j - 1) } else { (1.0, j) };
                Term::Constant(row[1] * factor * unit.powi(power as i32))
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
        let unit = std::f64::consts::LN_2;
        self.cubic().map_or([1.0; 2], |[.., top]| [top / 2.0, top / unit])
    }

    /// α, β, γ and c of a cubic ψ, `c·((v + α)·(v² + β) + γ)`: with its derivative
    /// `c·((v² + β) + 2v·(v + α))` it takes four operations, where Horner's rule takes five for
    /// both.
    fn cubic(self) -> Option<[f64; 4]> {
        if !self.is_polynomial_in_x() {
            return None;
        }
        let unit = std::f64::consts::LN_2;
        let coefficient = |(j, row): (usize, &[f64; 5])| row[1] * unit.powi(j as i32);
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
}
