//! The discretizations: how `h' = a·h + b·u` becomes a recurrence over tokens.
//!
//! Every method yields `h[t] = a_bar·h[t-1] + b_prev·b[t-1]·u[t-1] + b_bar·b[t]·u[t]`, with
//! `a_bar`, `b_bar` and, where the method reads the token before, `b_prev` functions of the step
//! `delta[t]` (time) and the rate `a` (1/time, negative for a stable system) alone. The input
//! before the first token is 0. With `x = delta·a` all of them have the form
//!
//! > `a_bar = decay(x)`, `b_bar = delta·ψ₁(x) + delta²·ψ₂(x) + delta³·ψ₃(x)`,
//! > `b_prev = delta·ψ₀(x)`
//!
//! so a method is a [`Form`]: a decay and up to four gains ψ, as data. Values and derivatives are
//! evaluated from it once for all methods, in whatever arithmetic is asked for ([`Real`]).
//!
//! To add a method: a variant of [`Discretization`], its arm in [`Discretization::form`], and its
//! name in the list of `per_method`, to all of which the compiler points (all in this file); and a
//! row in `tests/it/discretization.rs`, whose suite fails until there is one.
//! docs/discretizations.md derives the formulas.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) mod factored;
mod operation_count;
pub(crate) mod phi;

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use phi::{phi, phi_curvature, phi_derivative, phi_series, phi_series_derivative};
use vim_kernels_core::{Real, Term, horner};

/// A rate of a scan below this counts as this, −∞ too (`−exp(a_log)` for an a_log above 88.7): a
/// state decays to nothing within a token under both, but with a rate of −∞ a delta of 0, and the
/// gradients of delta and of a, would be 0 times infinity.
pub const LEAST_RATE: f32 = -1e12;

/// A discretization method: the TOML value, the kernel's compile-time key and the metrics label.
#[derive(Display, Serialize, Deserialize, JsonSchema, VariantArray, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Discretization {
    /// `a_bar = eˣ`, `b_bar = delta`: zero-order hold on `a`, Euler on `b` (Gu and Dao 2023, as in
    /// the released code).
    #[default]
    Zoh,
    /// `a_bar = eˣ`, `b_bar = delta²·φ₂`: "first-order hold" as VisionMamba publishes it.
    Foh,
    /// `a_bar = (1 + x/2)/(1 − x/2)`, `b_bar = delta/(1 − x/2)`: bilinear, or Tustin.
    Bilinear,
    /// `a_bar = eˣ`, `b_bar = delta·φ₁ + ½delta²·φ₂`, scanned both ways and averaged: non-causal.
    Poly,
    /// `a_bar = eˣ`, `b_bar = delta·φ₁ + delta²·φ₂ + ½delta³·φ₃`: higher-order hold, n = 2.
    HighOrder,
    /// `a_bar = eˣ`, `b_bar = delta·(1 + x/2 + x²/6 + x³/24)`: a polynomial under both series.
    Rk4,
    /// `a_bar = eˣ`, `b_bar = delta·φ₁`: the exact zero-order hold (Gu and Dao 2023, eq. 4).
    #[serde(rename = "zoh_exact")]
    #[strum(serialize = "zoh_exact")]
    ZohExact,
    /// `a_bar = eˣ`, `b_prev = ½delta·eˣ`, `b_bar = ½delta`: the exponential trapezoid of Mamba-3
    /// (arXiv 2603.15569) with λ = ½.
    #[serde(rename = "exp_trapezoidal")]
    #[strum(serialize = "exp_trapezoidal")]
    ExpTrapezoidal,
    /// `a_bar = eˣ`, `b_prev = delta·(φ₁ − φ₂)`, `b_bar = delta·φ₂`: the textbook's first-order
    /// hold, a line between two samples (Hochbruck and Ostermann 2010).
    #[serde(rename = "foh_linear")]
    #[strum(serialize = "foh_linear")]
    FohLinear,
    /// `a_bar = (1 + x/2)/(1 − x/2)`, `b_prev = b_bar = ½delta/(1 − x/2)`: Tustin's rule (S4).
    Tustin,
}

/// How the φ functions are evaluated.
#[derive(Display, Serialize, Deserialize, JsonSchema, VariantArray, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Series {
    /// Exactly, stably for every x.
    #[default]
    Exact,
    /// By the truncations that VisionMamba publishes: accurate for |x| below about 1, useless above
    /// 2.
    Taylor,
}

