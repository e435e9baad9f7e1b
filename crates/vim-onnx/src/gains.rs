//! A method's coefficients as nodes, from its [`Form`]: no method is named here.
//!
//! `x = delta·A` is never positive. The φ functions lose every digit near 0 in their closed form,
//! so a polynomial is taken above −1 and the recursion `φₖ₊₁ = (φₖ − 1/k!)/x` below it, where no
//! difference cancels. Both are computed, and one of them is selected.

use vim_kernels::{Decay, Form, Gain, Series};

use crate::graph::{Graph, Value};

/// x above which the polynomial is used.
const NEAR: f64 = -1.0;
/// The highest factorial of the polynomials: the first term that they leave out is below 2e-9.
const TERMS: usize = 12;

/// A gain times delta.
#[derive(Clone, Debug)]
pub(crate) enum Factor {
    /// The same for all states, `[…, D, 1]`.
    PerToken(Value),
    /// `[…, D, N]`.
    PerState(Value),
}

/// The coefficients of one step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) a_bar: Value,
    pub(crate) b_bar: Factor,
    /// Of the input of the token before, where the method reads it.
    pub(crate) b_prev: Option<Factor>,
}

/// A number that the graph has, or that is known here.
#[derive(Clone, Debug)]
enum Term {
    Constant(f64),
    Of(Value),
}

/// Functions of x that gains are made of, each computed once.
struct Functions<'a> {
    graph: &'a mut Graph,
    x: Value,
    exp: Option<Value>,
    /// `1/(1 − x/2)`.
    inverse: Option<Value>,
    /// φ₁ and those above it.
    phis: Vec<Value>,
}

/// The coefficients of `form` for steps `delta`, `[…, D, 1]`, at the rates `a`, `[D, N]`.
pub(crate) fn step(graph: &mut Graph, form: Form, delta: &str, a: &str) -> Step {
    let x = graph.mul(delta, a);
    let mut all = Functions { graph, x, exp: None, inverse: None, phis: Vec::new() };
    let a_bar = match form.decay {
        Decay::Exponential => all.exp(),
        Decay::Cayley => {
            // 2/(1 − x/2) − 1 is exact where the decay is near −1.
            let inverse = all.inverse();
            let doubled = all.graph.scale(&inverse, 2.0);
            all.graph.offset(&doubled, -1.0)
        }
    };
    let highest = form.gains.into_iter().chain(form.previous).map(|gain| highest_phi(gain, form));
    all.phis(highest.max().unwrap_or(0));
    // delta·(ψ₁ + delta·(ψ₂ + delta·ψ₃)).
    let mut sum = Term::Constant(0.0);
    for gain in form.gains.into_iter().rev() {
        let inner = all.times(sum, delta);
        let gain = all.gain(gain, form.series);
        sum = all.plus(gain, inner);
    }
    let b_bar = all.factor(sum, delta);
    let b_prev = form.previous.map(|gain| {
        let gain = all.gain(gain, form.series);
        all.factor(gain, delta)
    });
    Step { a_bar, b_bar, b_prev }
}

/// The highest φ that a gain is made of; 0 for none.
fn highest_phi(gain: Gain, form: Form) -> usize {
    match (gain, form.series) {
        (Gain::Phi { k, .. }, Series::Exact) => k,
        (Gain::PhiSlope, _) => 2,
        (
            Gain::Phi { .. }
            | Gain::Constant(_)
            | Gain::Cayley { .. }
            | Gain::Exponential { .. }
            | Gain::Truncated { .. },
            _,
        ) => 0,
    }
}

