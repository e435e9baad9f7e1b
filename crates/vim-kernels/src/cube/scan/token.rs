//! One token of a scan for one channel: what runs for every (token, channel, state).
//!
//! Written as ordinary Rust over [`Traced`] numbers, so that the method's formulas come from
//! [`crate::discretization`] by way of [`Parts`].

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::plan::ScanPlan;
use crate::cube::traced::{Traced, exp2, reciprocal};
use crate::parts::{Part, Parts};
use crate::real::Real;

#[cube]
fn get(values: &Array<f32>, #[comptime] index: usize) -> f32 {
    values[index]
}

#[cube]
fn set(values: &mut Array<f32>, #[comptime] index: usize, value: f32) {
    values[index] = value;
}

#[cube]
fn row(values: &Shared<[f32]>, start: usize, #[comptime] index: usize) -> f32 {
    values[start + index]
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
}

impl ProjectionsExpand {
    fn b<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let value = if plan.b_constant {
            get::expand(scope, &self.own_b, n)
        } else {
            row::expand(scope, &self.b, *at, n)
        };
        Traced::new(scope, plan.ptx, value)
    }

    fn c<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let value = if plan.c_constant {
            get::expand(scope, &self.own_c, n)
        } else {
            row::expand(scope, &self.c, *at, n)
        };
        Traced::new(scope, plan.ptx, value)
    }
}

/// Registers that [`state_rates`] fills for a state.
pub(crate) fn rates_len(plan: ScanPlan) -> usize {
    Parts::new(plan.method, plan.series).state_len()
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
        let parts = Parts::new(plan.method, plan.series);
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
        let parts = Parts::new(plan.method, plan.series);
        let token = parts.token(number(delta));
        let u = number(u);
        let mut y = Sum::new();
        let mut token_drive: Option<Traced<'_>> = None;
        for n in 0..plan.states {
            let len = parts.state_len();
            let state: Vec<_> =
                (0..len).map(|i| number(get::expand(scope, rates, n * len + i))).collect();
            let step = parts.forward(&token, &state);
            let b = projections.b(scope, &at, n, plan);
            let drive = match step.b_bar {
                Part::Token(b_bar) => {
                    token_drive.get_or_insert_with(|| b_bar * u.clone()).clone() * b
                }
                Part::State(b_bar) => b_bar * (u.clone() * b),
            };
            let next = step.a_bar * number(get::expand(scope, h, n)) + drive;
            set::expand(scope, h, n, next.clone().value());
            y.add(projections.c(scope, &at, n, plan) * next);
        }
        y.or(&u.constant(0.0)).value()
    })
}

/// [`advance`] without the output; multiplies every state's `a_bar` into `product`.
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
        let parts = Parts::new(plan.method, plan.series);
        let token = parts.token(number(delta));
        let u = number(u);
        for n in 0..plan.states {
            let len = parts.state_len();
            let state: Vec<_> =
                (0..len).map(|i| number(get::expand(scope, rates, n * len + i))).collect();
            let step = parts.forward(&token, &state);
            let b = projections.b(scope, &at, n, plan);
            let next = step.a_bar.clone() * number(get::expand(scope, h, n))
                + step.b_bar.value() * (u.clone() * b);
            set::expand(scope, h, n, next.value());
            let whole = number(get::expand(scope, product, n)) * step.a_bar;
            set::expand(scope, product, n, whole.value());
        }
    })
}

/// Registers that [`keep_slope_state`] fills for a state.
pub(crate) fn slope_rates_len(plan: ScanPlan) -> usize {
    Parts::new(plan.method, plan.series).slope_state_len()
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
        let parts = Parts::new(plan.method, plan.series);
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
        let parts = Parts::new(plan.method, plan.series);
        let token = parts.token(number(delta));
        let u = number(u);
        let mut token_drive = None;
        for n in 0..plan.states {
            let len = parts.slope_state_len();
            let state: Vec<_> =
                (0..len).map(|i| number(get::expand(scope, rates, n * len + i))).collect();
            let step = parts.forward_again(&token, &state);
            let b = projections.b(scope, &at, n, plan);
            let drive = match step.b_bar {
                Part::Token(b_bar) => {
                    token_drive.get_or_insert_with(|| b_bar * u.clone()).clone() * b
                }
                Part::State(b_bar) => b_bar * (u.clone() * b),
            };
            let next = step.a_bar * number(get::expand(scope, h, n)) + drive;
            set::expand(scope, h, n, next.value());
        }
    })
}

/// The backward scan's registers, one for each state.
#[derive(CubeType)]
pub(crate) struct Adjoint {
    /// The state after the token at hand.
    pub(crate) h: Array<f32>,
    /// `a_bar[t+1]·∂L/∂h[t+1]`.
    pub(crate) carry: Array<f32>,
    /// The sum of the gradient of a.
    pub(crate) a: Array<f32>,
    /// The gradients of B and C: of the token, or their sums where these are constant.
    pub(crate) b: Array<f32>,
    pub(crate) c: Array<f32>,
}

/// What a token's gradients are summed from, over the states of a pass.
#[derive(CubeType)]
pub(crate) struct TokenGrads {
    /// `Σ c·h`.
    pub(crate) y: f32,
    pub(crate) u: f32,
    pub(crate) delta: f32,
}

/// Where state `n` of a unit stands among the states that a chunk keeps, from the unit's first on: four beside each
/// other, which a unit moves at once.
pub(crate) fn kept_at(n: usize, plan: ScanPlan) -> usize {
    if plan.states.is_multiple_of(4) { n / 4 * 4 * plan.units + n % 4 } else { n * plan.units }
}