/// The components of a method; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// `a_bar` as a function of x.
    pub decay: Decay,
    /// ψ₁, ψ₂, ψ₃.
    pub gains: [Gain; 3],
    /// ψ₀, where the method reads the token before.
    pub previous: Option<Gain>,
    /// How φ functions in them are evaluated.
    pub series: Series,
    /// Whether a GPU may evaluate them with an error of 4e-4, for results of 16 bits.
    pub coarse: bool,
    /// Whether the sequence is scanned in both directions, with the same coefficients, and
    /// averaged. The result depends on the future: the method is not causal.
    pub two_way: bool,
    /// Whether it is one of the six that the paper publishes. These alone are also evaluated by
    /// [`Series::Taylor`], and run with complex and full A.
    pub published: bool,
    /// Order of convergence to the continuous system as `delta` → 0, of one way over a smooth input
    /// that is sampled at the tokens; 0 where it does not converge.
    pub order: u32,
    /// The formulas in a line, for a table.
    pub formula: &'static str,
}

/// `a_bar(x)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// eˣ.
    Exponential,
    /// (1 + x/2)/(1 − x/2), the Cayley transform.
    Cayley,
}

/// A gain ψ(x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// A number.
    Constant(f64),
    /// `weight/(1 − x/2)`.
    Cayley {
        /// The factor.
        weight: f64,
    },
    /// `weight·eˣ`.
    Exponential {
        /// The factor.
        weight: f64,
    },
    /// φ₁′(x) = φ₁(x) − φ₂(x), under both series.
    PhiSlope,
    /// `weight·φₖ(x)`; under [`Series::Taylor`] the first `terms` terms of its series.
    Phi {
        /// Which φ: 1, 2 or 3.
        k: usize,
        /// Its factor.
        weight: f64,
        /// Terms of the published truncation; of a method that is not published, any number.
        terms: usize,
    },
    /// The first `terms` terms of the series of φₖ, by definition, under both series.
    Truncated {
        /// Which φ: 1, 2 or 3.
        k: usize,
        /// How many terms.
        terms: usize,
    },
}

impl FromStr for Discretization {
    type Err = UnknownMethod;

    /// The method of this name, as a configuration has it.
    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let is_named = |method: &Self| <&str>::from(method) == name;
        let mut methods = Self::VARIANTS.iter().copied();
        methods.find(is_named).ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

/// A name that no [`Discretization`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no discretization: use one of {}", .0.escape_debug(), names())]
pub struct UnknownMethod(String);

fn names() -> String {
    let names: Vec<&str> = Discretization::VARIANTS.iter().map(<&str>::from).collect();
    names.join(", ")
}

impl Discretization {
    /// What the method is made of, with exact φ functions; see [`Form::under`].
    #[must_use]
    pub const fn form(self) -> Form {
        use Decay::{Cayley, Exponential};
        use Gain::{Constant, Phi, PhiSlope, Truncated};
        const ZERO: Gain = Constant(0.0);
        const CAYLEY_HALF: Gain = Gain::Cayley { weight: 0.5 };
        const HALF_EXP: Gain = Gain::Exponential { weight: 0.5 };
        let (decay, gains, previous, order, formula) = match self {
            Self::Zoh => (Exponential, [Constant(1.0), ZERO, ZERO], None, 1, "exp(x) | delta"),
            Self::Foh => (
                Exponential,
                [ZERO, Phi { k: 2, weight: 1.0, terms: 4 }, ZERO],
                None,
                0,
                "exp(x) | delta^2 phi2(x)",
            ),
            Self::Bilinear => (
                Cayley,
                [Gain::Cayley { weight: 1.0 }, ZERO, ZERO],
                None,
                1,
                "(1 + x/2)/(1 - x/2) | delta/(1 - x/2)",
            ),
            Self::Poly => (
                Exponential,
                [Phi { k: 1, weight: 1.0, terms: 4 }, Phi { k: 2, weight: 0.5, terms: 3 }, ZERO],
                None,
                1,
                "exp(x) | delta phi1(x) + delta^2 phi2(x)/2, both ways",
            ),
            Self::HighOrder => (
                Exponential,
                [
                    Phi { k: 1, weight: 1.0, terms: 4 },
                    Phi { k: 2, weight: 1.0, terms: 3 },
                    Phi { k: 3, weight: 0.5, terms: 2 },
                ],
                None,
                1,
                "exp(x) | delta phi1(x) + delta^2 phi2(x) + delta^3 phi3(x)/2",
            ),
            Self::Rk4 => (
                Exponential,
                [Truncated { k: 1, terms: 4 }, ZERO, ZERO],
                None,
                1,
                "exp(x) | delta (1 + x/2 + x^2/6 + x^3/24)",
            ),
            Self::ZohExact => {
                let gain = Phi { k: 1, weight: 1.0, terms: 4 };
                (Exponential, [gain, ZERO, ZERO], None, 1, "exp(x) | delta phi1(x)")
            }
            Self::ExpTrapezoidal => {
                let formula = "exp(x) | delta/2, of the token before delta exp(x)/2";
                (Exponential, [Constant(0.5), ZERO, ZERO], Some(HALF_EXP), 2, formula)
            }
            Self::FohLinear => {
                let gain = Phi { k: 2, weight: 1.0, terms: 4 };
                let formula = "exp(x) | delta phi2(x), of the token before delta (phi1 - phi2)(x)";
                (Exponential, [gain, ZERO, ZERO], Some(PhiSlope), 2, formula)
            }
            Self::Tustin => {
                let formula = "(1 + x/2)/(1 - x/2) | delta/(2 - x), of the token before the same";
                (Cayley, [CAYLEY_HALF, ZERO, ZERO], Some(CAYLEY_HALF), 2, formula)
            }
        };
        let (series, two_way) = (Series::Exact, matches!(self, Self::Poly));
        let published =
            !matches!(self, Self::ZohExact | Self::ExpTrapezoidal | Self::FohLinear | Self::Tustin);
        let coarse = false;
        Form { decay, gains, previous, series, coarse, two_way, published, order, formula }
    }

