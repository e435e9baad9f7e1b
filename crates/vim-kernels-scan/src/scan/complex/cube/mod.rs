//! The scan with complex A, B and C for GPUs: see [`crate::selective_scan()`].
//!
//! A unit has a channel and walks a chunk of tokens for one state after the other, so that N is no
//! compile-time constant and any N works. Between chunks a state is stored in the array of chunk
//! states, which the backward pass reads again: `⌈L/16⌉ − 1` states per channel and sweep.

#![expect(
    unsafe_code,
    reason = "launches without bounds checks, which would cost more than the inner loop does"
)]

mod backward;
mod forward;
mod numbers;
mod plan;

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::ComplexScanArguments;
use crate::scan::ScanSpec;
use vim_kernels_core::cube::sum::sum_parts;
use vim_kernels_core::cube::{cubes, dense, elem, empty};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

use backward::{GradTensorsLaunch, complex_backward};
use forward::complex_forward;
use plan::{CHUNK, ComplexPlan, ComplexTensorsLaunch, SizesLaunch, UNITS};

/// The arguments on the CubeCL backend.
type Arguments = ComplexScanArguments<CubeBackend>;

impl FusedOp<CubeBackend, 11, 2> for ScanSpec {
    type Inputs = Arguments;
    type Saved = (Arguments, CubeTensor);

    fn forward(self, arguments: Arguments, save: bool) -> Forward<CubeBackend, Self::Saved, 2> {
        let saved = save.then(|| arguments.clone());
        let spec = self;
        let call = Call::new(arguments, spec);
        let arguments = &call.arguments;
        let Call { batch, len, d_inner, d_state, .. } = call;
        let like = &arguments.u;
        let y = empty(like, [batch, len, d_inner], like.dtype);
        let last_re = empty(like, [batch, d_inner, d_state], DType::F32);
        let last_im = empty(like, [batch, d_inner, d_state], DType::F32);
        let slots = if save { spec.sweeps() * call.slots() } else { call.slots().min(1) };
        let chunk_states = call.floats(slots * 2 * batch * d_state * d_inner);
        let partial = call.floats(if spec.sweeps() == 2 { batch * len * d_inner } else { 1 });
        for sweep in 0..spec.sweeps() {
            let plan = ComplexPlan::new(spec, sweep, save);
            // SAFETY: units without a channel do nothing, and every index is a product of the
            // checked shapes that the buffers were allocated for.
            unsafe {
                complex_forward::launch_unchecked(
                    &like.client,
                    call.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    call.tensors(),
                    y.clone().into_buffer_arg(),
                    partial.clone().into_buffer_arg(),
                    last_re.clone().into_buffer_arg(),
                    last_im.clone().into_buffer_arg(),
                    chunk_states.clone().into_buffer_arg(),
                    call.sizes(sweep),
                    plan,
                    [like, &arguments.b_re, &arguments.c_re].map(elem),
                );
            }
        }
        (y, [last_re, last_im], saved.map(|arguments| (arguments, chunk_states)))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        (arguments, saved): Self::Saved,
        wanted: [bool; 11],
    ) -> [Option<CubeTensor>; 11] {
        let spec = self;
        let call = Call::new(arguments, spec);
        let grad_y = dense(grad_y);
        let arguments = &call.arguments;
        let Call { batch, len, d_inner, d_state, .. } = call;
        let like = &arguments.u;
        let shaped = |of: &CubeTensor| empty(of, of.shape(), of.dtype);
        let (grad_u, grad_delta) = (shaped(&arguments.u), shaped(&arguments.delta));
        let grad_z = shaped(&arguments.z);
        let (tokens, states) = (batch * len * d_inner, batch * d_state * d_inner);
        let rows = batch * len * call.groups * d_state;
        let partial = call.floats(if spec.sweeps() == 2 { 3 * tokens } else { 1 });
        let carry = call.floats(2 * states);
        let constants = usize::from(spec.b_constant) + usize::from(spec.c_constant);
        let state_sums = call.floats((2 + 2 * constants) * states);
        let strip_sums = call.floats(if constants == 2 { 1 } else { 4 * call.strips() * rows });
        let channel_sums = call.floats(2 * batch * d_inner);
        for sweep in 0..spec.sweeps() {
            let plan = ComplexPlan::new(spec, sweep, true);
            // SAFETY: units without a channel read that of another and write nothing, and every
            // index is a product of the checked shapes that the buffers were allocated for.
            unsafe {
                complex_backward::launch_unchecked(
                    &like.client,
                    call.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    grad_y.clone().into_buffer_arg(),
                    call.tensors(),
                    saved.clone().into_buffer_arg(),
                    GradTensorsLaunch::new(
                        grad_u.clone().into_buffer_arg(),
                        grad_delta.clone().into_buffer_arg(),
                        grad_z.clone().into_buffer_arg(),
                        partial.clone().into_buffer_arg(),
                        carry.clone().into_buffer_arg(),
                        state_sums.clone().into_buffer_arg(),
                        strip_sums.clone().into_buffer_arg(),
                        channel_sums.clone().into_buffer_arg(),
                    ),
                    call.sizes(sweep),
                    plan,
                    [like, &arguments.b_re, &arguments.c_re].map(elem),
                );
            }
        }
        // Of what is not wanted no sums are added.
        let by_state = |input: usize, part: usize, of: &CubeTensor| {
            wanted[input].then(|| {
                let out = shaped(of);
                call.sum_states(&state_sums, part * states, &out);
                out
            })
        };
        let by_strip = |input: usize, part: usize, of: &CubeTensor| {
            wanted[input].then(|| {
                let (out, strips) = (shaped(of), call.strips());
                sum_parts(&strip_sums, part * strips * rows, strips, rows, &out);
                out
            })
        };
        let by_channel = |input: usize, part: usize, of: &CubeTensor, present: bool| {
            // The zero that stands for an absent input has a gradient that nobody reads.
            wanted[input].then(|| {
                let out = shaped(of);
                if present {
                    sum_parts(&channel_sums, part * batch * d_inner, batch, d_inner, &out);
                }
                out
            })
        };
        let c_part = if spec.b_constant { 4 } else { 2 };
        let (b_re, b_im) = if spec.b_constant {
            (by_state(4, 2, &arguments.b_re), by_state(5, 3, &arguments.b_im))
        } else {
            (by_strip(4, 0, &arguments.b_re), by_strip(5, 1, &arguments.b_im))
        };
        let (c_re, c_im) = if spec.c_constant {
            (by_state(6, c_part, &arguments.c_re), by_state(7, c_part + 1, &arguments.c_im))
        } else {
            (by_strip(6, 2, &arguments.c_re), by_strip(7, 3, &arguments.c_im))
        };
        [
            Some(grad_u),
            Some(grad_delta),
            by_state(2, 0, &arguments.a_re),
            by_state(3, 1, &arguments.a_im),
            b_re,
            b_im,
            c_re,
            c_im,
            by_channel(8, 0, &arguments.d, spec.has_d),
            Some(grad_z),
            by_channel(10, 1, &arguments.delta_bias, spec.has_delta_bias),
        ]
    }
}

