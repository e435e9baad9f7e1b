//! Launches of the scan on a GPU: which passes run, with which sizes and buffers.

#![expect(unsafe_code, reason = "launches without bounds checks")]

mod backward;
mod backward_chunk;
mod backward_step;
mod chunks;
mod coords;
mod forward_step;
mod layout;
mod reading;
mod segments;
mod sums;
mod turned;
mod two_way;

use burn::backend::ops::FloatTensorOps;
use burn::backend::{DispatchDevice, TensorMetadata};
use burn::tensor::{DType, Device};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::watch::with_largest;
use super::{ScanArguments, ScanOptions, ScanSpec};
use backward::scan_backward;
use coords::{TokenGradTensorsLaunch, rows_launch};
use forward_step::scan_forward;
pub use layout::Wanted;
pub(crate) use layout::chunk as tokens_between_states;
use layout::{CHUNK, Layout, MAX_STATE_VECTOR, Pass, ScanPlan, Shape};
use segments::{carried_states, segment_ends, segment_outflows};
use sums::{PartialSumsLaunch, add_partial_sums};
pub use turned::{MOST_TURNED, channels_last};
use two_way::save_flows;
use vim_kernels_core::cube::halves::add_halves;
use vim_kernels_core::cube::strides::in_rows;
use vim_kernels_core::cube::tables::TableSizes;
use vim_kernels_core::cube::{elem, empty, primitive};
use vim_kernels_core::op::{Forward, FusedOp};

impl FusedOp<CubeBackend, 8, 1> for ScanSpec {
    type Inputs = ScanArguments<CubeBackend>;
    type Saved = (ScanArguments<CubeBackend>, CubeTensor);