    /// The series that evaluate the method: both, or the exact one where no truncation is
    /// published.
    #[must_use]
    pub const fn series(self) -> &'static [Series] {
        if self.form().published { &[Series::Exact, Series::Taylor] } else { &[Series::Exact] }
    }

    /// Whether the input gain stays bounded as x → −∞; a bare polynomial in x does not.
    #[must_use]
    pub fn bounded(self, series: Series) -> bool {
        let form = self.form();
        form.gains.iter().chain(&form.previous).all(|gain| match gain {
            Gain::Constant(_) | Gain::Cayley { .. } | Gain::Exponential { .. } | Gain::PhiSlope => {
                true
            }
            Gain::Phi { .. } => series == Series::Exact,
            Gain::Truncated { .. } => false,
        })
    }
}

/// The coefficients of one step, or a gradient with respect to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients<T> {
    /// Discrete A, without unit.
    pub a_bar: T,
    /// Discrete B over B, a time.
    pub b_bar: T,
    /// The same for the input of the token before, where the method reads it.
    pub b_prev: Option<T>,
}

/// Coefficients with their derivatives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linearized<T> {
    /// The coefficients themselves.
    pub value: Coefficients<T>,
    /// ∂/∂delta of them.
    pub d_delta: Coefficients<T>,
    /// ∂/∂a of them.
    pub d_a: Coefficients<T>,
}

/// The coefficients of `method` for a step `delta` (time) at the rate `a` (1/time).
#[inline(always)]
pub fn discretize<T: Real>(
    method: Discretization,
    series: Series,
    delta: T,
    a: T,
) -> Coefficients<T> {
    let form = method.form().under(series);
    let x = delta.clone() * a;
    let a_bar = form.decay.value(x.clone());
    let gains = form.gain_values(&x, &a_bar);
    let b_prev = match form.previous {
        Some(gain) => Some(gain.value(form.series, &x, &a_bar, form.decay).times(&delta).like(&x)),
        None => None,
    };
    Coefficients { b_bar: horner(&delta, gains).times(&delta).like(&x), b_prev, a_bar }
}

/// [`discretize`] and its derivatives in `delta` and in `a`.
#[inline(always)]
pub fn linearize<T: Real>(method: Discretization, series: Series, delta: T, a: T) -> Linearized<T> {
    let a_bar = method.form().decay.value(delta.clone() * a.clone());
    linearize_at(method, series, delta, a, a_bar)
}

