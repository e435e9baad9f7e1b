//! The backward step over one token of a scan, for one channel: the adjoint of
//! [`forward_step`](super::forward_step::forward_step); and the sums of its gradients of B and C
//! over a cube's channels, in a fixed order.

use cubecl::prelude::*;

use super::chunks::saved_index;
use super::coords::{UnitCoords, is_state, token_at};
use super::forward_step::{Projections, Sum, get, lane, saved, set, state_terms};
use super::layout::{CHUNK, PLANE, ScanPlan};
use crate::discretization::factored::Coefficient;
use crate::real::{Real, Traced};

/// The backward scan's registers, one for each state.
#[derive(CubeType)]
pub(crate) struct Adjoint {
    /// The state after the current token.
    pub(crate) h: Array<f32>,
    /// `a_bar[t+1]·∂L/∂h[t+1]`.
    pub(crate) carry: Array<f32>,
    /// The sum of the gradient of a.
    pub(crate) a: Array<f32>,
    /// The gradients of B and C: of the token, or their sums where these are constant.
    pub(crate) b: Array<f32>,
    pub(crate) c: Array<f32>,
}

/// Sums over the states of a pass from which a token's gradients follow.
#[derive(CubeType)]
pub(crate) struct TokenGrads {
    /// `Σ c·h`.
    pub(crate) y: f32,
    pub(crate) u: f32,
    pub(crate) delta: f32,
}

/// The gradient of x = delta·a through `a_bar`. For an exponential decay the slope is a_bar itself,
/// and its product with the state's gradient, `flow`, is needed anyway.
fn through_decay<'a>(
    slope: Option<Traced<'a>>,
    dh: &Traced<'a>,
    flow: &Traced<'a>,
    before: &Traced<'a>,
) -> Traced<'a> {
    match slope {
        Some(slope) => dh.clone() * slope * before.clone(),
        None => flow.clone() * before.clone(),
    }
}

