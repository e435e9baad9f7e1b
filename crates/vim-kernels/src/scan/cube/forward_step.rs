//! One token of a scan for one channel: what runs for every (token, channel, state).
//!
//! Written as ordinary Rust over [`Traced`] numbers, so that the method's formulas come from
//! [`crate::discretization`] by way of [`Parts`].

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::plan::ScanPlan;
use crate::cube::traced::{Traced, exp2, reciprocal};
use crate::discretization::factored::{OfToken, Part, PartCoefficients, Parts};
use crate::discretization::term::Term;
use crate::real::Real;

#[cube]
pub(super) fn get(values: &Array<f32>, #[comptime] index: usize) -> f32 {
    values[index]
}

#[cube]
pub(super) fn set(values: &mut Array<f32>, #[comptime] index: usize, value: f32) {
    values[index] = value;
}

#[cube]
pub(super) fn row(values: &Shared<[f32]>, start: usize, #[comptime] index: usize) -> f32 {
    values[start + index]
}

/// One of the vectors of states that a chunk keeps.
#[cube]
pub(super) fn kept<W: Size>(values: &Shared<[Vector<f32, W>]>, at: usize) -> Vector<f32, W> {
    values[at]
}

/// One of its states.
#[cube]
pub(super) fn lane<W: Size>(vector: Vector<f32, W>, #[comptime] index: usize) -> f32 {
    vector.extract(index)
}

/// The value `four + within` of a unit that numbers them by `order`, a multiple of 4: four lie beside each other.
#[cube]
fn ordered(
    values: &Shared<[f32]>,
    start: usize,
    order: usize,
    #[comptime] four: usize,
    #[comptime] within: usize,
) -> f32 {
    values[(start + (order ^ four)) + within]
}

/// `ln(1 + eˣ)`, to 2e-7 of its value everywhere.
///
/// With e = exp(−|x|) and s = e/(2 + e), `ln(1 + e) = 2·atanh(s)`, whose series ends soon as s ≤ ⅓.
#[cube]
pub(crate) fn softplus(x: f32, #[comptime] ptx: bool) -> f32 {
    let e = exp2(-x.abs() * std::f32::consts::LOG2_E, ptx);
    let s = e * reciprocal(2.0f32 + e, ptx);
    let q = s * s;
    let series = 1.0f32
        + q * (0.333_333_34f32
            + q * (0.2f32 + q * (0.142_857_15f32 + q * (0.111_111_11f32 + q * 0.106f32))));
    max(x, 0.0f32) + 2.0f32 * s * series
}

/// `1/(1 + e⁻ˣ)`.
#[cube]
pub(crate) fn sigmoid(x: f32, #[comptime] ptx: bool) -> f32 {
    reciprocal(1.0f32 + exp2(-x * std::f32::consts::LOG2_E, ptx), ptx)
}

/// Delta of a token: bias, then softplus, where there are any.
#[cube]
pub(crate) fn step_size(raw: f32, bias: f32, #[comptime] plan: ScanPlan) -> f32 {
    let x = if comptime!(plan.has_bias) { raw + bias } else { raw };
    if comptime!(plan.softplus) { softplus(x, plan.ptx) } else { x }
}

/// B and C of a token: rows of a tile in shared memory, or the channel's own.
#[derive(CubeType)]
#[expect(dead_code, reason = "its twin in the kernel's expansion is what is read")]
pub(crate) struct Projections {
    pub(crate) b: Shared<[f32]>,
    pub(crate) c: Shared<[f32]>,
    pub(crate) own_b: Array<f32>,
    pub(crate) own_c: Array<f32>,
    /// See [`super::coords::order`]; 0 in a forward scan.
    pub(crate) order: usize,
}

impl ProjectionsExpand {
    fn row(
        &self,
        scope: &Scope,
        values: &SharedExpand<[f32]>,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> NativeExpand<f32> {
        if plan.reordered() {
            ordered::expand(scope, values, *at, self.order, n / 4 * 4, n % 4)
        } else {
            row::expand(scope, values, *at, n)
        }
    }

    pub(super) fn b<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let value = if plan.b_constant {
            get::expand(scope, &self.own_b, n)
        } else {
            self.row(scope, &self.b, at, n, plan)
        };
        Traced::new(scope, plan.ptx, value)
    }

    pub(super) fn c<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let value = if plan.c_constant {
            get::expand(scope, &self.own_c, n)
        } else {
            self.row(scope, &self.c, at, n, plan)
        };
        Traced::new(scope, plan.ptx, value)
    }
}

/// What drives the states at a token: what is the token's alone is multiplied by u once, for all of them.
struct Drive<'a> {
    parts: Parts,
    u: Traced<'a>,
    once: Option<Traced<'a>>,
    terms: Option<Vec<Term<Traced<'a>>>>,
}

impl<'a> Drive<'a> {
    fn new(parts: Parts, u: Traced<'a>) -> Self {
        Self { parts, u, once: None, terms: None }
    }

    /// `a_bar·h + b_bar·b·u`.
    fn next_state(
        &mut self,
        step: &PartCoefficients<Traced<'a>>,
        token: &OfToken<Traced<'a>>,
        state: &[Traced<'a>],
        h: Traced<'a>,
        b: Traced<'a>,
    ) -> Traced<'a> {
        let Self { parts, u, once, terms } = self;
        let drive = match step.b_bar.clone() {
            Part::Token(b_bar) => once.get_or_insert_with(|| b_bar * u.clone()).clone() * b,
            Part::State(b_bar) => b_bar * (u.clone() * b),
            Part::OverOuter(_) if parts.is_scaled() => {
                let terms = terms.get_or_insert_with(|| parts.drive(token, u));
                parts.driven(terms, token, state) * b
            }
            Part::OverOuter(gain) => {
                let once = once.get_or_insert_with(|| parts.outer(token) * u.clone());
                gain * (once.clone() * b)
            }
        };
        step.a_bar.clone() * h + drive
    }
}

