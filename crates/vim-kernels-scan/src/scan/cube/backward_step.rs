//! The backward step over one token of a scan, for one channel: the adjoint of
//! [`forward_step`](super::forward_step::forward_step).

mod taps;

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::chunks::saved_index;
use super::forward_step::{Projections, Sum, get, lane, saved, set, state_terms};
use super::layout::ScanPlan;
use super::reading::{from_neighbour, of_channels, places};
use crate::discretization::Form;
use crate::discretization::factored::{Coefficient, TokenTerms};
use taps::{by_tap_before_decay, by_taps, tap_at};
use vim_kernels_core::{Real, Traced};

pub(super) use taps::flow_into_end;

/// The backward scan's registers, one for each state.
#[derive(CubeType)]
pub(crate) struct Adjoint {
    /// The state after the current token.
    pub(crate) h: Array<f32>,
    /// `a_bar[t+1]·∂L/∂h[t+1]`.
    pub(crate) carry: Array<f32>,
    /// The reverse way's state after the token that it visited last, `t + 1`, of a two-way method.
    /// `b_prev[t+1]·∂L/∂h[t+1]` of one that reads the token before; of one with a
    /// [tap before the decay](Form::tap_before_decay), of which `carry` is that but for a
    /// factor, the first is `delta[t+1]`.
    pub(crate) returning: Array<f32>,
    /// The sum of the gradient of a.
    pub(crate) a: Array<f32>,
    /// The gradients of B and C: of the token, added over the unit's channels, or their sums over
    /// tokens where B and C are constant.
    pub(crate) b: Array<f32>,
    pub(crate) c: Array<f32>,
}

/// Adds `c·h` to y, and sets the gradient of C of state `place`, or `adds` to it.
fn through_output<'a>(
    scope: &'a Scope,
    adjoint: &mut AdjointExpand,
    y: &mut Sum<'a>,
    [c, h, dy]: [&Traced<'a>; 3],
    place: usize,
    adds: bool,
) {
    y.add(c.clone() * h.clone());
    let mut dc = h.clone() * dy.clone();
    if adds {
        dc = dc.with(get::expand(scope, &adjoint.c, place)) + dc;
    }
    set::expand(scope, &mut adjoint.c, place, dc.value());
}

