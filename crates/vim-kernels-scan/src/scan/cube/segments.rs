//! Segments of a long sequence run side by side: at first only for the states at their ends, or for
//! the gradients that flow out of them, from which those at their beginnings follow.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::chunks::{before, filled, read_chunk, take_chunk, tokens_ahead};
use super::coords::{
    Rows, ScanTensors, Sizes, UnitCoords, is_state, load_tile, read_row, state_index, turn_tile,
    unit_bias, unit_coords,
};
use super::forward_step::{
    Projections, get, projections, set, sigmoid, state_terms, step_size, step_states,
    unit_state_terms,
};
use super::layout::{CHUNK, Layout, Pass, Projected, ScanPlan, Shape};
use vim_kernels_core::Traced;
use vim_kernels_core::cube::{cubes, empty};

/// Runs segments from a zero state: writes their final states to `carry`, and the product of the
/// decays over a segment to `product`, both `[segments, B, N, D]`.
#[cube(launch_unchecked)]
pub(crate) fn segment_ends<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    carry: &mut [f32],
    product: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC)] _types: [ElemType; 3],
) {
    let pos = unit_coords(sizes, plan);
    let rates = unit_state_terms(&tensors.a, &pos);
    let mut shared = projections::<FB, FB>(&tensors.b.data, &tensors.b.data, 0usize, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let mut h = filled(0.0f32, plan);
    let mut whole = filled(1.0f32, plan);
    let b = comptime!(Projected::B);
    let mut next_b = Array::<FB>::new(comptime!(plan.tile_elems_per_unit(b)));
    load_tile::<FB>(&mut next_b, &tensors.b, pos.begin, b, &pos);
    let mut ahead = tokens_ahead::<F, FB, FC>(tensors, false, &pos);
    let mut total = 0.0f32;
    let mut first = pos.begin;
    while first < pos.end {
        let after = first + plan.tile;
        sync_cube();
        turn_tile(&mut shared.b, &mut next_b, &tensors.b, after, b, &pos);
        sync_cube();
        let mut chunk = 0usize;
        while chunk < plan.tile && first + chunk < pos.end {
            let begin = first + chunk;
            let now = take_chunk::<F, FB, FC>(&mut ahead, tensors, begin, false, &pos);
            #[unroll]
            for j in 0..CHUNK {
                let in_bounds = begin + j < pos.end;
                let raw = f32::cast_from(now.delta[j]);
                let size = select(in_bounds, step_size(raw, bias, plan), 0.0f32);
                let row = (chunk + j) * plan.states;
                let u = f32::cast_from(now.u[j]);
                let before = before::<F>(&now.u, j, CHUNK, u, plan);
                forward_carry_only(&mut h, &mut whole, &rates, &shared, row, size, u, before, plan);
                total += size;
            }
            chunk += CHUNK;
        }
        first += plan.tile;
    }
    decay_over(&mut whole, &rates, total, plan);
    store_segment(carry, product, &h, &whole, &pos);
}

/// The states at the beginning of segments, from those at their ends and the products of the
/// decays, both of which `run` writes; one number where the sequence is not cut.
pub(super) fn carried_states(
    like: &CubeTensor,
    layout: Layout,
    pass: Pass,
    backwards: bool,
    run: impl FnOnce(CubeTensor, CubeTensor),
) -> CubeTensor {
    let Shape { batch, d_inner, d_state, .. } = layout.shape;
    if layout.segments() == 1 {
        return empty(like, [1], DType::F32);
    }
    let states = || empty(like, [layout.segments(), batch, d_state, d_inner], DType::F32);
    let (ends, product) = (states(), states());
    run(ends.clone(), product.clone());
    let width = batch * d_state * d_inner;
    let units = 128;
    let begins = states();
    // SAFETY: the buffers have `segments · width` elements, and units beyond `width` do nothing.
    unsafe {
        carry_over::launch_unchecked(
            &like.client,
            cubes(&like.client, width.div_ceil(units)),
            CubeDim::new_1d(units as u32),
            ends.into_buffer_arg(),
            product.into_buffer_arg(),
            begins.clone().into_buffer_arg(),
            layout.segments() as u32,
            width as u32,
            d_inner as u32,
            d_state as u32,
            pass.first_state as u32,
            pass.end_state as u32,
            backwards,
        );
    }
    begins
}

/// Turns states at the ends of segments into states at their beginnings: `begins[k] ← s`,
/// `s ← product[k]·s + ends[k]`. One unit for each of the `width` (batch, state, channel); from the
/// last segment on if `backwards`. States that are not of the pass are left: nothing wrote them.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "sizes, and which states")]
pub(crate) fn carry_over(
    ends: &[f32],
    product: &[f32],
    begins: &mut [f32],
    segments: u32,
    width: u32,
    d_inner: u32,
    d_state: u32,
    first_state: u32,
    end_state: u32,
    #[comptime] backwards: bool,
) {
    let i = ABSOLUTE_POS;
    let width = width as usize;
    let number = i as u32 / d_inner % d_state;
    if i < width && number >= first_state && number < end_state {
        let segments = segments as usize;
        let mut state = 0.0f32;
        let mut first = 0usize;
        while first < segments {
            // Loaded together, so that their latencies overlap.
            let mut end = Array::<f32>::new(SEGMENTS_AT_ONCE);
            let mut factor = Array::<f32>::new(SEGMENTS_AT_ONCE);
            #[unroll]
            for j in 0..SEGMENTS_AT_ONCE {
                // The last one begins none, and nothing was written for it.
                let index = slot_at(min(first + j, segments - 2), segments, backwards) * width + i;
                end[j] = ends[index];
                factor[j] = product[index];
            }
            #[unroll]
            for j in 0..SEGMENTS_AT_ONCE {
                if first + j < segments {
                    begins[slot_at(first + j, segments, backwards) * width + i] = state;
                    // Of a growing system the product may be infinite, and none of a state that is
                    // 0 comes out of it.
                    let kept = select(state == 0.0f32, 0.0f32, factor[j] * state);
                    state = kept + end[j];
                }
            }
            first += SEGMENTS_AT_ONCE;
        }
    }
}

/// Segments that [`carry_over`] loads at once.
const SEGMENTS_AT_ONCE: usize = 16;

#[cube]
fn slot_at(k: usize, segments: usize, #[comptime] backwards: bool) -> usize {
    if comptime!(backwards) { segments - 1 - k } else { k }
}

/// Runs segments backwards from a zero gradient: writes the gradient that flows out of their
/// first token to `carry`, and the product of the decays to `product`, both `[segments, B, N, D]`.
/// Where the method reads the token before, two gradients flow out of it, both of which follow from
/// that of its state: this one is written, and a token decays what comes from the next one by that
/// one's step.
#[cube(launch_unchecked)]
pub(crate) fn segment_outflows<F: Float, FB: Float, FC: Float>(
    tensors: &ScanTensors<F, FB, FC>,
    grad_y: &Rows<F>,
    carry: &mut [f32],
    product: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: ScanPlan,
    #[define(F, FB, FC)] _types: [ElemType; 3],
) {
    let pos = unit_coords(sizes, plan);
    let rates = unit_state_terms(&tensors.a, &pos);
    let mut shared = projections::<FC, FC>(&tensors.c.data, &tensors.c.data, 0usize, &pos);
    let bias = unit_bias(&tensors.delta_bias, &pos);
    let mut flow = filled(0.0f32, plan);
    let mut whole = filled(1.0f32, plan);
    let chunks = (pos.end - pos.begin + comptime!(CHUNK - 1)) / CHUNK;
    let last = pos.begin + (chunks - 1) * CHUNK;
    let c = comptime!(Projected::C);
    let mut next_c = Array::<FC>::new(comptime!(plan.tile_elems_per_unit(c)));
    load_tile::<FC>(&mut next_c, &tensors.c, last, c, &pos);
    let mut next_delta = Array::<F>::new(CHUNK);
    let mut next_dy = Array::<F>::new(CHUNK);
    let mut next_z = Array::<F>::new(CHUNK);
    read_flow_deltas::<F>(&mut next_delta, &tensors.delta, last, &pos);
    read_gradients::<F>(&mut next_dy, &mut next_z, grad_y, &tensors.z, last, CHUNK, &pos);
    let mut total = 0.0f32;
    for from_end in 0..chunks {
        let begin = pos.begin + (chunks - 1 - from_end) * CHUNK;
        let begin_before = max(begin, pos.begin + CHUNK) - CHUNK;
        sync_cube();
        turn_tile(&mut shared.c, &mut next_c, &tensors.c, begin_before, c, &pos);
        sync_cube();
        let mut now_delta = Array::<F>::new(CHUNK);
        let mut now_dy = Array::<F>::new(CHUNK);
        let mut now_z = Array::<F>::new(CHUNK);
        #[unroll]
        for j in 0..CHUNK {
            now_delta[j] = next_delta[j];
            now_dy[j] = next_dy[j];
            if comptime!(plan.spec.has_z) {
                now_z[j] = next_z[j];
            }
        }
        let (from, z) = (&tensors.delta, &tensors.z);
        read_flow_deltas::<F>(&mut next_delta, from, begin_before, &pos);
        read_gradients::<F>(&mut next_dy, &mut next_z, grad_y, z, begin_before, CHUNK, &pos);
        #[unroll]
        for past in 0..CHUNK {
            let j = comptime!(CHUNK - 1 - past);
            let in_bounds = begin + j < pos.end;
            let raw = f32::cast_from(now_delta[j]);
            let steps = if comptime!(plan.two_taps()) {
                in_bounds && begin + j + 1 < sizes.len as usize
            } else {
                in_bounds
            };
            let size = select(steps, step_size(raw, bias, plan), 0.0f32);
            let into = into_states::<F>(now_dy[j], now_z[j], in_bounds, plan);
            total += size;
            let row = j * plan.states;
            backward_carry_only(&mut flow, &mut whole, &rates, &shared, row, size, into, plan);
        }
    }
    decay_over(&mut whole, &rates, total, plan);
    store_segment(carry, product, &flow, &whole, &pos);
}

/// Loads delta of a chunk of [`segment_outflows`]: of each token, or of the one after it.
#[cube]
fn read_flow_deltas<F: Float>(to: &mut Array<F>, delta: &Rows<F>, first: usize, pos: &UnitCoords) {
    if comptime!(pos.plan.two_taps()) {
        #[unroll]
        for j in 0..CHUNK {
            let step = min(first + j + 1, pos.sizes.len as usize - 1);
            to[j] = read_row::<F>(delta, step, pos.batch, pos);
        }
    } else {
        read_chunk::<F>(to, delta, pos.batch, first, CHUNK, pos);
    }
}

/// The step of the token behind the segment, in the unit's channel; 0 behind the last.
#[cube]
pub(super) fn size_behind<F: Float>(delta: &Rows<F>, bias: f32, pos: &UnitCoords) -> f32 {
    let len = pos.sizes.len as usize;
    let raw = f32::cast_from(read_row::<F>(delta, min(pos.end, len - 1), pos.batch, pos));
    select(pos.end < len, step_size(raw, bias, comptime!(pos.plan)), 0.0f32)
}

/// Loads `count` tokens of the gradient of y and, if there is a gate, of z.
#[cube]
pub(super) fn read_gradients<F: Float>(
    dy: &mut Array<F>,
    z: &mut Array<F>,
    grad_y: &Rows<F>,
    gate: &Rows<F>,
    first: usize,
    #[comptime] count: usize,
    pos: &UnitCoords,
) {
    read_chunk::<F>(dy, grad_y, pos.element, first, count, pos);
    if comptime!(pos.plan.spec.has_z) {
        read_chunk::<F>(z, gate, pos.element, first, count, pos);
    }
}

/// The gradient of a way's `Σ c·h`, from that of y.
#[cube]
pub(super) fn into_states<F: Float>(
    dy: F,
    z: F,
    in_bounds: bool,
    #[comptime] plan: ScanPlan,
) -> f32 {
    let mut into = select(in_bounds, f32::cast_from(dy), 0.0f32);
    if comptime!(plan.spec.has_z) {
        let z = f32::cast_from(z);
        into *= z * sigmoid(z, plan.ptx);
    }
    if comptime!(plan.two_way()) {
        into *= 0.5f32;
    }
    into
}

/// [`forward_step`] without the output; multiplies every state's `a_bar` into `product`, unless
/// [`decay_over`] does.
#[cube]
pub(crate) fn forward_carry_only(
    h: &mut Array<f32>,
    product: &mut Array<f32>,
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
        step_states(
            scope,
            h,
            rates,
            projections,
            &at,
            token,
            false,
            plan,
            |[_, _, n], _, a_bar| {
                multiply_into(scope, product, n, a_bar, plan);
            },
        );
    })
}