impl Functions<'_> {
    fn exp(&mut self) -> Value {
        let Self { graph, exp, x, .. } = self;
        exp.get_or_insert_with(|| graph.exp(x)).clone()
    }

    fn inverse(&mut self) -> Value {
        let Self { graph, inverse, x, .. } = self;
        let compute = || {
            let half = graph.scale(x, -0.5);
            let below = graph.offset(&half, 1.0);
            graph.recip(&below)
        };
        inverse.get_or_insert_with(compute).clone()
    }

    /// φ₁ to φ_`highest`.
    fn phis(&mut self, highest: usize) {
        if highest == 0 {
            return;
        }
        let exp = self.exp();
        let graph = &mut *self.graph;
        let near_x = graph.at_least(&self.x, NEAR);
        let mut near = vec![series(graph, highest, TERMS - highest, &near_x)];
        for k in (1..highest).rev() {
            // φₖ = x·φₖ₊₁ + 1/k!, which does not cancel here.
            let product = graph.mul(&near_x, &near[near.len() - 1]);
            near.push(graph.offset(&product, inverse_factorial(k)));
        }
        let far_x = graph.at_most(&self.x, NEAR);
        let is_near = self.is_near();
        let mut far = exp;
        for k in 1..=highest {
            let difference = self.graph.offset(&far, -inverse_factorial(k - 1));
            far = self.graph.div(&difference, &far_x);
            let near = &near[highest - k];
            let phi = self.graph.op("Where", &[&is_near, near, &far], []);
            self.phis.push(phi);
        }
    }

    fn is_near(&mut self) -> Value {
        let limit = self.graph.number(NEAR);
        self.graph.op("Greater", &[&self.x, &limit], [])
    }

    /// φ₁′ = φ₁ − φ₂, of which little would be left below x = −1: there it is `(eˣ − φ₁)/x`.
    fn slope(&mut self) -> Value {
        let (exp, is_near) = (self.exp(), self.is_near());
        let near = self.graph.sub(&self.phis[0], &self.phis[1]);
        let difference = self.graph.sub(&exp, &self.phis[0]);
        let far_x = self.graph.at_most(&self.x, NEAR);
        let far = self.graph.div(&difference, &far_x);
        self.graph.op("Where", &[&is_near, &near, &far], [])
    }

    fn gain(&mut self, gain: Gain, by: Series) -> Term {
        let (value, weight) = match (gain, by) {
            (Gain::Constant(value), _) => return Term::Constant(value),
            (Gain::Cayley { weight }, _) => (self.inverse(), weight),
            (Gain::Exponential { weight }, _) => (self.exp(), weight),
            (Gain::PhiSlope, _) => (self.slope(), 1.0),
            (Gain::Phi { k, weight, .. }, Series::Exact) => (self.phis[k - 1].clone(), weight),
            (Gain::Phi { k, weight, terms }, Series::Taylor) => {
                (series(self.graph, k, terms, &self.x), weight)
            }
            (Gain::Truncated { k, terms }, _) => (series(self.graph, k, terms, &self.x), 1.0),
        };
        Term::Of(self.graph.scale(&value, weight))
    }

    fn plus(&mut self, a: Term, b: Term) -> Term {
        match (a, b) {
            (Term::Constant(a), Term::Constant(b)) => Term::Constant(a + b),
            (Term::Constant(0.0), Term::Of(value)) | (Term::Of(value), Term::Constant(0.0)) => {
                Term::Of(value)
            }
            (Term::Constant(number), Term::Of(value))
            | (Term::Of(value), Term::Constant(number)) => {
                Term::Of(self.graph.offset(&value, number))
            }
            (Term::Of(a), Term::Of(b)) => Term::Of(self.graph.add(&a, &b)),
        }
    }

    fn times(&mut self, term: Term, delta: &str) -> Term {
        match term {
            Term::Constant(0.0) => term,
            Term::Constant(number) => Term::Of(self.graph.scale(delta, number)),
            Term::Of(value) => Term::Of(self.graph.mul(&value, delta)),
        }
    }

    fn factor(&mut self, term: Term, delta: &str) -> Factor {
        match term {
            Term::Constant(number) => Factor::PerToken(self.graph.scale(delta, number)),
            Term::Of(value) => Factor::PerState(self.graph.mul(&value, delta)),
        }
    }
}

/// The first `terms` terms of the series of φₖ, `Σⱼ xʲ/(j+k)!`.
fn series(graph: &mut Graph, k: usize, terms: usize, x: &str) -> Value {
    let last = k + terms - 1;
    let mut sum = graph.number(inverse_factorial(last));
    for factorial in (k..last).rev() {
        let product = graph.mul(&sum, x);
        sum = graph.offset(&product, inverse_factorial(factorial));
    }
    sum
}

fn inverse_factorial(n: usize) -> f64 {
    (1..=n).map(|i| 1.0 / i as f64).product()
}