/// A token in one of the unit's channels: what its states have in common, and sums over them.
struct Channel<'a> {
    u: Traced<'a>,
    /// u of the token before, where the method reads it.
    before: Option<Traced<'a>>,
    /// `delta[t+1]`, where there is a [tap before the decay](Form::tap_before_decay).
    behind: Option<Traced<'a>>,
    delta: Traced<'a>,
    dy: Traced<'a>,
    token: TokenTerms<Traced<'a>>,
    token_factor: Traced<'a>,
    stepped_u: Traced<'a>,
    half_delta: Traced<'a>,
    by_factors: [Traced<'a>; 2],
    /// `b_bar·u`, `∂b_bar/∂delta` and `b_bar` where they are per token.
    by_token: Option<[Traced<'a>; 3]>,
    y: Sum<'a>,
    du: Sum<'a>,
    ddelta: Sum<'a>,
    /// Σ b·∂L/∂h of the token behind and of the one before with this token's decay, where there is
    /// a [tap before the decay](Form::tap_before_decay).
    taps: [Sum<'a>; 2],
    /// Σ b·∂L/∂h where b_bar is per token; where it is a function ψ of x up to the token factor,
    /// Σ ψ·b·∂L/∂h without ψ's constant factor. du is a multiple of it, and so is a part of
    /// ddelta, except for the Cayley transform.
    driven: Sum<'a>,
}

impl<'a> Channel<'a> {
    fn new(factored: Form, [u, delta, dy]: [Traced<'a>; 3], before: Option<Traced<'a>>) -> Self {
        let token = factored.backward_token(delta.clone());
        let token_factor = factored.token_factor(&token);
        let stepped_u = u.clone() * token_factor.clone();
        Self {
            half_delta: delta.clone().scale(0.5),
            by_factors: factored.factors().map(|factor| stepped_u.clone().scale(factor)),
            by_token: None,
            y: Sum::new(),
            du: Sum::new(),
            ddelta: Sum::new(),
            driven: Sum::new(),
            taps: [Sum::new(), Sum::new()],
            behind: None,
            u,
            before,
            delta,
            dy,
            token,
            token_factor,
            stepped_u,
        }
    }

    /// The token in each of the unit's channels, from the inputs of its own.
    fn all(
        scope: &'a Scope,
        inputs: [NativeExpand<f32>; 3],
        before: NativeExpand<f32>,
        plan: ScanPlan,
    ) -> Vec<Self> {
        let of_all =
            |value| of_channels(scope, Traced::new(scope, plan.ptx, value), plan.channels());
        let [us, deltas, dys] = inputs.map(of_all);
        let mut earlier = plan.two_taps().then(|| of_all(before)).into_iter().flatten();
        let inputs = us.into_iter().zip(deltas).zip(dys);
        let mut one = |((u, delta), dy)| Self::new(plan.factored(), [u, delta, dy], earlier.next());
        inputs.map(&mut one).collect()
    }

    /// Notes delta of the token behind, and keeps that of this one, where there is a
    /// [tap before the decay](Form::tap_before_decay).
    fn step_behind(
        channels: &mut [Self],
        scope: &'a Scope,
        adjoint: &mut AdjointExpand,
        delta: NativeExpand<f32>,
        plan: ScanPlan,
    ) {
        if plan.factored().tap_before_decay().is_some() {
            let behind = get::expand(scope, &adjoint.returning, 0);
            let all = of_channels(scope, Traced::new(scope, plan.ptx, behind), plan.channels());
            channels.iter_mut().zip(all).for_each(|(of, behind)| of.behind = Some(behind));
            set::expand(scope, &mut adjoint.returning, 0, delta);
        }
    }

    /// The token's gradients in the unit's own channel, to which the adjacent unit adds its sums.
    fn finish(
        scope: &'a Scope,
        channels: Vec<Self>,
        zero: &Traced<'a>,
        plan: ScanPlan,
    ) -> TokenGradsExpand {
        let factored = plan.factored();
        let mut channels = channels.into_iter();
        let mut own = channels.next().expect("invariant: a unit has a channel");
        if let Some(Self { y, du, ddelta, driven, taps: [behind, earlier], .. }) = channels.next() {
            // Without a gate nothing needs y.
            if plan.spec.has_z {
                add_neighbours(scope, &mut own.y, y);
            }
            add_neighbours(scope, &mut own.du, du);
            add_neighbours(scope, &mut own.ddelta, ddelta);
            add_neighbours(scope, &mut own.driven, driven);
            add_neighbours(scope, &mut own.taps[0], behind);
            add_neighbours(scope, &mut own.taps[1], earlier);
        }
        let Self { u, token, token_factor, by_token, y, mut du, mut ddelta, driven, .. } = own;
        let driven = driven.or(zero);
        let (taps, scalars) = (own.taps, [own.behind, own.before]);
        if let (Some(w), [Some(delta_behind), Some(u_before)]) =
            (factored.tap_before_decay(), scalars)
        {
            let [behind, earlier] = taps.map(|sum| sum.or(zero));
            du.add((driven.clone() * token.delta + behind * delta_behind).scale(w));
            ddelta.add((driven * u + earlier * u_before).scale(w));
        } else if let Some([_, d_delta, b_bar]) = by_token {
            du.add(driven.clone() * b_bar);
            ddelta.add(driven * u * d_delta);
        } else if factored.goes_via_x() {
            let driven = driven.scale(factored.factors()[0]);
            du.add(driven.clone() * token_factor);
            ddelta.add(driven * u * factored.token_factor_slope(&token));
        } else if factored.is_bilinear() {
            du.add(driven * token_factor);
        }
        TokenGradsExpand {
            y: y.or(zero).value(),
            u: du.or(zero).value(),
            delta: ddelta.or(zero).value(),
        }
    }
}

/// Adds to a sum over the unit's states of its own channel what the adjacent unit has of that
/// channel; `given` is the sum over the unit's states of the other channel.
fn add_neighbours<'a>(scope: &'a Scope, sum: &mut Sum<'a>, given: Sum<'a>) {
    if let Some(given) = given.value() {
        let taken = from_neighbour::expand(scope, given.clone().value());
        sum.add(given.with(taken));
    }
}

/// Sums over the states of a pass from which a token's gradients follow.
#[derive(CubeType)]
pub(crate) struct TokenGrads {
    /// `Σ c·h`.
    pub(crate) y: f32,
    pub(crate) u: f32,
    pub(crate) delta: f32,
}

/// Of a two-way method, the gradient of the state of the reverse way, and that state before the
/// token.
#[derive(Clone)]
struct Reverse<'a> {
    dh: Traced<'a>,
    before: Traced<'a>,
}

/// The gradient of x = delta·a through `a_bar`. For an exponential decay the slope is a_bar itself,
/// and its product with the state's gradient, `flow`, is needed anyway.
fn through_decay<'a>(
    slope: Option<Traced<'a>>,
    a_bar: &Traced<'a>,
    dh: &Traced<'a>,
    flow: &Traced<'a>,
    before: &Traced<'a>,
    reverse: Option<&Reverse<'a>>,
) -> Traced<'a> {
    match (slope, reverse) {
        (Some(slope), None) => dh.clone() * slope * before.clone(),
        (None, None) => flow.clone() * before.clone(),
        (slope, Some(reverse)) => {
            reverse.moved(dh, before) * slope.unwrap_or_else(|| a_bar.clone())
        }
    }
}

