//! The coefficients in two parts: what a token alone determines is computed once for all its states, and
//! what a state alone determines once for all tokens. A GPU kernel is bound by its instructions
//! for each (token, state), and this leaves the fewest; [`crate::discretize`] says the same thing
//! in the plain way and is what this is tested against.
//!
//! With `x = delta·a` and `fₖ = deltaᵏ·φₖ(x)`, the exact methods need `Σ wₖ·fₖ`.
//! Far from 0, `f₀ = eˣ` and `fₖ = (fₖ₋₁ − deltaᵏ⁻¹/(k−1)!)/a`, which unrolls to a polynomial of degree one in
//! eˣ and k − 1 in x with coefficients of the state. Near 0, `fₖ = deltaᵏ/k! + a·fₖ₊₁` from a polynomial in x
//! with coefficients of the token. The derivatives are members of the same family: `∂fₖ/∂delta = fₖ₋₁`,
//! `∂fₖ/∂a = (delta·fₖ₋₁ − k·fₖ)/a = delta·fₖ − k·fₖ₊₁`, the first without cancellation far
//! from 0, the second near it.

use crate::discretization::{Decay, Discretization, Form, Gain, Series};
use crate::phi::{fitted_phi, inverse_factorial, series_coefficient};
use crate::real::Real;
use crate::term::Term;

/// |x| below which the polynomial is used. The closed form of φ₃ loses 4 bits here.
const NEAR: f64 = 0.75;

/// Degree of the polynomials of the forward scan: φ₁ to 7e-7 of its value, the others better.
const DEGREE: usize = 5;

/// Degree of the polynomial that the backward scan's ladder starts from, of the next φ after those used: each
/// step down multiplies its error by x/k, so that φ₂ under φ₃ is good to 6e-7.
const TOP_DEGREE: usize = 4;

/// |a| is taken as at least this where something is divided by its cube.
const SMALLEST_RATE: f64 = 1e-12;

/// Coefficients of `delta^p·x^j`, by j and then p.
type Table = Vec<[f64; 5]>;

/// A quantity that depends on the token alone, or on the state too.
#[derive(Clone)]
pub(crate) enum Part<T> {
    Token(T),
    State(T),
}

impl<T: Clone> Part<T> {
    pub(crate) fn value(&self) -> T {
        match self {
            Self::Token(value) | Self::State(value) => value.clone(),
        }
    }
}

/// `a_bar` and `b_bar` of a token and a state.
pub(crate) struct PartCoefficients<T> {
    pub(crate) a_bar: T,
    pub(crate) b_bar: Part<T>,
}

/// With what a gradient is pulled back through them by.
pub(crate) struct PartLinearized<T> {
    pub(crate) a_bar: T,
    /// `∂a_bar/∂x` where it is not `a_bar` itself.
    pub(crate) decay_slope: Option<T>,
    pub(crate) b_bar: Part<T>,
    /// `∂b_bar/∂delta`.
    pub(crate) d_delta: Part<T>,
    /// `∂b_bar/∂a`, absent where it is zero.
    pub(crate) d_a: Option<T>,
}

/// A method, prepared to be evaluated by parts.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    form: Form,
    series: Series,
}

/// What a token determines.
pub(crate) struct OfToken<T> {
    delta: T,
    /// `delta·log₂e`: times `a` it is the argument of 2ˣ.
    scaled: T,
    near: Vec<Term<T>>,
    polynomial: Vec<Term<T>>,
    d_delta: Vec<Term<T>>,
    d_a: Vec<Term<T>>,
    powers: [Term<T>; 5],
}

impl Parts {
    pub(crate) fn new(method: Discretization, series: Series) -> Self {
        Self { form: method.form(), series }
    }