/// [`linearize`] where `a_bar` is already known: most methods then need no exponential.
#[inline(always)]
pub(crate) fn linearize_at<T: Real>(
    method: Discretization,
    series: Series,
    delta: T,
    a: T,
    a_bar: T,
) -> Linearized<T> {
    let form = method.form().under(series);
    let x = delta.clone() * a.clone();
    let [s1, s2, s3] = form.gains;
    let slope = |gain: Gain| gain.slope(series, &x, &a_bar, form.decay);
    let gain_slope = horner(&delta, [slope(s1), slope(s2), slope(s3)]).times(&delta);
    let [g1, g2, g3] = form.gain_values(&x, &a_bar);
    let b_bar = horner(&delta, [g1.clone(), g2.clone(), g3.clone()]).times(&delta).like(&x);
    // At fixed x: ∂b_bar/∂delta = ψ₁ + 2·delta·ψ₂ + 3·delta²·ψ₃.
    let direct = horner(&delta, [g1, g2.scale(2.0), g3.scale(3.0)]);
    let decay_slope = form.decay.slope(&x, &a_bar);
    let [b_prev, prev_delta, prev_a] = match form.previous {
        Some(gain) => {
            let value = gain.value(series, &x, &a_bar, form.decay).times(&delta);
            let by_delta = gain.by_delta(series, &x, &a_bar, form.decay);
            let by_a = gain.slope(series, &x, &a_bar, form.decay).times(&delta).times(&delta);
            [Some(value.like(&x)), Some(by_delta.like(&x)), Some(by_a.like(&x))]
        }
        None => [None, None, None],
    };
    Linearized {
        d_delta: Coefficients {
            a_bar: decay_slope.clone() * a.clone(),
            b_bar: if form.published {
                gain_slope.clone().times(&a).plus(direct).like(&x)
            } else {
                s1.by_delta(series, &x, &a_bar, form.decay).like(&x)
            },
            b_prev: prev_delta,
        },
        d_a: Coefficients {
            a_bar: decay_slope * delta.clone(),
            b_bar: gain_slope.times(&delta).like(&x),
            b_prev: prev_a,
        },
        value: Coefficients { a_bar, b_bar, b_prev },
    }
}

impl Form {
    /// The same with φ functions as `series` says.
    #[must_use]
    pub const fn under(self, series: Series) -> Self {
        Self { series, ..self }
    }

    /// ψ₁, ψ₂, ψ₃ at x. Written out: the closure of `array::map` is not inlined, and the native
    /// kernel is only fast if every branch here is resolved at compile time.
    #[inline(always)]
    fn gain_values<T: Real>(self, x: &T, a_bar: &T) -> [Term<T>; 3] {
        let [g1, g2, g3] = self.gains;
        [
            g1.value(self.series, x, a_bar, self.decay),
            g2.value(self.series, x, a_bar, self.decay),
            g3.value(self.series, x, a_bar, self.decay),
        ]
    }
}

impl Decay {
    #[inline(always)]
    fn value<T: Real>(self, x: T) -> T {
        match self {
            Self::Exponential => x.exp(),
            // 2/(1 − x/2) − 1: its derivative, by autodiff too, does not cancel at large |x|.
            Self::Cayley => cayley_inverse(x).scale(2.0).offset(-1.0),
        }
    }

    #[inline(always)]
    fn slope<T: Real>(self, x: &T, a_bar: &T) -> T {
        match self {
            Self::Exponential => a_bar.clone(),
            Self::Cayley => {
                let inverse = cayley_inverse(x.clone());
                inverse.clone() * inverse
            }
        }
    }

    /// eˣ, which for most methods is `a_bar`.
    #[inline(always)]
    fn exp<T: Real>(self, x: &T, a_bar: &T) -> T {
        match self {
            Self::Exponential => a_bar.clone(),
            Self::Cayley => x.clone().exp(),
        }
    }
}

impl Gain {
    #[inline(always)]
    fn value<T: Real>(self, series: Series, x: &T, a_bar: &T, decay: Decay) -> Term<T> {
        match (self, series) {
            (Self::Constant(value), _) => Term::Constant(value),
            (Self::Cayley { weight }, _) => Term::Of(cayley_inverse(x.clone())).scale(weight),
            (Self::Exponential { weight }, _) => Term::Of(decay.exp(x, a_bar)).scale(weight),
            (Self::PhiSlope, _) => Term::Of(phi_derivative(1, x.clone(), decay.exp(x, a_bar))),
            (Self::Phi { k, weight, .. }, Series::Exact) => {
                Term::Of(phi(k, x.clone(), decay.exp(x, a_bar))).scale(weight)
            }
            (Self::Phi { k, weight, terms }, Series::Taylor) => {
                Term::Of(phi_series(k, terms, x.clone())).scale(weight)
            }
            (Self::Truncated { k, terms }, _) => Term::Of(phi_series(k, terms, x.clone())),
        }
    }