impl<'a> Reverse<'a> {
    /// The gradient of the decay, of both ways.
    fn moved(&self, dh: &Traced<'a>, before: &Traced<'a>) -> Traced<'a> {
        dh.clone() * before.clone() + self.dh.clone() * self.before.clone()
    }
}

/// A state at a token: what the gradients through its coefficients are made of.
struct StateAt<'a> {
    /// The state's terms; the first is A.
    terms: Vec<Traced<'a>>,
    /// The state before the token.
    before: Traced<'a>,
    b: Traced<'a>,
    /// The gradient of the state.
    dh: Traced<'a>,
    /// The gradient of what drives it, in both ways.
    driven_by: Traced<'a>,
    reverse: Option<Reverse<'a>>,
    /// Where the method reads the token before, B of that, and what flows into this token's b·u
    /// from the one after it.
    tap: Option<[Traced<'a>; 2]>,
    /// The sum of the gradient of A so far.
    da: Traced<'a>,
}

/// What follows from a state's coefficients at a token.
struct Through<'a> {
    /// The gradient of the state before.
    flow: Traced<'a>,
    db: Traced<'a>,
    /// The sum of the gradient of A.
    da: Traced<'a>,
    a_bar: Traced<'a>,
    /// `b_bar·u`, which only the reverse way needs; of a method that reads the token before, the
    /// gradient of that token's b·u.
    drive: Traced<'a>,
}

/// Through the Cayley transform; of Tustin's rule with `tap`, B and u of the token before and what
/// flows into b·u from the token behind.
fn by_cayley<'a>(
    factored: Form,
    channel: &mut Channel<'a>,
    state: StateAt<'a>,
    tap: Option<[Traced<'a>; 3]>,
) -> Through<'a> {
    let StateAt { terms, before, b, dh, driven_by, reverse, da, .. } = state;
    let a = terms[0].clone();
    let r = factored.backward_bilinear(&channel.token, &terms);
    let a_bar = r.clone().scale(2.0).offset(-1.0);
    let mut drive = r.clone() * channel.stepped_u.clone();
    let once = driven_by * r.clone();
    let flow = match &reverse {
        None => once.clone().scale(2.0) - dh.clone(),
        Some(_) => a_bar.clone() * dh.clone(),
    };
    let db = if let Some([.., from_behind]) = &tap {
        drive = once.clone() * channel.token_factor.clone();
        let driven = drive.clone() + from_behind.clone();
        channel.du.add(driven.clone() * b.clone());
        driven * channel.u.clone()
    } else {
        channel.driven.add(once.clone() * b.clone());
        once.clone() * channel.stepped_u.clone()
    };
    // Through a_bar and through b_bar, with r² in both.
    let twice = once * r.clone();
    let by_decay = match &reverse {
        None => twice.clone() * before,
        Some(reverse) => reverse.moved(&dh, &before) * (r.clone() * r),
    };
    let by_drive = match tap {
        None => twice.clone() * (b * channel.u.clone()),
        Some([b_before, u_before, _]) => {
            twice * (b * channel.u.clone() + b_before * u_before).scale(0.5)
        }
    };
    channel.ddelta.add(by_decay.clone() * a);
    channel.ddelta.add(by_drive.clone());
    let da = da + (by_drive * channel.half_delta.clone() + by_decay) * channel.delta.clone();
    Through { flow, db, da, a_bar, drive }
}