    fn forward(
        self,
        inputs: ScanArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 1> {
        let saved = save.then(|| inputs.clone());
        let wanted = Wanted { last_state: true, chunk_states: save };
        let (y, last_state, chunk_states) = scan_results(inputs, self, wanted);
        let y = if self.bidirectional { add_halves(&y) } else { y };
        (y, [last_state], saved.zip(chunk_states))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        (arguments, saved): Self::Saved,
        wanted: [bool; 8],
    ) -> [Option<CubeTensor>; 8] {
        let mut grads = scan_gradients(grad_y, arguments, saved, self, wanted);
        if self.bidirectional && self.has_z && wanted[6] {
            grads[6] = add_halves(&grads[6]);
        }
        let mut wanted = wanted.into_iter();
        grads.map(|grad| wanted.next().unwrap_or_default().then_some(grad))
    }
}

/// `y` of a scan, separate for each direction where two run at once, its last state, which has one
/// element unless `wanted`, and its chunk states.
pub fn scan_results(
    arguments: ScanArguments<CubeBackend>,
    spec: ScanSpec,
    wanted: Wanted,
) -> (CubeTensor, CubeTensor, Option<CubeTensor>) {
    let arguments = arguments.dense();
    let layout = Layout::new(&arguments, spec, false);
    let Shape { batch, len, d_inner, .. } = layout.shape;
    let y = empty(&arguments.u, [batch, len, d_inner], arguments.u.dtype);
    let (last_state, chunk_states) = forward_passes(arguments, layout, wanted, &y);
    (y, last_state, chunk_states)
}

/// The sum of both directions' scans behind the gate, `y [B, L, D] = (y₀ + y₁)·silu(z)`, where each
/// direction fills the device twice by itself: the second adds the first's output to its own.
/// `None` where they had better run at once. On CUDA bits are those of both at once and the gate
/// behind them.
///
/// `arguments` are of both directions, B and C of each token, and z `[B, L, D]`.
pub fn gated_sum(arguments: &ScanArguments<CubeBackend>, spec: ScanSpec) -> Option<CubeTensor> {
    let of_direction = |which: usize| {
        let ScanArguments { u, delta, a, b, c, d, z, delta_bias } = arguments.clone();
        let [u, delta, a, b, c, d, delta_bias] =
            [u, delta, a, b, c, d, delta_bias].map(|both| half(both, which));
        ScanArguments { u, delta, a, b, c, d, z, delta_bias }.dense()
    };
    let spec = ScanSpec { bidirectional: false, has_z: false, ..spec };
    let first = of_direction(0);
    let layout = Layout::new(&first, spec, false);
    if !layout.fills() || layout.passes().len() > 1 {
        return None;
    }
    let Shape { batch, len, d_inner, .. } = layout.shape;
    let y = empty(&first.u, [batch, len, d_inner], first.u.dtype);
    forward_passes(first, layout, Wanted::default(), &y);
    let options = ScanOptions { reverse: !spec.options.reverse, ..spec.options };
    let second = of_direction(1);
    let mut layout = Layout::new(&second, ScanSpec { options, has_z: true, ..spec }, false);
    layout.plan.joins = true;
    forward_passes(second, layout, Wanted::default(), &y);
    Some(y)
}

/// Half `which` of a tensor's outermost axis.
fn half(mut both: CubeTensor, which: usize) -> CubeTensor {
    let (mut shape, strides) = (both.meta.shape().clone(), both.meta.strides().to_vec());
    shape[0] /= 2;
    let first = which * shape[0] * strides[0];
    both.handle = both.handle.offset_start((first * both.dtype.size()) as u64);
    both.meta = Box::new(Metadata::new(shape, strides));
    both
}

/// Runs all passes of a forward scan of dense arguments, which writes y; the last state and the
/// chunk states.
fn forward_passes(
    arguments: ScanArguments<CubeBackend>,
    layout: Layout,
    wanted: Wanted,
    y: &CubeTensor,
) -> (CubeTensor, Option<CubeTensor>) {
    let Shape { batch, d_inner, d_state, .. } = layout.shape;
    let like = &arguments.u;
    let client = &like.client;
    let state = if wanted.last_state { [batch, d_inner, d_state] } else { [1; 3] };
    let last_state = empty(like, state, DType::F32);
    let save = wanted.chunk_states;
    let saved = [layout.chunks() * batch * d_state * d_inner];
    let saved_type = if layout.plan.spec.compact_states { like.dtype } else { DType::F32 };
    let chunk_states = empty(like, if save { saved } else { [MAX_STATE_VECTOR] }, saved_type);
    let [f, fb, fc] = [like, &arguments.b, &arguments.c].map(elem);
    let passes = layout.passes();
    let rest = rest_of(&arguments.u, passes.len());
    let largest = largest_argument(like, layout.plan.watches);
    for pass in passes {
        let plan = layout.plan(pass, wanted);
        let carry = carried_states(like, layout, pass, false, |carry, product| {
            // SAFETY: every index is below the sizes that the buffers were allocated with, which
            // `selective_scan` checked against the arguments' shapes.
            unsafe {
                segment_ends::launch_unchecked(
                    client,
                    layout.cubes_of_ends(),
                    layout.units(),
                    arguments.launch(),
                    carry.into_buffer_arg(),
                    product.into_buffer_arg(),
                    layout.sizes(pass),
                    plan.of_ends(plan.tile, false, false),
                    [f, fb, fc],
                );
            }
        });
        // SAFETY: as above.
        unsafe {
            scan_forward::launch_unchecked(
                client,
                layout.cubes(),
                layout.units(),
                plan.state_vector_width(),
                arguments.launch(),
                carry.into_buffer_arg(),
                y.clone().into_buffer_arg(),
                rest.clone().into_buffer_arg(),
                last_state.clone().into_buffer_arg(),
                chunk_states.clone().into_buffer_arg(),
                largest.clone().into_buffer_arg(),
                layout.sizes(pass),
                plan,
                [f, fb, fc, elem(&chunk_states)],
            );
        }
    }
    (last_state, save.then_some(chunk_states))
}

/// The number where a scan on the device of `like` notes its arguments, `[1]`.
fn largest_argument(like: &CubeTensor, watches: bool) -> CubeTensor {
    if !watches {
        return empty(like, [1], DType::F32);
    }
    let device = Device::new(DispatchDevice::Cube(like.device.clone()));
    with_largest(&device, |largest| primitive(largest.clone()))
}

/// A table of partial sums, `[rows, width]`, and how its sums are stored.
pub type Partial = (CubeTensor, TableSizes);

/// What the passes of a backward scan leave behind.
pub struct ScanPasses {
    pub grad_u: CubeTensor,
    pub grad_delta: CubeTensor,
    /// Where two directions run at once, separate for each.
    pub grad_z: CubeTensor,
    /// Of B, C, A, D and the delta bias.
    pub partial: [Partial; 5],
}

/// The `wanted` gradients of a scan; one that is not wanted has a few elements that say nothing.
/// Where two directions run at once, the gradient of z is separate for each direction.
fn scan_gradients(
    grad_y: CubeTensor,
    arguments: ScanArguments<CubeBackend>,
    saved: CubeTensor,
    spec: ScanSpec,
    wanted: [bool; 8],
) -> [CubeTensor; 8] {
    let out = |of: &CubeTensor, wanted: bool| {
        let shape = if wanted { of.meta.shape().clone() } else { [1; 4].into() };
        empty(of, shape, of.dtype)
    };
    let [grad_b, grad_c] = [out(&arguments.b, wanted[3]), out(&arguments.c, wanted[4])];
    let directions = if spec.bidirectional { 2 } else { 1 };
    let ([_, _, d_inner], [_, d_state]) = (arguments.u.shape().dims(), arguments.a.shape().dims());
    let into = [&grad_b, &grad_c];
    let ScanPasses { grad_u, grad_delta, grad_z, partial } =
        scan_passes(grad_y, arguments.clone(), saved, spec, into, wanted);
    let like = &arguments.u;
    let a = &arguments.a;
    let grad_a =
        empty(like, if wanted[2] { a.meta.shape().clone() } else { [1; 2].into() }, a.dtype);
    let channel =
        |there: bool| empty(like, [if there { directions * d_inner } else { 1 }], DType::F32);
    let grad_d = channel(spec.has_d && wanted[5]);
    let grad_bias = channel(spec.has_delta_bias && wanted[7]);
    let sums = [&grad_b, &grad_c, &grad_a, &grad_d, &grad_bias];
    let tables = partial.each_ref().map(|(_, sizes)| *sizes);
    add_partial_sums(partial.map(|(parts, _)| parts), sums, tables, [d_inner, d_state]);
    let or_zero = |grad, of: &CubeTensor, there: bool| if there { grad } else { zeros_like(of) };
    let grad_d = or_zero(grad_d, &arguments.d, spec.has_d || !wanted[5]);
    let grad_bias = or_zero(grad_bias, &arguments.delta_bias, spec.has_delta_bias || !wanted[7]);
    let grad_z = or_zero(grad_z, &arguments.z, spec.has_z || !wanted[6]);
    [grad_u, grad_delta, grad_a, grad_b, grad_c, grad_d, grad_z, grad_bias]
}

/// The passes of a backward scan for the `wanted` gradients, whose partial sums are to be added:
/// those of B and C for `into`, `[B, L, G, N]` with any row stride.
pub fn scan_passes(
    grad_y: CubeTensor,
    arguments: ScanArguments<CubeBackend>,
    saved: CubeTensor,
    spec: ScanSpec,
    [grad_b, grad_c]: [&CubeTensor; 2],
    wanted: [bool; 8],
) -> ScanPasses {
    let (arguments, grad_y) = (arguments.dense(), in_rows(grad_y));
    let mut layout = Layout::new(&arguments, spec, true);
    layout.plan.wanted = wanted;
    let like = &arguments.u;
    let client = &like.client;
    // Each direction has its own gradient of z, with the shape of u.
    let per_token = |wanted: bool| {
        let shape = if wanted { arguments.u.meta.shape().clone() } else { [1; 3].into() };
        empty(like, shape, like.dtype)
    };
    let [grad_u, grad_z] = [per_token(wanted[0]), per_token(spec.has_z && wanted[6])];
    let grad_delta = per_token(layout.plan.wants_delta());
    let passes = layout.passes();
    let rests = [(); 3].map(|()| rest_of(&arguments.u, passes.len()));
    let partial = partial_sums(like, layout, [grad_b, grad_c]);
    let [f, fb, fc] = [like, &arguments.b, &arguments.c].map(elem);
    for pass in passes {
        let plan = layout.plan(pass, Wanted::default());
        let carry = carried_states(like, layout, pass, true, |carry, product| {
            // SAFETY: every index is below the sizes that the buffers were allocated with, which
            // `selective_scan` checked against the arguments' shapes.
            unsafe {
                segment_outflows::launch_unchecked(
                    client,
                    layout.cubes_of_ends(),
                    layout.units(),
                    arguments.launch(),
                    rows_launch(&grad_y),
                    carry.into_buffer_arg(),
                    product.into_buffer_arg(),
                    layout.sizes(pass),
                    plan.of_ends(CHUNK, false, true),
                    [f, fb, fc],
                );
            }
        });
        let (flows, returning) = if plan.two_way() {
            reverse_way(&arguments, &grad_y, &saved, layout, pass)
        } else {
            (empty(like, [MAX_STATE_VECTOR], saved.dtype), empty(like, [1], DType::F32))
        };
        let [rest_u, rest_delta, rest_z] = rests.clone().map(CubeTensor::into_buffer_arg);
        let [b, c, a, d, bias] =
            partial.each_ref().map(|(parts, _)| parts.clone().into_buffer_arg());
        // SAFETY: as above.
        unsafe {
            scan_backward::launch_unchecked(
                client,
                layout.cubes(),
                layout.units(),
                plan.state_vector_width(),
                arguments.launch(),
                rows_launch(&grad_y),
                saved.clone().into_buffer_arg(),
                carry.into_buffer_arg(),
                flows.into_buffer_arg(),
                returning.into_buffer_arg(),
                TokenGradTensorsLaunch::new(
                    grad_u.clone().into_buffer_arg(),
                    grad_delta.clone().into_buffer_arg(),
                    grad_z.clone().into_buffer_arg(),
                    rest_u,
                    rest_delta,
                    rest_z,
                ),
                PartialSumsLaunch::new(b, c, a, d, bias),
                layout.sizes(pass),
                plan,
                [f, fb, fc, elem(&saved)],
            );
        }
    }
    ScanPasses { grad_u, grad_delta, grad_z, partial }
}

/// Tables for the partial sums of B, C, A, D and the delta bias: of one that is absent, or whose
/// gradient is not wanted, a table of no columns, in which no cube adds.
fn partial_sums(
    like: &CubeTensor,
    layout: Layout,
    [grad_b, grad_c]: [&CubeTensor; 2],
) -> [Partial; 5] {
    let Shape { batch, directions, len, d_inner, d_state, groups } = layout.shape;
    let ScanPlan { spec, wanted, .. } = layout.plan;
    let f32s = |count: usize| empty(like, [count], DType::F32);
    let rows = layout.segments() * batch / directions;
    let per_state = directions * d_state * d_inner;
    let weights = |is_wanted: bool, is_there: bool, width: usize, transposed: bool| {
        let parts = f32s(if is_wanted { rows * width } else { 1 });
        let width = if is_wanted && is_there { width } else { 0 };
        (parts, (rows, width, transposed, [width.max(1); 2]))
    };
    let sums = layout.plan.sums_channels();
    let varying = if sums { layout.strips * batch * len * groups * d_state } else { 1 };
    let projection = |of: &CubeTensor, is_constant: bool, is_wanted: bool| {
        let width = if is_wanted { of.meta.shape().num_elements() } else { 0 };
        if is_constant {
            let (parts, _) = weights(is_wanted, true, per_state, true);
            return (parts, (rows, width, true, [width.max(1); 2]));
        }
        let row = [groups * d_state, of.meta.strides()[1]];
        (f32s(varying), (layout.strips, width, false, row))
    };
    [
        projection(grad_b, spec.b_constant, wanted[3]),
        projection(grad_c, spec.c_constant, wanted[4]),
        weights(wanted[2], true, per_state, true),
        weights(wanted[5], spec.has_d, directions * d_inner, false),
        weights(wanted[7], spec.has_delta_bias, directions * d_inner, false),
    ]
}

/// Of the reverse way of a two-way method: the gradients that flow into the chunks, shaped as
/// `saved`, and the states that come into the segments.
fn reverse_way(
    arguments: &ScanArguments<CubeBackend>,
    grad_y: &CubeTensor,
    saved: &CubeTensor,
    layout: Layout,
    pass: Pass,
) -> (CubeTensor, CubeTensor) {
    let like = &arguments.u;
    let client = &like.client;
    let [f, fb, fc] = [like, &arguments.b, &arguments.c].map(elem);
    let plan = layout.plan(pass, Wanted::default());
    let returning = carried_states(like, layout, pass, true, |carry, product| {
        // SAFETY: every index is below the sizes that the buffers were allocated with, which
        // `selective_scan` checked against the arguments' shapes.
        unsafe {
            segment_ends::launch_unchecked(
                client,
                layout.cubes_of_ends(),
                layout.units(),
                arguments.launch(),
                carry.into_buffer_arg(),
                product.into_buffer_arg(),
                layout.sizes(pass),
                plan.of_ends(4 * CHUNK, true, true),
                [f, fb, fc],
            );
        }
    });
    let carry = carried_states(like, layout, pass, false, |carry, product| {
        // SAFETY: as above.
        unsafe {
            segment_outflows::launch_unchecked(
                client,
                layout.cubes_of_ends(),
                layout.units(),
                arguments.launch(),
                rows_launch(grad_y),
                carry.into_buffer_arg(),
                product.into_buffer_arg(),
                layout.sizes(pass),
                plan.of_ends(CHUNK, true, false),
                [f, fb, fc],
            );
        }
    });
    let flows = empty(like, saved.meta.shape().clone(), saved.dtype);
    // SAFETY: as above.
    unsafe {
        save_flows::launch_unchecked(
            client,
            layout.cubes(),
            layout.units(),
            plan.state_vector_width(),
            arguments.launch(),
            rows_launch(grad_y),
            carry.into_buffer_arg(),
            flows.clone().into_buffer_arg(),
            layout.sizes(pass),
            ScanPlan { tile: 4 * CHUNK, ..plan },
            [f, fb, fc, elem(saved)],
        );
    }
    (flows, returning)
}

/// The zero that stands for an absent input has a gradient of zero.
fn zeros_like(of: &CubeTensor) -> CubeTensor {
    let dtype = of.dtype.into();
    CubeBackend::float_zeros(of.meta.shape().clone(), &of.device, dtype)
}

/// A buffer for the low bits of sums that one pass leaves for the next, shaped like `of`.
fn rest_of(of: &CubeTensor, passes: usize) -> CubeTensor {
    let split = passes > 1 && of.dtype != DType::F32;
    let count = if split { of.meta.shape().num_elements() } else { 1 };
    empty(of, [count], of.dtype)
}
