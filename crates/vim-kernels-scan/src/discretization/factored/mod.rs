//! The coefficients in factored form: terms of a token are computed once for all its states, and
//! terms of a state once for all tokens. A GPU kernel is bound by its instructions per (token,
//! state), and this form needs the fewest. [`crate::discretize`] is the plain form that this one is
//! tested against.
//!
//! With `x = delta·a` and `fₖ = deltaᵏ·φₖ(x)`, the exact methods need `Σ wₖ·fₖ`. Far from 0,
//! `f₀ = eˣ` and `fₖ = (fₖ₋₁ − deltaᵏ⁻¹/(k−1)!)/a`, which unrolls to a polynomial of degree one in
//! eˣ and k − 1 in x with coefficients per state. Near 0, `fₖ = deltaᵏ/k! + a·fₖ₊₁` from a
//! polynomial in x with coefficients per token. The derivatives are members of the same family:
//! `∂fₖ/∂delta = fₖ₋₁`, `∂fₖ/∂a = (delta·fₖ₋₁ − k·fₖ)/a = delta·fₖ − k·fₖ₊₁`, the first without
//! cancellation far from 0, the second near it.

mod slopes;
mod taps;
#[cfg(test)]
mod tests;

use super::phi::inverse_factorial;
use super::{Decay, Form, Gain, Series};
use vim_kernels_core::{Real, Term};

pub(crate) use taps::TapSlopes;

/// ln 2.
const UNIT: f64 = std::f64::consts::LN_2;

/// |a| is clamped to at least this before a division by its cube.
const SMALLEST_RATE: f64 = 1e-12;

/// Coefficients of `delta^p·x^j`, by j and then p.
type Table = Vec<[f64; 5]>;

/// A coefficient: per token, per (token, state), or per (token, state) with
/// [`Form::token_factor`] divided out.
#[derive(Clone)]
pub(crate) enum Coefficient<T> {
    PerToken(T),
    PerState(T),
    Factored(T),
}

/// The coefficients of a token and a state.
pub(crate) struct FactoredCoefficients<T> {
    pub(crate) a_bar: T,
    pub(crate) b_bar: Coefficient<T>,
    /// Of the token before, over [`Form::token_factor`].
    pub(crate) b_prev: Option<T>,
}

/// Terms of a token.
pub(crate) struct TokenTerms<T> {
    pub(crate) delta: T,
    /// `delta·log₂e`: times `a` it is the argument of 2ˣ.
    scaled: T,
    /// `−delta/2`: times `a` it is the `−x/2` of `1/(1 − x/2)`.
    half: T,
    near: Vec<Term<T>>,
    polynomial: Vec<Term<T>>,
    d_delta: Vec<Term<T>>,
    d_a: Vec<Term<T>>,
    powers: [Term<T>; 5],
}

/// Which polynomials stand for the φ functions near 0, and how near.
#[derive(Clone, Copy)]
struct Fit {
    /// |x| below which `b_bar` is one.
    near: f64,
    degree: usize,
    /// |x| below which the derivatives are; their closed forms lose more bits.
    slopes: f64,
    /// Degree of that which the backward recurrence starts from, for the φ after the highest one
    /// used: each step down multiplies its error by x/k.
    top: usize,
}

/// For results in f32: `b_bar` to 4.5e-6 of φ₁, better for the others; the closed form of φ₂ loses
/// 5 bits at the bound. φ₂ below φ₃ is accurate to 6e-7.
const FINE: Fit = Fit { near: 0.25, degree: 3, slopes: 0.5, top: 4 };

/// For a mixer in 16 bits: `b_bar` to 2e-4, the derivatives to 3e-4; beyond |x| = 1000 that by a
/// cancels, and is good to 2e-7 of delta·b_bar.
const COARSE: Fit = Fit { near: 0.15, degree: 2, slopes: 0.36, top: 2 };

/// The same for φₖ alone.
const COARSE_ALONE: Fit = Fit { near: 0.05, degree: 1, ..COARSE };

impl Form {
    /// Whether no φ function is evaluated exactly.
    pub(crate) fn evaluates_no_phi(self) -> bool {
        self.highest() == 0
    }