/// Through x, where `b_bar` is a function of x up to the token's factor.
fn via_x<'a>(factored: Form, channel: &mut Channel<'a>, state: StateAt<'a>) -> Through<'a> {
    let StateAt { terms, before, b, dh, driven_by, reverse, da, .. } = state;
    let a = terms[0].clone();
    let step = factored.backward_via_x(&channel.token, &terms);
    let drive = step.gain.clone() * channel.by_factors[0].clone();
    let into_b = driven_by.clone() * b.clone();
    let gained = driven_by * step.gain;
    channel.driven.add(gained.clone() * b);
    let db = gained * channel.by_factors[0].clone();
    let a_bar = step.a_bar;
    let flow = a_bar.clone() * dh.clone();
    let slope = step.decay_slope;
    // The gradient of x, through a_bar and b_bar.
    let dx = through_decay(slope, &a_bar, &dh, &flow, &before, reverse.as_ref())
        + into_b * channel.by_factors[1].clone() * step.gain_slope;
    channel.ddelta.add(dx.clone() * a);
    let da = da + dx * channel.delta.clone();
    Through { flow, db, da, a_bar, drive }
}

/// Through the decay and the gains of any method.
fn by_slopes<'a>(factored: Form, channel: &mut Channel<'a>, state: StateAt<'a>) -> Through<'a> {
    let StateAt { terms, before, b, dh, driven_by, reverse, da, .. } = state;
    let a = terms[0].clone();
    let step = factored.backward(&channel.token, &terms);
    let into_b = driven_by.clone() * b;
    let a_bar = step.a_bar;
    let flow = a_bar.clone() * dh.clone();
    let slope = step.decay_slope;
    let dx = through_decay(slope, &a_bar, &dh, &flow, &before, reverse.as_ref());
    channel.ddelta.add(dx.clone() * a);
    let mut da = da + dx * channel.delta.clone();
    let d_delta = step.d_delta.value(&channel.token_factor);
    let u = channel.u.clone();
    let (db, drive);
    if let Coefficient::PerToken(b_bar) = &step.b_bar {
        let whole = || [b_bar.clone() * u, d_delta, b_bar.clone()];
        drive = channel.by_token.get_or_insert_with(whole)[0].clone();
        db = driven_by * drive.clone();
        channel.driven.add(into_b);
    } else {
        let b_bar = step.b_bar.value(&channel.token_factor);
        drive = b_bar.clone() * u.clone();
        db = driven_by * drive.clone();
        channel.du.add(into_b.clone() * b_bar);
        let into_b = into_b * u;
        channel.ddelta.add(into_b.clone() * d_delta);
        if let Some(d_a) = step.d_a {
            da = da + into_b * d_a;
        }
    }
    Through { flow, db, da, a_bar, drive }
}

/// Through the coefficients, by the shortest of the ways that the method has.
fn through<'a>(factored: Form, channel: &mut Channel<'a>, state: StateAt<'a>) -> Through<'a> {
    if let (Some([b, from_behind]), Some(u)) = (&state.tap, &channel.before) {
        let tap = [b, u, from_behind].map(Traced::clone);
        if factored.is_tustin() {
            by_cayley(factored, channel, state, Some(tap))
        } else if let Some(weight) = factored.tap_before_decay() {
            by_tap_before_decay(factored, channel, state, tap, weight)
        } else {
            by_taps(factored, channel, state, tap)
        }
    } else if factored.is_bilinear() {
        by_cayley(factored, channel, state, None)
    } else if factored.goes_via_x() {
        via_x(factored, channel, state)
    } else {
        by_slopes(factored, channel, state)
    }
}