/// The `len` numbers that are kept of state `n`.
pub(super) fn kept_of<'a>(
    scope: &'a Scope,
    rates: &<Array<f32> as CubeType>::ExpandType,
    n: usize,
    len: usize,
    plan: ScanPlan,
) -> Vec<Traced<'a>> {
    let number = |i| Traced::new(scope, plan.ptx, get::expand(scope, rates, n * len + i));
    (0..len).map(number).collect()
}

/// Registers that [`keep_state`] fills for a state.
pub(crate) fn rates_len(plan: ScanPlan) -> usize {
    plan.parts().state_len()
}

/// What the forward scan keeps of state `index` of rate `a`.
#[cube]
pub(crate) fn keep_state(
    rates: &mut Array<f32>,
    a: f32,
    #[comptime] index: usize,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let parts = plan.parts();
        let kept = parts.state(Traced::new(scope, plan.ptx, a));
        let len = kept.len();
        for (i, value) in kept.into_iter().enumerate() {
            set::expand(scope, rates, index * len + i, value.value());
        }
    })
}

/// `h ← a_bar·h + b_bar·b·u` for every state; returns `Σ c·h`.
///
/// `at` is where the token's row begins in the tile.
#[cube]
pub(crate) fn advance(
    h: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    u: f32,
    #[comptime] plan: ScanPlan,
) -> f32 {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let parts = plan.parts();
        let token = parts.token(number(delta));
        let u = number(u);
        let mut y = Sum::new();
        let mut drive = Drive::new(parts, u.clone());
        for n in 0..plan.states {
            let state = kept_of(scope, rates, n, parts.state_len(), plan);
            let step = parts.forward(&token, &state);
            let b = projections.b(scope, &at, n, plan);
            let before = number(get::expand(scope, h, n));
            let next = drive.next_state(&step, &token, &state, before, b);
            set::expand(scope, h, n, next.clone().value());
            y.add(projections.c(scope, &at, n, plan) * next);
        }
        y.or(&u.constant(0.0)).value()
    })
}

/// [`advance`] without the output; multiplies every state's `a_bar` into `product`, unless [`decay_over`] does.
#[cube]
pub(crate) fn advance_silently(
    h: &mut Array<f32>,
    product: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    u: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let parts = plan.parts();
        let token = parts.token(number(delta));
        let mut drive = Drive::new(parts, number(u));
        for n in 0..plan.states {
            let state = kept_of(scope, rates, n, parts.state_len(), plan);
            let step = parts.forward(&token, &state);
            let b = projections.b(scope, &at, n, plan);
            let before = number(get::expand(scope, h, n));
            let next = drive.next_state(&step, &token, &state, before, b);
            set::expand(scope, h, n, next.value());
            if !parts.decays_by_sum() {
                let whole = number(get::expand(scope, product, n)) * step.a_bar;
                set::expand(scope, product, n, whole.value());
            }
        }
    })
}

/// `product` over tokens whose deltas come to `total`, where it is not multiplied together token by token.
#[cube]
pub(crate) fn decay_over(
    product: &mut Array<f32>,
    rates: &Array<f32>,
    total: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let parts = plan.parts();
        if parts.decays_by_sum() {
            let total = Traced::new(scope, plan.ptx, total);
            for n in 0..plan.states {
                let state = kept_of(scope, rates, n, parts.state_len(), plan);
                let whole = parts.decay_over(total.clone(), &state);
                set::expand(scope, product, n, whole.value());
            }
        }
    })
}

/// Registers that [`keep_slope_state`] fills for a state.
pub(crate) fn slope_rates_len(plan: ScanPlan) -> usize {
    plan.parts().slope_state_len()
}

/// What the backward scan keeps of state `index` of rate `a`.
#[cube]
pub(crate) fn keep_slope_state(
    rates: &mut Array<f32>,
    a: f32,
    #[comptime] index: usize,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let parts = plan.parts();
        let kept = parts.slope_state(Traced::new(scope, plan.ptx, a));
        let len = kept.len();
        for (i, value) in kept.into_iter().enumerate() {
            set::expand(scope, rates, index * len + i, value.value());
        }
    })
}

/// [`advance`] without the output, from what the backward scan keeps of the states.
#[cube]
pub(crate) fn readvance(
    h: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    u: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let parts = plan.parts();
        let token = parts.token(number(delta));
        let mut drive = Drive::new(parts, number(u));
        for n in 0..plan.states {
            let state = kept_of(scope, rates, n, parts.slope_state_len(), plan);
            let step = parts.forward_again(&token, &state);
            let b = projections.b(scope, &at, n, plan);
            let before = number(get::expand(scope, h, n));
            let next = drive.next_state(&step, &token, &state, before, b);
            set::expand(scope, h, n, next.value());
        }
    })
}

/// A sum that begins with its first term.
pub(super) struct Sum<'a>(Option<Traced<'a>>);

impl<'a> Sum<'a> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn add(&mut self, term: Traced<'a>) {
        self.0 = Some(match self.0.take() {
            Some(sum) => sum + term,
            None => term,
        });
    }

    pub(super) fn or(self, zero: &Traced<'a>) -> Traced<'a> {
        self.0.unwrap_or_else(|| zero.clone())
    }
}