    /// Whether `b_bar` depends on the token alone.
    pub(crate) fn b_bar_is_per_token(self) -> bool {
        self.evaluates_no_phi() && self.cayley() == [0.0; 5] && self.polynomial().len() <= 1
    }

    /// Whether the decay over several tokens depends only on the sum of their deltas:
    /// `e^(a·Σdelta)`.
    pub(crate) fn decays_by_sum(self) -> bool {
        self.decay == Decay::Exponential
    }

    /// The decay over tokens whose deltas sum to `total`, where [`Self::decays_by_sum`].
    pub(crate) fn decay_over<T: Real>(self, total: T, state: &[T]) -> T {
        (total.scale(std::f64::consts::LOG2_E) * state[0].clone()).exp2()
    }

    /// Whether the method reads the token before.
    pub(crate) fn two_taps(self) -> bool {
        self.previous.is_some()
    }

    /// Number of terms in [`Self::state`].
    pub(crate) fn state_len(self) -> usize {
        if self.two_taps() { 1 } else { 1 + self.highest() }
    }

    /// Terms of a state with rate `a` for the forward scan.
    pub(crate) fn state<T: Real>(self, a: T) -> Vec<T> {
        let (weights, highest) = (self.weights(), self.highest());
        if self.state_len() == 1 {
            return vec![a];
        }
        // b = eˣ·far₁ − far₁ − x·Σ_{k≥2} wₖ/aᵏ − x²·½w₃/a³, with x = ln2·v.
        let inverse = a.clone().away_from_zero(SMALLEST_RATE).recip();
        let by_power = |[w1, w2, w3]: [f64; 3]| {
            let zero = || Term::Constant(0.0);
            let term = |w: f64, powers: usize| {
                if w == 0.0 {
                    return zero();
                }
                let power = (1..powers).fold(inverse.clone(), |p, _| p * inverse.clone());
                Term::Of(power).scale(w)
            };
            term(w1, 1).plus(term(w2, 2)).plus(term(w3, 3)).like(&inverse)
        };
        let [_, w2, w3] = weights;
        let mut terms = vec![a, by_power(weights)];
        if highest >= 2 {
            terms.push(by_power([0.0, -UNIT * w2, -UNIT * w3]));
        }
        if highest >= 3 {
            terms.push(by_power([0.0, 0.0, -0.5 * UNIT * UNIT * w3]));
        }
        terms
    }

    /// Terms of a token for the forward scan.
    pub(crate) fn token<T: Real>(self, delta: T) -> TokenTerms<T> {
        let weights = self.weights();
        let fit = self.fit();
        let highest = self.state_len() - 1;
        let mut near = vec![[0.0; 5]; if highest > 0 { fit.degree + 1 } else { 0 }];
        for k in 1..=highest {
            for (j, c) in fitted_phi(k, fit.degree + 1, fit.near).into_iter().enumerate() {
                near[j][k] += weights[k - 1] * c;
            }
        }
        self.of_token(delta, &near, false)
    }

    fn of_token<T: Real>(self, delta: T, near: &Table, slopes: bool) -> TokenTerms<T> {
        let d2 = delta.clone() * delta.clone();
        let d3 = d2.clone() * delta.clone();
        let d4 = d2.clone() * d2.clone();
        let powers = [
            Term::Constant(1.0),
            Term::Of(delta.clone()),
            Term::Of(d2),
            Term::Of(d3),
            Term::Of(d4),
        ];
        let polynomial = if self.is_polynomial_in_x() { Table::new() } else { self.polynomial() };
        let (mut d_delta, mut d_a) = (Table::new(), Table::new());
        if slopes {
            for (j, row) in polynomial.iter().enumerate() {
                let (mut by_delta, mut by_a) = ([0.0; 5], [0.0; 5]);
                for p in 1..4 {
                    by_delta[p - 1] = (p + j) as f64 * row[p];
                    by_a[p + 1] = j as f64 * row[p];
                }
                d_delta.push(by_delta);
                if j > 0 {
                    d_a.push(by_a);
                }
            }
        }
        let collapse = |table: &Table| {
            let scaled = |(j, row): (usize, &[f64; 5])| row.map(|c| c * UNIT.powi(j as i32));
            table.iter().enumerate().map(|row| weighted(&scaled(row), &powers)).collect()
        };
        TokenTerms {
            scaled: delta.clone().scale(std::f64::consts::LOG2_E),
            half: delta.clone().scale(-0.5),
            near: collapse(near),
            polynomial: collapse(&polynomial),
            d_delta: collapse(&d_delta),
            d_a: collapse(&d_a),
            delta,
            powers: powers.clone(),
        }
    }