/// The adjoint of [`forward_step`] at the `j`-th token of a chunk: from `h[t]`, `h[t-1]` in
/// `before`, and the gradient `dy` of `Σ c·h`.
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
    dy: f32,
    #[comptime] plan: ScanPlan,
) -> TokenGrads {
    intrinsic!(|scope| {
        let number = |value| Traced::new(scope, plan.ptx, value);
        let factored = plan.factored();
        let token = factored.backward_token(number(delta));
        let (u, delta, dy) = (number(u), number(delta), number(dy));
        let zero = dy.constant(0.0);
        let (mut y, mut du, mut ddelta) = (Sum::new(), Sum::new(), Sum::new());
        // Σ b·∂L/∂h where b_bar is per token; where it is a function ψ of x up to the token factor,
        // Σ ψ·b·∂L/∂h without ψ's constant factor. du is a multiple of it, and so is a part of
        // ddelta, except for the Cayley transform.
        let mut driven = Sum::new();
        let mut by_token = None;
        let token_factor = factored.token_factor(&token);
        let stepped_u = u.clone() * token_factor.clone();
        let half_delta = delta.clone().scale(0.5);
        let by_factors = factored.factors().map(|factor| stepped_u.clone().scale(factor));
        let mut group = None;
        for n in 0..plan.states {
            let state = state_terms(scope, rates, n, factored.backward_state_len(), plan);
            let width = plan.shared_vector_width();
            if n % width == 0 {
                let at = saved_index::expand(scope, j, n / width, plan);
                group = Some(saved::expand::<W>(scope, before, at));
            }
            let vector = group.expect("invariant: set at the first state");
            let h = number(get::expand(scope, &adjoint.h, n));
            let h_before = number(lane::expand::<W>(scope, vector, n % width));
            let b = projections.b(scope, &at, n, plan);
            let c = projections.c(scope, &at, n, plan);
            let dh = c.clone() * dy.clone() + number(get::expand(scope, &adjoint.carry, n));
            y.add(c * h.clone());
            let mut dc = h * dy.clone();
            if plan.spec.c_constant {
                dc = number(get::expand(scope, &adjoint.c, n)) + dc;
            }
            set::expand(scope, &mut adjoint.c, n, dc.value());

            let a = state[0].clone();
            let mut da = number(get::expand(scope, &adjoint.a, n));
            let (flow, mut db);
            if factored.is_bilinear() {
                let r = factored.backward_bilinear(&token, &state);
                let once = dh.clone() * r.clone();
                flow = once.clone().scale(2.0) - dh;
                driven.add(once.clone() * b.clone());
                db = once.clone() * stepped_u.clone();
                // Through a_bar and through b_bar, with r² in both.
                let twice = once * r;
                let by_decay = twice.clone() * h_before.clone();
                let by_drive = twice * (b * u.clone());
                ddelta.add(by_decay.clone() * a);
                ddelta.add(by_drive.clone());
                da = da + (by_drive * half_delta.clone() + by_decay) * delta.clone();
            } else if factored.goes_via_x() {
                let step = factored.backward_via_x(&token, &state);
                let into_b = dh.clone() * b.clone();
                let gained = dh.clone() * step.gain;
                driven.add(gained.clone() * b);
                db = gained * by_factors[0].clone();
                flow = step.a_bar * dh.clone();
                // The gradient of x, through a_bar and b_bar.
                let dx = through_decay(step.decay_slope, &dh, &flow, &h_before)
                    + into_b * by_factors[1].clone() * step.gain_slope;
                ddelta.add(dx.clone() * a);
                da = da + dx * delta.clone();
            } else {
                let step = factored.backward(&token, &state);
                let into_b = dh.clone() * b;
                flow = step.a_bar * dh.clone();
                let dx = through_decay(step.decay_slope, &dh, &flow, &h_before);
                ddelta.add(dx.clone() * a);
                da = da + dx * delta.clone();
                let d_delta = step.d_delta.value(&token_factor);
                if let Coefficient::PerToken(b_bar) = &step.b_bar {
                    let whole = || (b_bar.clone() * u.clone(), d_delta, b_bar.clone());
                    db = dh * by_token.get_or_insert_with(whole).0.clone();
                    driven.add(into_b);
                } else {
                    let b_bar = step.b_bar.value(&token_factor);
                    db = dh * (b_bar.clone() * u.clone());
                    du.add(into_b.clone() * b_bar);
                    let into_b = into_b * u.clone();
                    ddelta.add(into_b.clone() * d_delta);
                    if let Some(d_a) = step.d_a {
                        da = da + into_b * d_a;
                    }
                }
            }
            if plan.spec.b_constant {
                db = number(get::expand(scope, &adjoint.b, n)) + db;
            }
            set::expand(scope, &mut adjoint.b, n, db.value());
            set::expand(scope, &mut adjoint.a, n, da.value());
            set::expand(scope, &mut adjoint.carry, n, flow.value());
            set::expand(scope, &mut adjoint.h, n, h_before.value());
        }
        if let Some((_, d_delta, b_bar)) = by_token {
            let driven = driven.or(&zero);
            du.add(driven.clone() * b_bar);
            ddelta.add(driven * u * d_delta);
        } else if factored.goes_via_x() {
            let driven = driven.or(&zero).scale(factored.factors()[0]);
            du.add(driven.clone() * token_factor);
            ddelta.add(driven * u * factored.token_factor_slope(&token));
        } else if factored.is_bilinear() {
            du.add(driven.or(&zero) * token_factor);
        }
        TokenGradsExpand {
            y: y.or(&zero).value(),
            u: du.or(&zero).value(),
            delta: ddelta.or(&zero).value(),
        }
    })
}

/// Shared memory of [`reduce_over_channels`], in floats.
pub(super) fn sums_len(plan: ScanPlan) -> usize {
    if plan.spec.b_constant && plan.spec.c_constant {
        1
    } else if plan.planes {
        plan.units / PLANE * CHUNK * 2 * HALF
    } else {
        CHUNK * 2 * plan.states + 2 * plan.states * plan.units
    }
}

/// Lanes of a plane that hold a sum for B; the other lanes hold one for C.
const HALF: usize = PLANE / 2;