/// Keeps the reverse way's state `n`, which has been stepped, and adds both ways' states, of which
/// `h` is the first, to the output.
fn step_reverse<'a>(
    scope: &'a Scope,
    adjoint: &mut AdjointExpand,
    y: &mut Sum<'a>,
    returning: Traced<'a>,
    [c, h, dy]: [&Traced<'a>; 3],
    [place, n]: [usize; 2],
    adds: bool,
) {
    set::expand(scope, &mut adjoint.returning, n, returning.clone().value());
    through_output(scope, adjoint, y, [c, &(h.clone() + returning), dy], place, adds);
}

/// The adjoint of [`forward_step`] at the `j`-th token of a chunk: from `h[t]`, `h[t-1]` in
/// `before`, and the gradient `dy` of `Σ c·h`. Of a two-way method the h in that sum is the sum of
/// both ways', the states of the reverse way are stepped, and what flows into it from the tokens
/// before is in `before`, too.
#[cube]
pub(crate) fn backward_step<W: Size>(
    adjoint: &mut Adjoint,
    rates: &Array<f32>,
    projections: &Projections,
    before: &Shared<[Vector<f32, W>]>,
    j: usize,
    at: usize,
    delta: f32,
    u: f32,
    u_before: f32,
    dy: f32,
    #[comptime] plan: ScanPlan,
) -> TokenGrads {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let factored = plan.factored();
        let zero = number(dy).constant(0.0);
        let mut channels = Channel::all(scope, [u, delta, dy], u_before, plan);
        Channel::step_behind(&mut channels, scope, adjoint, delta, plan);
        let width = plan.shared_vector_width();
        let mut groups = vec![None; plan.saved_vectors()];
        for [i, place, n] in places(plan.states, plan.channels()) {
            let channel = &mut channels[i];
            let terms = state_terms(scope, rates, n, factored.backward_state_len(), plan);
            let (vector, flows) = *groups[n / width].get_or_insert_with(|| {
                let load = |group| {
                    let at = saved_index::expand(scope, j, group, plan);
                    saved::expand::<W>(scope, before, at)
                };
                let flows = plan.two_way().then(|| load(plan.saved_vectors() + n / width));
                (load(n / width), flows)
            });
            let h = number(get::expand(scope, &adjoint.h, n));
            let before = number(lane::expand::<W>(scope, vector, n % width));
            let b = projections.b(scope, &at, place, plan);
            let c = projections.c(scope, &at, place, plan);
            let dy = channel.dy.clone();
            let dh = c.clone() * dy.clone() + number(get::expand(scope, &adjoint.carry, n));
            let reverse = flows.map(|flows| Reverse {
                dh: c.clone() * dy.clone() + number(lane::expand::<W>(scope, flows, n % width)),
                before: number(get::expand(scope, &adjoint.returning, n)),
            });
            let driven_by = reverse.as_ref().map_or(dh.clone(), |r| dh.clone() + r.dh.clone());
            let [adds_b, adds_c] =
                [plan.spec.b_constant, plan.spec.c_constant].map(|constant| constant || i > 0);
            if reverse.is_none() {
                through_output(scope, adjoint, &mut channel.y, [&c, &h, &dy], place, adds_c);
            }
            let da = number(get::expand(scope, &adjoint.a, n));
            let (again, drives, h_before) = (reverse.clone(), b.clone(), before.clone());
            let tap = tap_at(scope, adjoint, projections, &at, [place, n], plan);
            let state = StateAt { terms, before, b, dh, driven_by, reverse, tap, da };
            let Through { flow, mut db, da, a_bar, drive } = through(factored, channel, state);
            if adds_b {
                db = number(get::expand(scope, &adjoint.b, place)) + db;
            }
            if let Some(reverse) = again {
                let returning = a_bar * reverse.before + drive * drives;
                let (y, output) = (&mut channel.y, [&c, &h, &dy]);
                step_reverse(scope, adjoint, y, returning, output, [place, n], adds_c);
            } else if plan.two_taps() && factored.tap_before_decay().is_none() {
                set::expand(scope, &mut adjoint.returning, n, drive.value());
            }
            set::expand(scope, &mut adjoint.b, place, db.value());
            set::expand(scope, &mut adjoint.a, n, da.value());
            set::expand(scope, &mut adjoint.carry, n, flow.value());
            set::expand(scope, &mut adjoint.h, n, h_before.value());
        }
        Channel::finish(scope, channels, &zero, plan)
    })
}