    /// `a_bar` and `b_bar` from [token terms](Self::token) and [state terms](Self::state).
    pub(crate) fn forward<T: Real>(
        self,
        token: &TokenTerms<T>,
        state: &[T],
    ) -> FactoredCoefficients<T> {
        if let Some(previous) = self.previous {
            return self.taps_forward(previous, token, state);
        }
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, exp, inverse) = self.decay_at(token, state, &v);
        let far = match state {
            [_, k1] => Some(exp * k1.clone() - k1.clone()),
            [_, k1, k2] => Some(exp * k1.clone() + (v.clone() * k2.clone() - k1.clone())),
            [_, k1, k2, k3] => {
                let inner = v.clone() * k3.clone() + k2.clone();
                Some(exp * k1.clone() + (v.clone() * inner - k1.clone()))
            }
            _ => None,
        };
        self.finish_forward(token, v, a_bar, inverse, far)
    }

    fn finish_forward<T: Real>(
        self,
        token: &TokenTerms<T>,
        v: T,
        a_bar: T,
        inverse: Option<T>,
        far: Option<T>,
    ) -> FactoredCoefficients<T> {
        let b_prev = None;
        if self.is_polynomial_in_x() {
            let b_bar = Coefficient::Factored(self.gain(&v));
            return FactoredCoefficients { a_bar, b_bar, b_prev };
        }
        if let Some(inverse) = inverse.clone().filter(|_| self.is_bilinear()) {
            return FactoredCoefficients { a_bar, b_bar: Coefficient::Factored(inverse), b_prev };
        }
        let exact = far.map(|far| {
            let near = polynomial(&token.near, &v).like(&v);
            v.clone().choose_near(self.fit().near * std::f64::consts::LOG2_E, near, far)
        });
        let plain = polynomial(&token.polynomial, &v);
        let cayley = inverse.map(|r| weighted(&self.cayley(), &token.powers).times(&r));
        FactoredCoefficients {
            a_bar,
            b_bar: total(exact, plain, cayley, token.polynomial.len() <= 1, &v),
            b_prev,
        }
    }

    /// `a_bar`, eˣ and `1/(1 − x/2)`, the last where it is used.
    fn decay_at<T: Real>(self, token: &TokenTerms<T>, state: &[T], v: &T) -> (T, T, Option<T>) {
        match self.decay {
            Decay::Exponential => {
                let exp = v.clone().exp2();
                (exp.clone(), exp, self.inverse(token, state))
            }
            Decay::Cayley => {
                let r = self.inverse(token, state).unwrap_or_else(|| v.constant(1.0));
                let a_bar = r.clone().scale(2.0).offset(-1.0);
                // An eˣ that no gain uses emits no code.
                let exp = if self.highest() > 0 { v.clone().exp2() } else { v.clone() };
                (a_bar, exp, Some(r))
            }
        }
    }

    fn inverse<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> Option<T> {
        let used = self.decay == Decay::Cayley || self.cayley() != [0.0; 5];
        used.then(|| (token.half.clone() * state[0].clone()).offset(1.0).recip())
    }

    /// The factor per token that [`Coefficient::Factored`] leaves out: a power of delta times a
    /// constant.
    pub(crate) fn token_factor<T: Real>(self, token: &TokenTerms<T>) -> T {
        let (power, factor) = self.token_factor_power();
        token.powers[power].clone().scale(factor).like(&token.delta)
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

    /// Weights of the φ functions that are evaluated exactly.
    fn weights(self) -> [f64; 3] {
        let mut weights = [0.0; 3];
        for gain in self.gains {
            if let (Gain::Phi { k, weight, .. }, Series::Exact) = (gain, self.series) {
                // `deltaᵏ·φₖ`: a gain of φₖ is the k-th gain in every form.
                weights[k - 1] += weight;
            }
        }
        weights
    }

    /// The highest k of a φₖ that is evaluated exactly, 0 if there is none.
    fn highest(self) -> usize {
        (1..=3).rev().find(|&k| self.weights()[k - 1] != 0.0).unwrap_or(0)
    }

    /// The part of `b_bar` that is a polynomial by definition.
    fn polynomial(self) -> Table {
        let mut table = Table::new();
        let mut add = |j: usize, p: usize, value: f64| {
            if table.len() <= j {
                table.resize(j + 1, [0.0; 5]);
            }
            table[j][p] += value;
        };
        for (place, gain) in self.gains.into_iter().enumerate() {
            let p = place + 1;
            match (gain, self.series) {
                (Gain::Constant(value), _) => {
                    if value != 0.0 {
                        add(0, p, value);
                    }
                }
                (Gain::Cayley { .. }, _) | (Gain::Phi { .. }, Series::Exact) => {}
                (Gain::Exponential { .. } | Gain::PhiSlope, _) => {
                    unreachable!("only the gain of the token before is of this kind")
                }
                (Gain::Phi { k, weight, terms }, Series::Taylor) => {
                    (0..terms).for_each(|j| add(j, p, weight * inverse_factorial(k + j)));
                }
                (Gain::Truncated { k, terms }, _) => {
                    (0..terms).for_each(|j| add(j, p, inverse_factorial(k + j)));
                }
            }
        }
        table
    }

    fn fit(self) -> Fit {
        match (self.coarse, self.phi_k()) {
            (false, _) => FINE,
            (true, None) => COARSE,
            (true, Some(_)) => COARSE_ALONE,
        }
    }

    /// Weights of `delta^p/(1 − x/2)`.
    fn cayley(self) -> [f64; 5] {
        let mut weights = [0.0; 5];
        for (place, gain) in self.gains.into_iter().enumerate() {
            if let Gain::Cayley { weight } = gain {
                weights[place + 1] = weight;
            }
        }
        weights
    }
}