/// Sums the gradients of B and C of the `j`-th token over the cube's channels, or over each
/// plane's.
#[cube]
pub(super) fn reduce_over_channels(
    sums: &mut Shared<[f32]>,
    adjoint: &Adjoint,
    j: usize,
    #[comptime] plan: ScanPlan,
) {
    let unit = UNIT_POS_X as usize;
    if comptime!(plan.permutes_states()) {
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
        let of_b = sum_in_order(&adjoint.b, lane);
        let of_c = sum_in_order(&adjoint.c, lane);
        let upper = lane & 4 != 0;
        let keep = select(upper, of_c, of_b);
        let send = select(upper, of_b, of_c);
        let sum = keep + plane_shuffle_xor(send, 4u32);
        sums[(unit / PLANE * CHUNK + j) * PLANE + unit % PLANE] = sum;
    } else if comptime!(plan.planes) {
        // Each round exchanges half of the values with the opposite lane and adds: after five, lane
        // i has the sum of value i over the plane.
        let mut values = Array::<f32>::new(PLANE);
        #[unroll]
        for n in 0..HALF {
            let in_bounds = comptime!(n < plan.states);
            values[n] = if comptime!(in_bounds && !plan.spec.b_constant) {
                adjoint.b[n]
            } else {
                0.0f32.runtime()
            };
            values[HALF + n] = if comptime!(in_bounds && !plan.spec.c_constant) {
                adjoint.c[n]
            } else {
                0.0f32.runtime()
            };
        }
        let lane = UNIT_POS_X % comptime!(PLANE as u32);
        #[unroll]
        for round in 0..5usize {
            let half = comptime!(HALF >> round);
            let upper = lane & comptime!(half as u32) != 0;
            #[unroll]
            for i in 0..half {
                let (low, high) = (values[i], values[i + half]);
                let keep = select(upper, high, low);
                let send = select(upper, low, high);
                values[i] = keep + plane_shuffle_xor(send, comptime!(half as u32));
            }
        }
        sums[(unit / PLANE * CHUNK + j) * PLANE + unit % PLANE] = values[0];
    } else {
        let scratch = comptime!(CHUNK * 2 * plan.states);
        #[unroll]
        for n in 0..plan.states {
            sums[scratch + n * plan.units + unit] =
                if comptime!(plan.spec.b_constant) { 0.0f32.runtime() } else { adjoint.b[n] };
            sums[scratch + (plan.states + n) * plan.units + unit] =
                if comptime!(plan.spec.c_constant) { 0.0f32.runtime() } else { adjoint.c[n] };
        }
        sync_cube();
        let mut value = unit;
        while value < comptime!(2 * plan.states) {
            let mut sum = 0.0f32;
            for i in 0..plan.units {
                sum += sums[scratch + value * plan.units + i];
            }
            sums[j * 2 * plan.states + value] = sum;
            value += plan.units;
        }
        sync_cube();
    }
}

/// The sum, over 16 lanes, of the state that [`lane_of`] assigns to this lane. Lanes hold their
/// states in [order](super::coords::order), so that the exchange of groups of four needs no
/// selection.
#[cube]
fn sum_in_order(of: &Array<f32>, lane: u32) -> f32 {
    let mut values = Array::<f32>::new(HALF);
    #[unroll]
    for i in 0..HALF {
        values[i] = of[i];
    }
    #[unroll]
    for round in 0..4usize {
        let half = comptime!(HALF >> (round + 1));
        let across = comptime!((if half >= 4 { 2 * half } else { half }) as u32);
        let upper = lane & across != 0;
        #[unroll]
        for i in 0..half {
            let (low, high) = (values[i], values[i + half]);
            values[i] = if comptime!(half >= 4) {
                low + plane_shuffle_xor(high, across)
            } else {
                let keep = select(upper, high, low);
                let send = select(upper, low, high);
                keep + plane_shuffle_xor(send, across)
            };
        }
    }
    values[0]
}

/// The lane that holds a state's sum, for B or for C.
#[cube]
fn lane_of(state: usize, of_c: bool, #[comptime] plan: ScanPlan) -> usize {
    if comptime!(plan.permutes_states()) {
        state / 4 * 8 + state % 4 + select(of_c, 4usize, 0usize)
    } else {
        state + select(of_c, HALF, 0usize)
    }
}

/// Writes the sums of a chunk of `tokens` from step `begin` on as partial gradients of B and C.
#[cube]
pub(super) fn write_bc_partials(
    sums: &Shared<[f32]>,
    part_b: &mut [f32],
    part_c: &mut [f32],
    begin: usize,
    tokens: usize,
    pos: &UnitCoords,
) {
    let plan = comptime!(pos.plan);
    let sizes = &pos.sizes;
    let per_group = sizes.d_inner as usize / sizes.groups as usize;
    let strips = (per_group + comptime!(plan.units - 1)) / plan.units;
    let strip = sizes.sweep as usize * strips + CUBE_POS_X as usize % strips;
    let mut i = UNIT_POS_X as usize;
    while i < tokens * 2 * plan.states {
        let j = i / comptime!(2 * plan.states);
        let value = i % comptime!(2 * plan.states);
        let of_c = value >= plan.states;
        let n = if of_c { value - plan.states } else { value };
        let mut sum = 0.0f32;
        if comptime!(plan.planes) {
            let lane = lane_of(n, of_c, plan);
            #[unroll]
            for plane in 0..comptime!(plan.units / PLANE) {
                sum += sums[(plane * CHUNK + j) * PLANE + lane];
            }
        } else {
            sum = sums[i];
        }
        if is_state(n, pos) {
            let state = sizes.first_state as usize + n;
            let token = (strip * sizes.batch as usize + pos.batch) * sizes.len as usize
                + token_at(begin + j, pos);
            let row = (token * sizes.groups as usize + pos.group) * sizes.d_state as usize;
            if of_c {
                if comptime!(!plan.spec.c_constant) {
                    part_c[row + state] = sum;
                }
            } else if comptime!(!plan.spec.b_constant) {
                part_b[row + state] = sum;
            }
        }
        i += plan.units;
    }
}