/// Multiplies a state's `a_bar` into `product`, unless [`decay_over`] does.
fn multiply_into<'a>(
    scope: &'a Scope,
    product: &mut <Array<f32> as CubeType>::ExpandType,
    n: usize,
    a_bar: Traced<'a>,
    plan: ScanPlan,
) {
    if !plan.factored().decays_by_sum() {
        let whole = Traced::new(scope, plan.ptx, get::expand(scope, product, n)) * a_bar;
        set::expand(scope, product, n, whole.value());
    }
}

/// Sets `product` to the decay over tokens whose deltas sum to `total`, where it is not multiplied
/// token by token.
#[cube]
pub(crate) fn decay_over(
    product: &mut Array<f32>,
    rates: &Array<f32>,
    total: f32,
    #[comptime] plan: ScanPlan,
) {
    intrinsic!(|scope| {
        let factored = plan.factored();
        if factored.decays_by_sum() {
            let total = Traced::new(scope, plan.ptx, total);
            for n in 0..plan.states {
                let state = state_terms(scope, rates, n, factored.state_len(), plan);
                let whole = factored.decay_over(total.clone(), &state);
                set::expand(scope, product, n, whole.value());
            }
        }
    })
}

/// The part of [`backward_step`] that the carry needs, or of a method that reads the token before
/// the gradient of the state, with the step of the token after; multiplies every state's `a_bar`
/// into `product`, unless [`decay_over`] does.
#[cube]
pub(crate) fn backward_carry_only(
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
        let factored = plan.factored();
        let token = factored.token(number(delta));
        let dy = number(dy);
        for n in 0..plan.states {
            let state = state_terms(scope, rates, n, factored.state_len(), plan);
            let a_bar = factored.forward(&token, &state).a_bar;
            let into = projections.c(scope, &at, n, plan) * dy.clone();
            let from_behind = number(get::expand(scope, carry, n));
            let next = if factored.two_taps() {
                into + a_bar.clone() * from_behind
            } else {
                a_bar.clone() * (into + from_behind)
            };
            set::expand(scope, carry, n, next.value());
            multiply_into(scope, product, n, a_bar, plan);
        }
    })
}

/// Writes the states that a segment leaves, and the product of its decays.
#[cube]
pub(crate) fn store_segment(
    carry: &mut [f32],
    product: &mut [f32],
    states: &Array<f32>,
    whole: &Array<f32>,
    pos: &UnitCoords,
) {
    if pos.active {
        #[unroll]
        for n in 0..comptime!(pos.plan.states) {
            if is_state(n, pos) {
                let index = state_index(pos.segment, n, pos);
                carry[index] = states[n];
                product[index] = whole[n];
            }
        }
    }
}
