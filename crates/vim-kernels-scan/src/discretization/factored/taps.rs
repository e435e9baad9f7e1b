//! The factored form of a method that reads the token before: `b_bar = delta·ψ₁(x)` and
//! `b_prev = delta·ψ₀(x)`, each gain a function of x alone, so that the only state term is a.
//!
//! `∂(delta·ψ)/∂delta = ψ + x·ψ′` is written without the subtraction that this would be: of φ₂ it
//! is φ₁′, and of φ₁′ it is `eˣ − φ₁′`. Of φ₁′ = φ₁ − φ₂ itself little is left at large |x|, where
//! both are about 1/|x|: there it is `(eˣ − φ₁)/x`, and its slope `(eˣ − 2φ₁′)/x`.

use super::{Coefficient, FactoredCoefficients, TokenTerms, fitted_phi};
use crate::discretization::{Decay, Form, Gain};
use vim_kernels_core::{Real, Term};

/// A gain ψ, with the derivative of delta·ψ by delta, and ψ′.
pub(crate) struct TapGain<T> {
    pub(crate) value: Term<T>,
    pub(crate) by_delta: Term<T>,
    pub(crate) slope: Term<T>,
}

/// The coefficients with their derivatives.
pub(crate) struct TapSlopes<T> {
    pub(crate) a_bar: T,
    /// `∂a_bar/∂x` where it is not `a_bar` itself.
    pub(crate) decay_slope: Option<T>,
    pub(crate) gain: TapGain<T>,
    pub(crate) previous: TapGain<T>,
}

/// Functions of x from which gains are made: eˣ, `1/(1 − x/2)`, and φ₂ and φ₁′ with their slopes.
struct Functions<T> {
    x: T,
    exp: T,
    inverse: Option<T>,
    phi: Option<Phi<T>>,
}

#[derive(Clone)]
struct Phi<T> {
    phi2: T,
    /// φ₁ − φ₂.
    slope1: T,
    slope2: T,
    curvature1: T,
}

impl Form {
    /// `a_bar` and the gains, over [`Form::token_factor`].
    pub(super) fn taps_forward<T: Real>(
        self,
        previous: Gain,
        token: &TokenTerms<T>,
        state: &[T],
    ) -> FactoredCoefficients<T> {
        let all = self.functions(token, state, self.fit().near, false);
        let a_bar = self.tap_decay(&all);
        if let Some(r) = all.inverse.clone().filter(|_| self.is_tustin()) {
            return FactoredCoefficients {
                a_bar,
                b_bar: Coefficient::Factored(r.clone()),
                b_prev: Some(r),
            };
        }
        let b_bar = match all.gain(self.gains[0]).value {
            Term::Constant(gain) => Coefficient::PerToken(token.delta.clone().scale(gain)),
            Term::Of(gain) => Coefficient::Factored(gain),
        };
        let b_prev = Some(all.gain(previous).value.like(&all.x));
        FactoredCoefficients { a_bar, b_bar, b_prev }
    }

    /// The coefficients and their derivatives, of a method that reads the token before.
    pub(crate) fn backward_taps<T: Real>(self, token: &TokenTerms<T>, state: &[T]) -> TapSlopes<T> {
        let all = self.functions(token, state, self.fit().slopes, true);
        TapSlopes {
            a_bar: self.tap_decay(&all),
            decay_slope: self.decay_slope(all.inverse.clone()),
            gain: all.gain(self.gains[0]),
            previous: all.gain(self.previous.unwrap_or(Gain::Constant(0.0))),
        }
    }

    /// The constant w, if `b_bar` is `w·delta` and `b_prev` is `w·delta·a_bar`: the input of the
    /// token before then joins the state before it decays.
    pub(crate) fn tap_before_decay(self) -> Option<f64> {
        match (self.decay, self.previous, self.gains) {
            (
                Decay::Exponential,
                Some(Gain::Exponential { weight }),
                [Gain::Constant(own), Gain::Constant(0.0), Gain::Constant(0.0)],
            ) if own == weight => Some(weight),
            _ => None,
        }
    }

    /// Whether the method is Tustin's rule, whose gains are both `½/(1 − x/2)`.
    pub(crate) fn is_tustin(self) -> bool {
        let half = Gain::Cayley { weight: 0.5 };
        let zero = Gain::Constant(0.0);
        self.decay == Decay::Cayley
            && self.previous == Some(half)
            && self.gains == [half, zero, zero]
    }