/// `Σⱼ cⱼ·vʲ`.
fn polynomial<T: Real>(coefficients: &[Term<T>], v: &T) -> Term<T> {
    coefficients.iter().rev().fold(Term::Constant(0.0), |sum, c| sum.times(v).plus(c.clone()))
}

/// `Σₚ cₚ·deltaᵖ`.
fn weighted<T: Real>(weights: &[f64; 5], powers: &[Term<T>; 5]) -> Term<T> {
    powers.iter().zip(weights).fold(Term::Constant(0.0), |sum, (power, &c)| {
        if c == 0.0 { sum } else { sum.plus(power.clone().scale(c)) }
    })
}

/// The sum of a gain's terms, and whether it is per token.
fn total<T: Real>(
    exact: Option<T>,
    plain: Term<T>,
    cayley: Option<Term<T>>,
    plain_of_token: bool,
    v: &T,
) -> Coefficient<T> {
    let of_token = exact.is_none() && cayley.is_none() && plain_of_token;
    let mut sum = plain;
    for term in [exact.map(Term::Of), cayley].into_iter().flatten() {
        sum = sum.plus(term);
    }
    let value = sum.like(v);
    if of_token { Coefficient::PerToken(value) } else { Coefficient::PerState(value) }
}

/// The polynomial with `count` coefficients that interpolates `φₖ` at the Chebyshev points of
/// [−bound, bound], by rising power: nearly the best approximation.
fn fitted_phi(k: usize, count: usize, bound: f64) -> Vec<f64> {
    let value = |x: f64| (0..24).rev().fold(0.0, |sum, j| sum * x + inverse_factorial(k + j));
    let node =
        |i: usize| bound * (std::f64::consts::PI * (2 * i + 1) as f64 / (2 * count) as f64).cos();
    // Newton's divided differences, then conversion to the power basis.
    let nodes: Vec<f64> = (0..count).map(node).collect();
    let mut differences: Vec<f64> = nodes.iter().copied().map(value).collect();
    for order in 1..count {
        for i in (order..count).rev() {
            differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - order]);
        }
    }
    let mut coefficients = vec![0.0; count];
    for i in (0..count).rev() {
        for j in (1..count).rev() {
            coefficients[j] = coefficients[j - 1] - nodes[i] * coefficients[j];
        }
        coefficients[0] = differences[i] - nodes[i] * coefficients[0];
    }
    coefficients
}
