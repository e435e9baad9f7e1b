//! The backward step of a method that reads the token before. The b·u of a token drives two states:
//! what flows into it from the token behind is kept beside what flows into the states.

use cubecl::ir::Scope;
use cubecl::prelude::*;

use super::{AdjointExpand, Channel, StateAt, Through, through_decay};
use crate::discretization::Form;
use crate::discretization::factored::TapSlopes;
use crate::scan::cube::forward_step::{ProjectionsExpand, get, set, state_terms};
use crate::scan::cube::layout::ScanPlan;
use crate::scan::cube::reading::{of_channels, places};
use vim_kernels_core::{Real, Term, Traced};

/// Where the method reads the token before, B of that in state `n`, and what flows from the token
/// behind: into b·u, or into the state where there is a
/// [tap before the decay](Form::tap_before_decay).
pub(super) fn tap_at<'a>(
    scope: &'a Scope,
    adjoint: &AdjointExpand,
    projections: &ProjectionsExpand,
    at: &NativeExpand<usize>,
    [place, n]: [usize; 2],
    plan: ScanPlan,
) -> Option<[Traced<'a>; 2]> {
    plan.two_taps().then(|| {
        let decays = plan.factored().tap_before_decay().is_some();
        let flows = if decays { &adjoint.carry } else { &adjoint.returning };
        let from_behind = Traced::new(scope, plan.ptx, get::expand(scope, flows, n));
        [projections.b_before(scope, at, place, plan), from_behind]
    })
}

/// Through the coefficients of a method that reads the token before.
pub(super) fn by_taps<'a>(
    factored: Form,
    channel: &mut Channel<'a>,
    state: StateAt<'a>,
    [b_before, u_before, from_behind]: [Traced<'a>; 3],
) -> Through<'a> {
    let StateAt { terms, before, b, dh, da, .. } = state;
    let TapSlopes { a_bar, decay_slope, gain, previous } =
        factored.backward_taps(&channel.token, &terms);
    let flow = a_bar.clone() * dh.clone();
    let dx = through_decay(decay_slope, &a_bar, &dh, &flow, &before, None);
    // Of the token's b·u, through both states that it drives, and of the b·u before it.
    let stepped = dh.clone() * channel.delta.clone();
    let driven = gain.value.times(&stepped).like(&dh) + from_behind;
    let drive = previous.value.times(&stepped).like(&dh);
    let [own, earlier] =
        [b.clone() * channel.u.clone(), b_before * u_before].map(|bu| bu * dh.clone());
    channel.du.add(driven.clone() * b);
    channel.ddelta.add(dx.clone() * terms[0].clone());
    let by_delta = gain.by_delta.times(&own).plus(previous.by_delta.times(&earlier));
    channel.ddelta.add(by_delta.like(&dh));
    let by_x = gain.slope.times(&own).plus(previous.slope.times(&earlier));
    let dx = Term::Of(dx).plus(by_x.times(&channel.delta)).like(&dh);
    let da = da + dx * channel.delta.clone();
    Through { flow, db: driven * channel.u.clone(), da, a_bar, drive }
}

/// Where the input of the token before joins the state before it decays; `from_behind` is what
/// flows into the state from the token behind, with delta of that.
pub(super) fn by_tap_before_decay<'a>(
    factored: Form,
    channel: &mut Channel<'a>,
    state: StateAt<'a>,
    [b_before, u_before, from_behind]: [Traced<'a>; 3],
    weight: f64,
) -> Through<'a> {
    let StateAt { terms, before, b, dh, da, .. } = state;
    let a_bar = factored.recompute_forward(&channel.token, &terms).a_bar;
    let flow = a_bar.clone() * dh.clone();
    let behind = channel.behind.clone().unwrap_or_else(|| dh.constant(0.0));
    let stepped = channel.delta.clone().scale(weight);
    let before = before + b_before.clone() * (u_before * stepped.clone());
    let dx = flow.clone() * before;
    channel.ddelta.add(dx.clone() * terms[0].clone());
    let da = da + dx * channel.delta.clone();
    channel.driven.add(b.clone() * dh.clone());
    channel.taps[0].add(b * from_behind.clone());
    channel.taps[1].add(b_before * flow.clone());
    let [own, next] = [stepped, behind.scale(weight)].map(|step| step * channel.u.clone());
    let db = dh * own + from_behind * next;
    Through { flow, db, da, a_bar, drive: channel.delta.clone() }
}

/// Turns the gradients of the states after the token behind a segment, in `flow`, into what flows
/// into the segment's last token: into its states and, in `tap`, into its b·u, as
/// [`Adjoint::returning`] has it. `delta` is the step of the token behind in the unit's channel.
#[cube]
pub(crate) fn flow_into_end(
    flow: &mut Array<f32>,
    tap: &mut Array<f32>,
    rates: &Array<f32>,
    delta: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let factored = plan.factored();
        let tokens: Vec<_> = of_channels(scope, number(delta), plan.channels())
            .into_iter()
            .map(|delta| factored.token(delta))
            .collect();
        for [channel, _, n] in places(plan.states, plan.channels()) {
            let terms = state_terms(scope, rates, n, factored.backward_state_len(), plan);
            let token = &tokens[channel];
            let step = factored.recompute_forward(token, &terms);
            let dh = number(get::expand(scope, flow, n));
            let stepped = factored.token_factor(token) * dh.clone();
            set::expand(scope, flow, n, (step.a_bar * dh).value());
            if let Some(b_prev) = step.b_prev.filter(|_| factored.tap_before_decay().is_none()) {
                set::expand(scope, tap, n, (b_prev * stepped).value());
            }
        }
        if factored.tap_before_decay().is_some() {
            set::expand(scope, tap, 0, delta);
        }
    })
}