    fn tap_decay<T: Real>(self, all: &Functions<T>) -> T {
        match (self.decay, &all.inverse) {
            (Decay::Cayley, Some(r)) => r.clone().scale(2.0).offset(-1.0),
            (Decay::Cayley | Decay::Exponential, _) => all.exp.clone(),
        }
    }

    fn functions<T: Real>(
        self,
        token: &TokenTerms<T>,
        state: &[T],
        bound: f64,
        slopes: bool,
    ) -> Functions<T> {
        let x = token.delta.clone() * state[0].clone();
        // An eˣ that no gain uses emits no code.
        let exp = if self.decays_by_sum() {
            (token.scaled.clone() * state[0].clone()).exp2()
        } else {
            x.clone()
        };
        let phi = (!self.evaluates_no_phi()).then(|| self.phi(&x, &exp, bound, slopes));
        Functions { inverse: self.inverse(token, state), phi, exp, x }
    }

    fn phi<T: Real>(self, x: &T, exp: &T, bound: f64, slopes: bool) -> Phi<T> {
        let choose = |near: T, far: T| x.clone().choose_near(bound, near, far);
        // At x = 0 what is divided by x is NaN, but the polynomial is selected.
        let inverse = x.clone().recip();
        let phi1 = exp.clone() * inverse.clone() - inverse.clone();
        let fit = self.fit();
        let (near2, near3) = if slopes {
            let phi3 = fitted(3, fit.top + 1, bound, x);
            (phi3.clone().mul_add(x.clone(), 0.5), phi3)
        } else {
            (fitted(2, fit.degree + 1, bound, x), x.clone())
        };
        let near_slope1 = x.clone().offset(-1.0).mul_add(near2.clone(), 1.0);
        let phi2 = choose(near2.clone(), phi1.clone().offset(-1.0) * inverse.clone());
        let slope1 = choose(near_slope1.clone(), (exp.clone() - phi1) * inverse.clone());
        if !slopes {
            return Phi { slope2: phi2.clone(), curvature1: phi2.clone(), phi2, slope1 };
        }
        let near_slope2 = near2 - near3.scale(2.0);
        let near_curvature = near_slope1 - near_slope2.clone();
        let far_slope2 = (slope1.clone() - phi2.clone()) * inverse.clone();
        let far_curvature = (exp.clone() - slope1.clone().scale(2.0)) * inverse;
        Phi {
            slope2: choose(near_slope2, far_slope2),
            curvature1: choose(near_curvature, far_curvature),
            phi2,
            slope1,
        }
    }
}

impl<T: Real> Functions<T> {
    /// # Panics
    ///
    /// If no method that reads the token before has the gain.
    fn gain(&self, gain: Gain) -> TapGain<T> {
        let of = |value: T, by_delta: T, slope: T| TapGain {
            value: Term::Of(value),
            by_delta: Term::Of(by_delta),
            slope: Term::Of(slope),
        };
        match (gain, &self.inverse, &self.phi) {
            (Gain::Constant(value), _, _) => TapGain {
                value: Term::Constant(value),
                by_delta: Term::Constant(value),
                slope: Term::Constant(0.0),
            },
            (Gain::Exponential { weight }, _, _) => {
                let value = self.exp.clone().scale(weight);
                let by_delta = value.clone() * self.x.clone().offset(1.0);
                of(value.clone(), by_delta, value)
            }
            (Gain::Cayley { weight }, Some(r), _) => {
                let square = r.clone() * r.clone();
                let by_delta = square.clone().scale(weight);
                of(r.clone().scale(weight), by_delta, square.scale(0.5 * weight))
            }
            (Gain::Phi { k: 2, weight: 1.0, .. }, _, Some(phi)) => {
                of(phi.phi2.clone(), phi.slope1.clone(), phi.slope2.clone())
            }
            (Gain::PhiSlope, _, Some(phi)) => {
                let by_delta = self.exp.clone() - phi.slope1.clone();
                of(phi.slope1.clone(), by_delta, phi.curvature1.clone())
            }
            (gain, _, _) => unreachable!("{gain:?} is no gain of two taps"),
        }
    }
}

/// `φₖ` by the polynomial with `count` coefficients that fits it for |x| < `bound`.
fn fitted<T: Real>(k: usize, count: usize, bound: f64, x: &T) -> T {
    let rising = fitted_phi(k, count, bound);
    let last = x.clone().scale(rising[count - 1]).offset(rising[count - 2]);
    (0..count - 2).rev().fold(last, |sum, j| sum.mul_add(x.clone(), rising[j]))
}
