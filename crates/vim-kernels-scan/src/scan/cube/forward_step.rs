//! The forward scan: one unit per channel, its states in registers, B and C of a tile of tokens in
//! shared memory, the tokens one after the other. Of a long sequence [segments](super::segments)
//! run side by side.
//!
//! And one token of it for one channel: what runs for every (token, channel, state), in backward
//! scans too. Written as ordinary Rust over [`Traced`] numbers, so that the method's formulas come
//! from [`crate::discretization`], [factored](crate::discretization::factored).

#![expect(
    clippy::collapsible_if,
    reason = "what is decided when a kernel is built stands apart from what it decides itself"
)]

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::chunks::{before, store_chunk_state, take_chunk, tokens_ahead};
use super::coords::{
    ScanTensors, Sizes, UnitCoords, is_state, load_split, load_tile, state_weight, store_split,
    token_index, turn_tile, unit_bias, unit_coords, unit_skip, unit_states,
};
use super::layout::{CHUNK, Projected, ScanPlan};
use super::reading::{of_channels, places};
use crate::discretization::factored::{Coefficient, FactoredCoefficients, TokenTerms};
use crate::discretization::{Form, LEAST_RATE};
use vim_kernels_core::cube::math;
use vim_kernels_core::{Real, Term, Traced, exp2, reciprocal};

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

/// One of the vectors of states that the backward scan stores for a chunk.
#[cube]
pub(super) fn saved<W: Size>(values: &Shared<[Vector<f32, W>]>, at: usize) -> Vector<f32, W> {
    values[at]
}

/// One state of a vector.
#[cube]
pub(super) fn lane<W: Size>(vector: Vector<f32, W>, #[comptime] index: usize) -> f32 {
    vector.extract(index)
}

/// The value `four + within` of a unit that permutes them by `order`, a multiple of 4: groups of
/// four stay together.
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

/// Coefficients of a polynomial for `ln(1 + e)/e` on [0, 1] by rising power, to 9.2e-8: it
/// interpolates at nine Chebyshev points.
const LOG_SERIES: [f32; 9] = [
    0.999_999_94,
    -0.499_994_46,
    0.333_181_2,
    -0.248_353_99,
    0.190_768_81,
    -0.136_022_48,
    0.077_516_09,
    -0.029_074_065,
    0.005_126_102_4,
];

/// `ln(1 + eˣ)`: `max(x, 0) + ln(1 + e⁻|x|)`, the logarithm by a polynomial, as a scan waits for
/// exponentials and reciprocals more than for multiplications. To 2.3e-7 of its value where x ≥ −1;
/// below, to about |x|·5e-8, by the rounding of x·log₂e.
#[cube]
pub(crate) fn softplus(x: f32, #[comptime] ptx: bool) -> f32 {
    let e = exp2(-x.abs() * std::f32::consts::LOG2_E, ptx);
    let mut series = comptime!(LOG_SERIES[8]).runtime();
    #[unroll]
    for k in 0..8usize {
        series = series * e + comptime!(LOG_SERIES[7 - k]);
    }
    series * e + max(x, 0.0f32)
}

/// `1/(1 + e⁻ˣ)`.
#[cube]
pub(crate) fn sigmoid(x: f32, #[comptime] ptx: bool) -> f32 {
    reciprocal(1.0f32 + exp2(-x * std::f32::consts::LOG2_E, ptx), ptx)
}

/// Delta of a token: bias, then softplus, if enabled.
#[cube]
pub(crate) fn step_size(raw: f32, bias: f32, #[comptime] plan: ScanPlan) -> f32 {
    let x = if comptime!(plan.spec.has_delta_bias) { raw + bias } else { raw };
    if comptime!(plan.spec.options.delta_softplus) { softplus(x, plan.ptx) } else { x }
}

/// B and C of a token: rows of a tile in shared memory, or the channel's own constants.
#[derive(CubeType)]
#[expect(dead_code, reason = "its twin in the kernel's expansion is what is read")]
pub(crate) struct Projections {
    pub(crate) b: Shared<[f32]>,
    pub(crate) c: Shared<[f32]>,
    pub(crate) own_b: Array<f32>,
    pub(crate) own_c: Array<f32>,
    /// See [`super::reading::Shares`]; 0 in a forward scan.
    pub(crate) order: usize,
}