/// Where a unit's first state of the `j`-th token of a chunk stands.
#[cube]
pub(crate) fn kept_from(j: usize, #[comptime] plan: ScanPlan) -> usize {
    let unit = UNIT_POS_X as usize;
    let width = comptime!(if plan.states.is_multiple_of(4) { 4 } else { 1 });
    j * plan.states * plan.units + unit * width
}

/// The adjoint of [`advance`]: from `h[t]`, `h[t-1]` in `before` from `past` on, and the gradient `dy` of `Σ c·h`.
#[cube]
pub(crate) fn retreat(
    adjoint: &mut Adjoint,
    rates: &Array<f32>,
    projections: &Projections,
    before: &Shared<[f32]>,
    past: usize,
    at: usize,
    delta: f32,
    u: f32,
    dy: f32,
    #[comptime] plan: ScanPlan,
) -> TokenGrads {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let parts = Parts::new(plan.method, plan.series);
        let token = parts.slope_token(number(delta));
        let (u, delta, dy) = (number(u), number(delta), number(dy));
        let zero = dy.constant(0.0);
        let (mut y, mut du, mut ddelta) = (Sum::new(), Sum::new(), Sum::new());
        // Where b_bar is the token's alone: Σ b·∂L/∂h, which both du and ddelta are multiples of.
        let mut driven = Sum::new();
        let mut by_token = None;
        for n in 0..plan.states {
            let len = parts.slope_state_len();
            let state: Vec<_> =
                (0..len).map(|i| number(get::expand(scope, rates, n * len + i))).collect();
            let h = number(get::expand(scope, &adjoint.h, n));
            let h_before = number(row::expand(scope, before, past, kept_at(n, plan)));
            let b = projections.b(scope, &at, n, plan);
            let c = projections.c(scope, &at, n, plan);
            let dh = c.clone() * dy.clone() + number(get::expand(scope, &adjoint.carry, n));
            y.add(c * h.clone());
            let mut dc = h * dy.clone();
            if plan.c_constant {
                dc = number(get::expand(scope, &adjoint.c, n)) + dc;
            }
            set::expand(scope, &mut adjoint.c, n, dc.value());

            let step = parts.backward(&token, &state);
            let db_drive = match &step.b_bar {
                Part::Token(b_bar) => by_token
                    .get_or_insert_with(|| {
                        (b_bar.clone() * u.clone(), step.d_delta.value(), b_bar.clone())
                    })
                    .0
                    .clone(),
                Part::State(b_bar) => b_bar.clone() * u.clone(),
            };
            let mut db = dh.clone() * db_drive;
            if plan.b_constant {
                db = number(get::expand(scope, &adjoint.b, n)) + db;
            }
            set::expand(scope, &mut adjoint.b, n, db.value());

            // For an exponential decay the slope is a_bar itself, and this product is needed anyway.
            let flow = step.a_bar * dh.clone();
            let dx = match step.decay_slope {
                Some(slope) => dh.clone() * slope * h_before.clone(),
                None => flow.clone() * h_before.clone(),
            };
            let a = state[0].clone();
            ddelta.add(dx.clone() * a);
            let mut da = number(get::expand(scope, &adjoint.a, n)) + dx * delta.clone();
            let into_b = dh.clone() * b;
            match step.b_bar {
                Part::Token(_) => driven.add(into_b),
                Part::State(b_bar) => {
                    du.add(into_b.clone() * b_bar);
                    let into_b = into_b * u.clone();
                    ddelta.add(into_b.clone() * step.d_delta.value());
                    if let Some(d_a) = step.d_a {
                        da = da + into_b * d_a;
                    }
                }
            }
            set::expand(scope, &mut adjoint.a, n, da.value());
            set::expand(scope, &mut adjoint.carry, n, flow.value());
            set::expand(scope, &mut adjoint.h, n, h_before.value());
        }
        if let Some((_, d_delta, b_bar)) = by_token {
            let driven = driven.or(&zero);
            du.add(driven.clone() * b_bar);
            ddelta.add(driven * u * d_delta);
        }
        TokenGradsExpand {
            y: y.or(&zero).value(),
            u: du.or(&zero).value(),
            delta: ddelta.or(&zero).value(),
        }
    })
}

/// The part of [`retreat`] that the carry needs; multiplies every state's `a_bar` into `product`.
#[cube]
pub(crate) fn retreat_silently(
    carry: &mut Array<f32>,
    product: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    dy: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let parts = Parts::new(plan.method, plan.series);
        let token = parts.token(number(delta));
        let dy = number(dy);
        for n in 0..plan.states {
            let len = parts.state_len();
            let state: Vec<_> =
                (0..len).map(|i| number(get::expand(scope, rates, n * len + i))).collect();
            let a_bar = parts.forward(&token, &state).a_bar;
            let dh = projections.c(scope, &at, n, plan) * dy.clone()
                + number(get::expand(scope, carry, n));
            set::expand(scope, carry, n, (a_bar.clone() * dh).value());
            let whole = number(get::expand(scope, product, n)) * a_bar;
            set::expand(scope, product, n, whole.value());
        }
    })
}

/// A sum that begins with its first term.
struct Sum<'a>(Option<Traced<'a>>);

impl<'a> Sum<'a> {
    fn new() -> Self {
        Self(None)
    }

    fn add(&mut self, term: Traced<'a>) {
        self.0 = Some(match self.0.take() {
            Some(sum) => sum + term,
            None => term,
        });
    }

    fn or(self, zero: &Traced<'a>) -> Traced<'a> {
        self.0.unwrap_or_else(|| zero.clone())
    }
}