    #[inline(always)]
    fn slope<T: Real>(self, series: Series, x: &T, a_bar: &T, decay: Decay) -> Term<T> {
        match (self, series) {
            (Self::Constant(_), _) => Term::Constant(0.0),
            (Self::Cayley { weight }, _) => {
                let inverse = cayley_inverse(x.clone());
                Term::Of(inverse.clone() * inverse).scale(0.5 * weight)
            }
            (Self::Exponential { weight }, _) => Term::Of(decay.exp(x, a_bar)).scale(weight),
            (Self::PhiSlope, _) => Term::Of(phi_curvature(x.clone(), decay.exp(x, a_bar))),
            (Self::Phi { k, weight, .. }, Series::Exact) => {
                Term::Of(phi_derivative(k, x.clone(), decay.exp(x, a_bar))).scale(weight)
            }
            (Self::Phi { k, weight, terms }, Series::Taylor) => {
                Term::Of(phi_series_derivative(k, terms, x.clone())).scale(weight)
            }
            (Self::Truncated { k, terms }, _) => {
                Term::Of(phi_series_derivative(k, terms, x.clone()))
            }
        }
    }
}

impl Gain {
    /// `∂(delta·ψ)/∂delta = ψ + x·ψ′`, without the subtraction that this is at large |x|, of which
    /// nothing would be left for φ₁.
    #[inline(always)]
    fn by_delta<T: Real>(self, series: Series, x: &T, a_bar: &T, decay: Decay) -> Term<T> {
        let exp = decay.exp(x, a_bar);
        match self {
            Self::Constant(value) => Term::Constant(value),
            Self::Cayley { weight } => {
                let inverse = cayley_inverse(x.clone());
                Term::Of(inverse.clone() * inverse).scale(weight)
            }
            Self::Exponential { weight } => Term::Of(exp * x.clone().offset(1.0)).scale(weight),
            Self::PhiSlope => Term::Of(exp.clone() - phi_derivative(1, x.clone(), exp)),
            Self::Phi { k: 1, weight, .. } => Term::Of(exp).scale(weight),
            Self::Phi { k: 2, weight, .. } => {
                Term::Of(phi_derivative(1, x.clone(), exp)).scale(weight)
            }
            Self::Phi { .. } | Self::Truncated { .. } => {
                let slope = self.slope(series, x, a_bar, decay).times(x);
                self.value(series, x, a_bar, decay).plus(slope)
            }
        }
    }
}

/// 1/(1 − x/2).
#[inline(always)]
fn cayley_inverse<T: Real>(x: T) -> T {
    x.scale(-0.5).offset(1.0).recip()
}

/// Work that is compiled once for each method and series, so that its inner loop has no branch on
/// them.
pub(crate) trait PerMethod {
    type Output;

    /// Runs for `Discretization::VARIANTS[METHOD]` and `Series::VARIANTS[SERIES]`.
    fn run<const METHOD: usize, const SERIES: usize>(self) -> Self::Output;
}

/// Runs `work` as compiled for `method` and `series`; for the exact one alone where the method has
/// no other.
pub(crate) fn per_method<W: PerMethod>(
    method: Discretization,
    series: Series,
    work: W,
) -> W::Output {
    macro_rules! arms {
        ($($variant:ident),*; $($exact:ident),*) => {
            match (method, series) {
                $(
                    (Discretization::$variant, Series::Exact) => {
                        const SERIES: usize = Series::Exact as usize;
                        work.run::<{ Discretization::$variant as usize }, SERIES>()
                    }
                    (Discretization::$variant, Series::Taylor) => {
                        const SERIES: usize = Series::Taylor as usize;
                        work.run::<{ Discretization::$variant as usize }, SERIES>()
                    }
                )*
                $(
                    (Discretization::$exact, _) => {
                        const SERIES: usize = Series::Exact as usize;
                        work.run::<{ Discretization::$exact as usize }, SERIES>()
                    }
                )*
            }
        };
    }
    arms!(Zoh, Foh, Bilinear, Poly, HighOrder, Rk4; ZohExact, ExpTrapezoidal, FohLinear, Tustin)
}