/// Shared rows and registers of B and C, read in `order`; constant ones are loaded here.
#[cube]
pub(crate) fn projections<FB: Float, FC: Float>(
    b: &[FB],
    c: &[FC],
    order: usize,
    pos: &UnitCoords,
) -> Projections {
    let plan = comptime!(pos.plan);
    let b_constant = comptime!(plan.spec.b_constant);
    let c_constant = comptime!(plan.spec.c_constant);
    let shared_b = comptime!(if b_constant { 1 } else { plan.tile_len(Projected::B) });
    let shared_c = comptime!(if c_constant { 1 } else { plan.tile_len(Projected::C) });
    let mut own_b = Array::<f32>::new(comptime!(if b_constant { plan.states } else { 1 }));
    let mut own_c = Array::<f32>::new(comptime!(if c_constant { plan.states } else { 1 }));
    if comptime!(b_constant) {
        #[unroll]
        for n in 0..plan.states {
            own_b[n] = state_weight::<FB>(b, n, pos);
        }
    }
    if comptime!(c_constant) {
        #[unroll]
        for n in 0..plan.states {
            own_c[n] = state_weight::<FC>(c, n, pos);
        }
    }
    Projections {
        b: Shared::<[f32]>::new_slice(shared_b),
        c: Shared::<[f32]>::new_slice(shared_c),
        own_b,
        own_c,
        order,
    }
}

impl ProjectionsExpand {
    pub(super) fn b<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let own = plan.spec.b_constant.then_some(&self.own_b);
        self.value(scope, own, &self.b, at, [plan.rows_before(Projected::B), n], plan)
    }

    /// B of the token before, where the method reads it.
    pub(super) fn b_before<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let own = plan.spec.b_constant.then_some(&self.own_b);
        self.value(scope, own, &self.b, at, [0, n], plan)
    }

    pub(super) fn c<'a>(
        &self,
        scope: &'a Scope,
        at: &NativeExpand<usize>,
        n: usize,
        plan: ScanPlan,
    ) -> Traced<'a> {
        let own = plan.spec.c_constant.then_some(&self.own_c);
        self.value(scope, own, &self.c, at, [0, n], plan)
    }

    /// State `n` of the row `rows_on` behind the one at `at`.
    fn value<'a>(
        &self,
        scope: &'a Scope,
        own: Option<&<Array<f32> as CubeType>::ExpandType>,
        rows: &SharedExpand<[f32]>,
        at: &NativeExpand<usize>,
        [rows_on, n]: [usize; 2],
        plan: ScanPlan,
    ) -> Traced<'a> {
        let on = rows_on * plan.states;
        let value = if let Some(own) = own {
            get::expand(scope, own, n)
        } else if plan.pairs_channels() {
            ordered::expand(scope, rows, *at, self.order, n / 4 * 4, n % 4 + on)
        } else {
            row::expand(scope, rows, *at, n + on)
        };
        Traced::new(scope, plan.ptx, value)
    }
}

/// The input of the states at a token: factors per token are multiplied by u once, for all states.
struct Drive<'a> {
    factored: Form,
    u: Traced<'a>,
    once: Option<Traced<'a>>,
    terms: Option<Vec<Term<Traced<'a>>>>,
    /// u of the token before, where the method reads it, times what all states have in common.
    before: Option<Traced<'a>>,
}

impl<'a> Drive<'a> {
    fn new(factored: Form, u: Traced<'a>, before: Option<Traced<'a>>) -> Self {
        Self { factored, u, once: None, terms: None, before }
    }