    /// Weights of the φ functions that are evaluated exactly.
    fn weights(self) -> [f64; 3] {
        let mut weights = [0.0; 3];
        for gain in self.form.gains {
            if let (Gain::Phi { k, weight, .. }, Series::Exact) = (gain, self.series) {
                // `deltaᵏ·φₖ`: a gain of φₖ stands in place k of every form.
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
        for (place, gain) in self.form.gains.into_iter().enumerate() {
            let p = place + 1;
            match (gain, self.series) {
                (Gain::Constant(value), _) => {
                    if value != 0.0 {
                        add(0, p, value);
                    }
                }
                (Gain::Cayley, _) | (Gain::Phi { .. }, Series::Exact) => {}
                (Gain::Phi { k, weight, terms }, Series::Taylor) => {
                    (0..terms).for_each(|j| add(j, p, weight * series_coefficient(k, j)));
                }
                (Gain::Truncated { k, terms }, _) => {
                    (0..terms).for_each(|j| add(j, p, series_coefficient(k, j)));
                }
            }
        }
        table
    }

    /// Weights of `delta^p/(1 − x/2)`.
    fn cayley(self) -> [f64; 5] {
        let mut weights = [0.0; 5];
        for (place, gain) in self.form.gains.into_iter().enumerate() {
            if gain == Gain::Cayley {
                weights[place + 1] = 1.0;
            }
        }
        weights
    }

    /// Whether no φ function is evaluated exactly.
    pub(crate) fn is_light(self) -> bool {
        self.highest() == 0
    }

    /// How many numbers [`Self::state`] keeps of a state.
    pub(crate) fn state_len(self) -> usize {
        1 + self.highest()
    }

    /// What the forward scan keeps of a state of rate `a`.
    pub(crate) fn state<T: Real>(self, a: T) -> Vec<T> {
        let (weights, highest) = (self.weights(), self.highest());
        if highest == 0 {
            return vec![a];
        }
        // b = eˣ·far₁ − far₁ − x·Σ_{k≥2} wₖ/aᵏ − x²·½w₃/a³, with x = ln2·v.
        let inverse = a.clone().away_from_zero(SMALLEST_RATE).recip();
        let unit = std::f64::consts::LN_2;
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
        let mut kept = vec![a, by_power(weights)];
        if highest >= 2 {
            kept.push(by_power([0.0, -unit * w2, -unit * w3]));
        }
        if highest >= 3 {
            kept.push(by_power([0.0, 0.0, -0.5 * unit * unit * w3]));
        }
        kept
    }

    /// How many numbers [`Self::slope_state`] keeps of a state.
    pub(crate) fn slope_state_len(self) -> usize {
        if self.highest() == 0 { 1 } else { 2 }
    }

    /// What the backward scan keeps of a state of rate `a`.
    pub(crate) fn slope_state<T: Real>(self, a: T) -> Vec<T> {
        if self.highest() == 0 {
            return vec![a];
        }
        let inverse = a.clone().away_from_zero(SMALLEST_RATE).recip();
        vec![a, inverse]
    }

    /// What the forward scan computes of a token.
    pub(crate) fn token<T: Real>(self, delta: T) -> OfToken<T> {
        let weights = self.weights();
        let mut near = vec![[0.0; 5]; if self.highest() > 0 { DEGREE + 1 } else { 0 }];
        for k in 1..=self.highest() {
            for (j, c) in fitted_phi::<{ DEGREE + 1 }>(k, NEAR).into_iter().enumerate() {
                near[j][k] += weights[k - 1] * c;
            }
        }
        self.of_token(delta, &near, false)
    }

    /// What the backward scan computes of a token.
    pub(crate) fn slope_token<T: Real>(self, delta: T) -> OfToken<T> {
        let top = self.highest() + 1;
        let mut near = Table::new();
        if self.highest() > 0 {
            for c in fitted_phi::<{ TOP_DEGREE + 1 }>(top, NEAR) {
                let mut row = [0.0; 5];
                row[top] = c;
                near.push(row);
            }
        }
        self.of_token(delta, &near, true)
    }

    fn of_token<T: Real>(self, delta: T, near: &Table, slopes: bool) -> OfToken<T> {
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
        let polynomial = self.polynomial();
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
            let unit = std::f64::consts::LN_2;
            table
                .iter()
                .enumerate()
                .map(|(j, row)| {
                    let scale = unit.powi(j as i32);
                    powers.iter().zip(row).fold(Term::Constant(0.0), |sum, (power, &c)| {
                        if c == 0.0 { sum } else { sum.plus(power.clone().scale(c * scale)) }
                    })
                })
                .collect()
        };
        OfToken {
            scaled: delta.clone().scale(std::f64::consts::LOG2_E),
            near: collapse(near),
            polynomial: collapse(&polynomial),
            d_delta: collapse(&d_delta),
            d_a: collapse(&d_a),
            delta,
            powers: powers.clone(),
        }
    }

    /// `a_bar` and `b_bar` from a [token](Self::token) and a [state](Self::state).
    pub(crate) fn forward<T: Real>(self, token: &OfToken<T>, state: &[T]) -> PartCoefficients<T> {
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, exp, inverse) = self.decay(token, state, &v);
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

    /// [`forward`](Self::forward) from a [slope state](Self::slope_state): fewer numbers to keep, more to do.
    pub(crate) fn forward_again<T: Real>(
        self,
        token: &OfToken<T>,
        state: &[T],
    ) -> PartCoefficients<T> {
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

    fn finish_forward<T: Real>(
        self,
        token: &OfToken<T>,
        v: T,
        a_bar: T,
        inverse: Option<T>,
        far: Option<T>,
    ) -> PartCoefficients<T> {
        let exact = far.map(|far| {
            let near = polynomial(&token.near, &v).like(&v);
            v.clone().choose_near(NEAR * std::f64::consts::LOG2_E, near, far)
        });
        let plain = polynomial(&token.polynomial, &v);
        let cayley = inverse.map(|r| weighted(&self.cayley(), &token.powers).times(&r));
        PartCoefficients {
            a_bar,
            b_bar: total(exact, plain, cayley, token.polynomial.len() <= 1, &v),
        }
    }

    /// The coefficients and their slopes from a [token](Self::slope_token) and a [state](Self::slope_state).
    pub(crate) fn backward<T: Real>(self, token: &OfToken<T>, state: &[T]) -> PartLinearized<T> {
        let v = token.scaled.clone() * state[0].clone();
        let (a_bar, exp, inverse) = self.decay(token, state, &v);
        let decay_slope = match (self.form.decay, &inverse) {
            (Decay::Cayley, Some(r)) => Some(r.clone() * r.clone()),
            (Decay::Cayley, None) | (Decay::Exponential, _) => None,
        };
        let exact = self.exact_slopes(token, state, &v, exp);
        let [exact_b, exact_delta, exact_a] = match exact {
            Some(parts) => parts.map(Some),
            None => [None, None, None],
        };
        let [cayley_b, cayley_delta, cayley_a] = match inverse {
            Some(r) if self.cayley() != [0.0; 5] => {
                // With w = Σ cₚ·deltaᵖ: b = w·r and ∂r/∂x = ½r². By delta, r² is taken out, so that
                // nothing cancels at large |x|: p·r + ½x·r² = r²·(p − (p − 1)·x/2).
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
        let d_a = total(exact_a, polynomial(&token.d_a, &v), cayley_a, false, &v).value();
        PartLinearized {
            b_bar: total(exact_b, polynomial(&token.polynomial, &v), cayley_b, of_token, &v),
            d_delta: total(exact_delta, polynomial(&token.d_delta, &v), cayley_delta, of_token, &v),
            d_a: (!no_a).then_some(d_a),
            a_bar,
            decay_slope,
        }
    }

    /// `a_bar`, eˣ and `1/(1 − x/2)`, the last where it is used.
    fn decay<T: Real>(self, token: &OfToken<T>, state: &[T], v: &T) -> (T, T, Option<T>) {
        match self.form.decay {
            Decay::Exponential => {
                let exp = v.clone().exp2();
                (exp.clone(), exp, self.inverse(token, state))
            }
            Decay::Cayley => {
                let r = self.inverse(token, state).unwrap_or_else(|| v.constant(1.0));
                let a_bar = r.clone().scale(2.0).offset(-1.0);
                // Nothing is emitted for an eˣ that no gain uses.
                let exp = if self.highest() > 0 { v.clone().exp2() } else { v.clone() };
                (a_bar, exp, Some(r))
            }
        }
    }

    fn inverse<T: Real>(self, token: &OfToken<T>, state: &[T]) -> Option<T> {
        let used = self.form.decay == Decay::Cayley || self.cayley() != [0.0; 5];
        let x = || token.delta.clone() * state[0].clone();
        used.then(|| x().scale(-0.5).offset(1.0).recip())
    }

    /// `f₀ … f_K` far from 0.
    fn far<T: Real>(self, token: &OfToken<T>, exp: T, inverse: &T) -> Vec<T> {
        let mut far = vec![exp];
        for k in 1..=self.highest() {
            let step = token.powers[k - 1].clone().scale(-inverse_factorial(k - 1));
            let next = Term::Of(far[k - 1].clone()).plus(step).times(inverse);
            far.push(next.like(inverse));
        }
        far
    }

    /// `Σ wₖ·factor·value` over what `of` gives for every k in use.
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

    /// `Σ wₖ·fₖ` and its derivatives by delta and by a.
    fn exact_slopes<T: Real>(
        self,
        token: &OfToken<T>,
        state: &[T],
        v: &T,
        exp: T,
    ) -> Option<[T; 3]> {
        let highest = self.highest();
        let [a, inverse] = state else { return None };
        let bound = NEAR * std::f64::consts::LOG2_E;
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

fn total<T: Real>(
    exact: Option<T>,
    plain: Term<T>,
    cayley: Option<Term<T>>,
    plain_of_token: bool,
    v: &T,
) -> Part<T> {
    let of_token = exact.is_none() && cayley.is_none() && plain_of_token;
    let mut sum = plain;
    for term in [exact.map(Term::Of), cayley].into_iter().flatten() {
        sum = sum.plus(term);
    }
    let value = sum.like(v);
    if of_token { Part::Token(value) } else { Part::State(value) }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    use crate::discretization::linearize;
    use crate::native::lanes::Lanes;

    // In f32 as the kernels compute it, against the plain formulas in f64.
    #[test]
    fn parts_are_the_plain_formulas() {
        let mut worst: (f64, String) = (0.0, String::new());
        for &method in Discretization::VARIANTS {
            for &series in Series::VARIANTS {
                for delta in [1e-4, 0.003, 0.05, 0.3, 0.9, 2.5f64] {
                    for i in 0..400 {
                        let a = -f64::from((10f64.powf(-4.0 + 7.0 * f64::from(i) / 400.0)) as f32);
                        let delta = f64::from(delta as f32);
                        // Further out bare polynomials pass through 0, where no digit is left.
                        if !method.bounded(series) && delta * -a > 1.0 {
                            continue;
                        }
                        let parts = Parts::new(method, series);
                        let lanes = |x: f64| Lanes::<false>::splat(x as f32);
                        let out = |x: Lanes<false>| f64::from(x.to_array()[0]);
                        let exact = linearize(method, series, delta, a);
                        let forward =
                            parts.forward(&parts.token(lanes(delta)), &parts.state(lanes(a)));
                        let back = parts.backward(
                            &parts.slope_token(lanes(delta)),
                            &parts.slope_state(lanes(a)),
                        );
                        let d_a = back.d_a.map_or(0.0, out);
                        let again = parts.forward_again(
                            &parts.token(lanes(delta)),
                            &parts.slope_state(lanes(a)),
                        );
                        for (name, got, want) in [
                            ("b_bar once more", out(again.b_bar.value()), exact.value.b_bar),
                            ("a_bar", out(forward.a_bar), exact.value.a_bar),
                            ("b_bar", out(forward.b_bar.value()), exact.value.b_bar),
                            ("a_bar again", out(back.a_bar), exact.value.a_bar),
                            ("b_bar again", out(back.b_bar.value()), exact.value.b_bar),
                            ("d_delta", out(back.d_delta.value()), exact.d_delta.b_bar),
                            (
                                "decay by delta",
                                back.decay_slope.map_or(out(back.a_bar), out) * a,
                                exact.d_delta.a_bar,
                            ),
                            ("d_a", d_a, exact.d_a.b_bar),
                        ] {
                            // a_bar passes through 0 and multiplies a state: its absolute error counts.
                            let floor = if name.starts_with("a_bar") { 1.0 } else { 1e-7 };
                            let error = (got - want).abs() / want.abs().max(floor);
                            if error > worst.0 || error.is_nan() {
                                let what = format!("{method} {series} {name} delta {delta} a {a}");
                                worst = (error, format!("{what}: {got} for {want}"));
                            }
                            assert!(error <= 2e-5, "{error:.1e}: {}", worst.1);
                        }
                    }
                }
            }
        }
        println!("worst {worst:?}");
    }
}