/// A call with contiguous arguments.
struct Call {
    arguments: Arguments,
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    groups: usize,
}

impl Call {
    fn new(arguments: Arguments, spec: ScanSpec) -> Self {
        let [batch, len, d_inner] = arguments.u.shape().dims();
        let [_, d_state] = arguments.a_re.shape().dims();
        let groups = |t: &CubeTensor, constant: bool| if constant { 1 } else { t.shape()[2] };
        let groups =
            groups(&arguments.b_re, spec.b_constant).max(groups(&arguments.c_re, spec.c_constant));
        Self { arguments: arguments.map(dense), batch, len, d_inner, d_state, groups }
    }

    fn tensors<F: Float, FB: Float, FC: Float>(&self) -> ComplexTensorsLaunch<F, FB, FC> {
        let [u, delta, a_re, a_im, b_re, b_im, c_re, c_im, d, z, bias] =
            self.arguments.clone().into_array().map(CubeTensor::into_buffer_arg);
        ComplexTensorsLaunch::new(u, delta, a_re, a_im, b_re, b_im, c_re, c_im, d, z, bias)
    }

    fn sizes(&self, sweep: usize) -> SizesLaunch {
        let Self { batch, len, d_inner, d_state, groups, .. } = *self;
        let [batch, len, d_inner, d_state, groups, slots_before] =
            [batch, len, d_inner, d_state, groups, sweep * self.slots()].map(|size| size as u32);
        SizesLaunch::new(batch, len, d_inner, d_state, groups, slots_before)
    }

    /// Chunk states that a sweep saves.
    fn slots(&self) -> usize {
        self.len.div_ceil(CHUNK) - 1
    }

    /// Strips of channels in a group.
    fn strips(&self) -> usize {
        (self.d_inner / self.groups).div_ceil(UNITS)
    }

    fn cubes(&self) -> CubeCount {
        CubeCount::Static((self.groups * self.strips()) as u32, self.batch as u32, 1)
    }

    /// A buffer of `len` numbers, at least one: a kernel takes no empty buffer.
    fn floats(&self, len: usize) -> CubeTensor {
        empty(&self.arguments.u, [len.max(1)], DType::F32)
    }

    fn sum_states(&self, from: &CubeTensor, offset: usize, out: &CubeTensor) {
        let units = (self.d_inner * self.d_state).div_ceil(256);
        // SAFETY: units past `[D, N]` do nothing, and the caller's `from` holds what it names.
        unsafe {
            sum_states::launch_unchecked(
                &out.client,
                cubes(&out.client, units),
                CubeDim::new_1d(256),
                from.clone().into_buffer_arg(),
                out.clone().into_buffer_arg(),
                offset as u32,
                self.batch as u32,
                self.d_state as u32,
                self.d_inner as u32,
            );
        }
    }
}

/// `out[d, n] = Σ_b from[offset + (b, n, d)]`: `[B, N, D]` to `[D, N]`.
#[cube(launch_unchecked)]
fn sum_states(from: &[f32], out: &mut [f32], offset: u32, batch: u32, d_state: u32, d_inner: u32) {
    let i = ABSOLUTE_POS;
    let d_state = d_state as usize;
    let d_inner = d_inner as usize;
    if i < d_state * d_inner {
        let channel = i / d_state;
        let n = i % d_state;
        let mut sum = 0.0f32;
        for b in 0..batch as usize {
            sum += from[offset as usize + (b * d_state + n) * d_inner + channel];
        }
        out[i] = sum;
    }
}