    /// `a_bar·h + b_bar·b·u`, and of the token before `b_prev·b_before·u`.
    fn next_state(
        &mut self,
        step: &FactoredCoefficients<Traced<'a>>,
        token: &TokenTerms<Traced<'a>>,
        state: &[Traced<'a>],
        h: Traced<'a>,
        [b, b_before]: [&Traced<'a>; 2],
    ) -> Traced<'a> {
        let Self { factored, u, once, terms, before } = self;
        let tap = before.as_ref().map(|u| u.clone() * b_before.clone());
        let b = b.clone();
        let drive = match step.b_bar.clone() {
            Coefficient::PerToken(b_bar) => {
                once.get_or_insert_with(|| b_bar * u.clone()).clone() * b
            }
            Coefficient::PerState(b_bar) => b_bar * (u.clone() * b),
            Coefficient::Factored(_) if factored.is_polynomial_in_x() => {
                let terms = terms.get_or_insert_with(|| factored.drive(token, u));
                factored.driven(terms, token, state) * b
            }
            Coefficient::Factored(gain) => {
                let once = once.get_or_insert_with(|| factored.token_factor(token) * u.clone());
                match tap.as_ref().filter(|_| factored.is_tustin()) {
                    Some(tap) => gain * (once.clone() * b + tap.clone()),
                    None => gain * (once.clone() * b),
                }
            }
        };
        match (&step.b_prev, tap) {
            (Some(_), Some(tap)) if factored.tap_before_decay().is_some() => {
                step.a_bar.clone() * (h + tap) + drive
            }
            (Some(b_prev), Some(tap)) if !factored.is_tustin() => {
                step.a_bar.clone() * h + (drive + b_prev.clone() * tap)
            }
            _ => step.a_bar.clone() * h + drive,
        }
    }
}

/// The `len` terms of state `n`.
pub(super) fn state_terms<'a>(
    scope: &'a Scope,
    rates: &<Array<f32> as CubeType>::ExpandType,
    n: usize,
    len: usize,
    plan: ScanPlan,
) -> Vec<Traced<'a>> {
    let number = |i| Traced::new(scope, plan.ptx, get::expand(scope, rates, n * len + i));
    (0..len).map(number).collect()
}

/// Computes the terms of state `index` with rate `a`, for the forward or for the backward scan.
#[cube]
pub(crate) fn store_state_terms(
    rates: &mut Array<f32>,
    a: f32,
    #[comptime] index: usize,
    #[comptime] backward: bool,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let a = Traced::new(scope, plan.ptx, a).at_least(f64::from(LEAST_RATE));
        let factored = plan.factored();
        let saved = if backward { factored.backward_state(a) } else { factored.state(a) };
        let len = saved.len();
        for (i, value) in saved.into_iter().enumerate() {
            set::expand(scope, rates, index * len + i, value.value());
        }
    })
}

/// The terms of the unit's states for a forward scan.
#[cube]
pub(crate) fn unit_state_terms(a: &[f32], pos: &UnitCoords) -> Array<f32> {
    let plan = comptime!(pos.plan);
    let mut terms = Array::<f32>::new(comptime!(plan.states * plan.state_terms_len(false)));
    #[unroll]
    for n in 0..plan.states {
        store_state_terms(&mut terms, state_weight::<f32>(a, n, pos), n, false, plan);
    }
    terms
}

/// `h ← a_bar·h + b_bar·b·u`, and what the token before adds, for every state; `then` has the
/// state's channel, place and number, its new value and `a_bar`. `rates` are the forward scan's
/// state terms, or the backward scan's.
#[expect(clippy::too_many_arguments, reason = "what a step reads, and what follows it")]
pub(super) fn step_states<'a>(
    scope: &'a Scope,
    h: &mut <Array<f32> as CubeType>::ExpandType,
    rates: &<Array<f32> as CubeType>::ExpandType,
    projections: &ProjectionsExpand,
    at: &NativeExpand<usize>,
    [delta, u, before]: [Traced<'a>; 3],
    backward: bool,
    plan: ScanPlan,
    mut then: impl FnMut([usize; 3], Traced<'a>, Traced<'a>),
) {
    let factored = plan.factored();
    let channels = if backward { plan.channels() } else { 1 };
    let [deltas, us] = [delta, u].map(|value| of_channels(scope, value, channels));
    let two_taps = plan.two_taps();
    let earlier = two_taps.then(|| of_channels(scope, before, channels));
    let mut earlier = earlier.into_iter().flatten();
    let mut tokens: Vec<_> = deltas
        .into_iter()
        .zip(us)
        .map(|(delta, u)| {
            let token = factored.token(delta);
            let weight = factored.tap_before_decay().unwrap_or(1.0);
            let before = earlier.next().map(|u| factored.token_factor(&token).scale(weight) * u);
            (token, Drive::new(factored, u, before))
        })
        .collect();
    for [channel, place, n] in places(plan.states, channels) {
        let (token, drive) = &mut tokens[channel];
        let state = state_terms(scope, rates, n, plan.state_terms_len(backward), plan);
        let step = if backward {
            factored.recompute_forward(token, &state)
        } else {
            factored.forward(token, &state)
        };
        let b = projections.b(scope, at, place, plan);
        let before = Traced::new(scope, plan.ptx, get::expand(scope, h, n));
        let b_before =
            if two_taps { projections.b_before(scope, at, place, plan) } else { b.clone() };
        let next = drive.next_state(&step, token, &state, before, [&b, &b_before]);
        set::expand(scope, h, n, next.clone().value());
        then([channel, place, n], next, step.a_bar);
    }
}

/// Steps every state over a token; returns `Σ c·h`.
///
/// `at` is the index of the token's row in the tile; `before` is the input of the token before.
#[cube]
pub(crate) fn forward_step(
    h: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    u: f32,
    before: f32,
    #[comptime] plan: ScanPlan,
) -> f32 {
    intrinsic!(|scope| {
        let token = [delta, u, before].map(|value| Traced::new(scope, plan.ptx, value));
        let zero = token[1].constant(0.0);
        let mut y = Sum::new();
        step_states(scope, h, rates, projections, &at, token, false, plan, |[_, n, _], next, _| {
            y.add(projections.c(scope, &at, n, plan) * next);
        });
        y.or(&zero).value()
    })
}

/// [`forward_step`] without the output, from the backward scan's state terms.
#[cube]
pub(crate) fn recompute_step(
    h: &mut Array<f32>,
    rates: &Array<f32>,
    projections: &Projections,
    at: usize,
    delta: f32,
    u: f32,
    before: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let token = [delta, u, before].map(|value| Traced::new(scope, plan.ptx, value));
        step_states(scope, h, rates, projections, &at, token, true, plan, |_, _, _| {});
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

    /// The sum, unless it has no terms.
    pub(super) fn value(self) -> Option<Traced<'a>> {
        self.0
    }
}

/// Runs one pass: `carry [segments, B, N, D]`, the states at the beginning of the segments;
/// `rest [B, L, D]`, the low bits of the sum that earlier passes leave in y; `chunk_states [chunks,
/// B, N/V, D, V]`, saved for the backward pass; `largest [1]`, the bits of the largest |delta·a| so
/// far. Buffers that the plan does not use have one element or vector.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "the operation has these outputs")]
pub(crate) fn scan_forward<F: Float, FB: Float, FC: Float, S: Float, V: Size>(
    tensors: &ScanTensors<F, FB, FC>,
    carry: &[f32],
    y: &mut [F],
    rest: &mut [F],
    last_state: &mut [f32],
    chunk_states: &mut [Vector<S, V>],
    largest: &[Atomic<u32>],
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC, S)] _types: [ElemType; 4],
) {
    let pos = unit_coords(sizes, plan);
    let rates = unit_state_terms(&tensors.a, &pos);
    let mut shared = projections::<FB, FC>(&tensors.b.data, &tensors.c.data, 0usize, &pos);
    let skip = unit_skip(&tensors.d, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let mut h = unit_states(carry, &pos);
    // Tokens are loaded a chunk ahead of their use, B and C a tile ahead.
    let mut ahead = tokens_ahead::<F, FB, FC>(tensors, plan.gated(), &pos);
    let (b, c) = comptime!((Projected::B, Projected::C));
    let mut next_b = Array::<FB>::new(comptime!(plan.tile_elems_per_unit(b)));
    let mut next_c = Array::<FC>::new(comptime!(plan.tile_elems_per_unit(c)));
    load_tile::<FB>(&mut next_b, &tensors.b, pos.begin, b, &pos);
    load_tile::<FC>(&mut next_c, &tensors.c, pos.begin, c, &pos);
    let mut longest = 0.0f32;
    let mut first = pos.begin;
    while first < pos.end {
        let after = first + plan.tile;
        sync_cube();
        turn_tile(&mut shared.b, &mut next_b, &tensors.b, after, b, &pos);
        turn_tile(&mut shared.c, &mut next_c, &tensors.c, after, c, &pos);
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < pos.end {
            let begin = first + chunk;
            if comptime!(plan.save) {
                if pos.active {
                    store_chunk_state::<S, V>(chunk_states, &h, begin, &pos);
                }
            }
            let now = take_chunk::<F, FB, FC>(&mut ahead, tensors, begin, plan.gated(), &pos);
            // What the passes before left, or the other direction, before a token is written:
            // a load does not pass a store that it may depend on.
            let mut left = Array::<f32>::new(CHUNK);
            if comptime!(!plan.first || plan.joins) {
                #[unroll]
                for j in 0..CHUNK {
                    let index = token_index(min(begin + j, pos.end - 1), &pos);
                    left[j] = load_split::<F>(y, rest, index, plan);
                }
            }
            // Steps past the end have size zero and change nothing: without a branch between
            // tokens, their softplus and gates overlap.
            #[unroll]
            for j in 0..CHUNK {
                let in_bounds = begin + j < pos.end;
                if comptime!(plan.save && j > 0 && j % plan.chunk() == 0) {
                    if pos.active && in_bounds {
                        store_chunk_state::<S, V>(chunk_states, &h, begin + j, &pos);
                    }
                }
                let u = f32::cast_from(now.u[j]);
                let raw = f32::cast_from(now.delta[j]);
                let size = select(in_bounds, step_size(raw, bias, plan), 0.0f32);
                if comptime!(plan.watches) {
                    longest = max(longest, size.abs());
                }
                let row = (chunk + j) * plan.states;
                let before = before::<F>(&now.u, j, CHUNK, u, plan);
                let sum = forward_step(&mut h, &rates, &shared, row, size, u, before, plan);
                let z = f32::cast_from(now.z[j]);
                let sum = if comptime!(plan.two_way()) { sum * 0.5f32 } else { sum };
                let sum = if comptime!(plan.first) { sum } else { sum + left[j] };
                let other = left[j];
                write_token::<F>(y, rest, sum, other, u, z, skip, begin + j, in_bounds, &pos);
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    if comptime!(plan.watches) {
        note_argument(largest, &tensors.a, longest, &pos);
    }
    if comptime!(plan.leaves_state) {
        if pos.active && pos.end == sizes.len as usize {
            #[unroll]
            for n in 0..plan.states {
                if is_state(n, &pos) {
                    let state = sizes.first_state as usize + n;
                    let row = pos.batch * sizes.d_inner as usize + pos.channel;
                    last_state[row * sizes.d_state as usize + state] = h[n];
                }
            }
        }
    }
}

/// Notes the largest |delta·a| of the unit, whose longest step is `longest`. A unit without a
/// channel of its own has the last one's.
#[cube]
fn note_argument(largest: &[Atomic<u32>], a: &[f32], longest: f32, pos: &UnitCoords) {
    let plan = comptime!(pos.plan);
    let mut fastest = 0.0f32;
    #[unroll]
    for n in 0..plan.states {
        fastest = max(fastest, state_weight::<f32>(a, n, pos).abs());
    }
    // Non-negative floats order as their bits do, and NaN lies above infinity. The word only grows:
    // units that do not exceed what they find have nothing to do, and those are all but a few of a
    // training.
    let argument = u32::reinterpret(longest * fastest);
    if argument <= comptime!(f32::INFINITY.to_bits()) && argument > largest[0].load() {
        largest[0].fetch_max(argument);
    }
}

/// Writes the output of a token from `sum`, that of all passes so far; `other` is the other
/// direction's, where the plan joins them.
#[cube]
#[expect(clippy::too_many_arguments, reason = "a token's numbers, and where they go")]
fn write_token<F: Float>(
    y: &mut [F],
    rest: &mut [F],
    sum: f32,
    other: f32,
    u: f32,
    z: f32,
    skip: f32,
    step: usize,
    in_bounds: bool,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let index = token_index(min(step, pos.end - 1), pos);
    if comptime!(plan.last) {
        let mut out = sum + skip * u;
        if comptime!(plan.joins) {
            // As of two directions at once: rounded where they are stored.
            let z = math::away_from_zero(z);
            let of_both = f32::cast_from(F::cast_from(out)) + other;
            out = of_both * (z * math::sigmoid(z, plan.ptx));
        } else if comptime!(plan.spec.has_z) {
            out *= z * sigmoid(z, plan.ptx);
        }
        if pos.active && in_bounds {
            y[index] = F::cast_from(out);
        }
    } else {
        if pos.active && in_bounds {
            store_split::<F>(y, rest, index, sum, plan);
        }
    }
}
