//! The scan with complex A, B and C for GPUs: see [`crate::selective_scan()`].
//!
//! A unit has a channel and walks a chunk of tokens for one state after the other, so that N is no
//! compile-time constant and any N works. Between chunks a state is stored in the array of chunk
//! states, which the backward pass reads again: `⌈L/16⌉ − 1` states per channel and sweep.

mod backward;
mod call;
mod forward;
mod numbers;
mod plan;
mod sums;

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{dense, empty};
use crate::op::{Forward, FusedOp};
use crate::scan::ScanSpec;

use backward::complex_backward;
use call::{Arguments, Call};
use forward::complex_forward;
use plan::{Sizes, UNITS};

impl FusedOp<CubeBackend, 11, 2> for ScanSpec {
    type Inputs = Arguments;
    type Saved = (Arguments, CubeTensor);

    fn forward(self, arguments: Arguments, save: bool) -> Forward<CubeBackend, Self::Saved, 2> {
        let saved = save.then(|| arguments.clone());
        let spec = self;
        let call = Call::new(arguments, spec);
        let Call { arguments, sizes, .. } = &call;
        let [batch, len, d_inner, d_state] = call.dims();
        let like = &arguments.u;
        let y = empty(like, [batch, len, d_inner], like.dtype);
        let last_re = empty(like, [batch, d_inner, d_state], DType::F32);
        let last_im = empty(like, [batch, d_inner, d_state], DType::F32);
        let slots = if save { spec.sweeps() * call.slots() } else { call.slots().min(1) };
        let chunk_states = call.floats(slots * 2 * batch * d_state * d_inner);
        let partial = call.floats(if spec.sweeps() == 2 { batch * len * d_inner } else { 1 });
        for sweep in 0..spec.sweeps() {
            let plan = call.plan(sweep, save);
            let sizes = Sizes { slots_before: (sweep * call.slots()) as u32, ..*sizes };
            // SAFETY: units without a channel do nothing, and every index is a product of the
            // checked shapes that the buffers were allocated for.
            #[expect(
                unsafe_code,
                reason = "bounds checks in the inner loop would cost more than it does"
            )]
            unsafe {
                complex_forward::launch_unchecked(
                    &like.client,
                    call.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    arguments.u.clone().into_buffer_arg(),
                    arguments.delta.clone().into_buffer_arg(),
                    arguments.a_re.clone().into_buffer_arg(),
                    arguments.a_im.clone().into_buffer_arg(),
                    arguments.b_re.clone().into_buffer_arg(),
                    arguments.b_im.clone().into_buffer_arg(),
                    arguments.c_re.clone().into_buffer_arg(),
                    arguments.c_im.clone().into_buffer_arg(),
                    arguments.d.clone().into_buffer_arg(),
                    arguments.z.clone().into_buffer_arg(),
                    arguments.delta_bias.clone().into_buffer_arg(),
                    y.clone().into_buffer_arg(),
                    partial.clone().into_buffer_arg(),
                    last_re.clone().into_buffer_arg(),
                    last_im.clone().into_buffer_arg(),
                    chunk_states.clone().into_buffer_arg(),
                    sizes.launch(),
                    plan,
                    dtype_to_storage_type(like.dtype),
                    dtype_to_storage_type(arguments.b_re.dtype),
                    dtype_to_storage_type(arguments.c_re.dtype),
                );
            }
        }
        (y, [last_re, last_im], saved.map(|arguments| (arguments, chunk_states)))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        (arguments, saved): Self::Saved,
        _wanted: [bool; 11],
    ) -> [Option<CubeTensor>; 11] {
        let spec = self;
        let call = Call::new(arguments, spec);
        let grad_y = dense(grad_y);
        let Call { arguments, sizes, .. } = &call;
        let [batch, len, d_inner, d_state] = call.dims();
        let like = &arguments.u;
        let shaped = |of: &CubeTensor| empty(of, of.shape(), of.dtype);
        let (grad_u, grad_delta) = (shaped(&arguments.u), shaped(&arguments.delta));
        let grad_z = shaped(&arguments.z);
        let (tokens, states) = (batch * len * d_inner, batch * d_state * d_inner);
        let rows = batch * len * sizes.groups as usize * d_state;
        let partial = call.floats(if spec.sweeps() == 2 { 3 * tokens } else { 1 });
        let carry = call.floats(2 * states);
        let constants = usize::from(spec.b_constant) + usize::from(spec.c_constant);
        let state_sums = call.floats((2 + 2 * constants) * states);
        let strip_sums = call.floats(if constants == 2 { 1 } else { 4 * call.strips() * rows });
        let channel_sums = call.floats(2 * batch * d_inner);
        for sweep in 0..spec.sweeps() {
            let plan = call.plan(sweep, true);
            let sizes = Sizes { slots_before: (sweep * call.slots()) as u32, ..*sizes };
            // SAFETY: units without a channel read that of another and write nothing, and every
            // index is a product of the checked shapes that the buffers were allocated for.
            #[expect(
                unsafe_code,
                reason = "bounds checks in the inner loop would cost more than it does"
            )]
            unsafe {
                complex_backward::launch_unchecked(
                    &like.client,
                    call.cubes(),
                    CubeDim::new_1d(UNITS as u32),
                    grad_y.clone().into_buffer_arg(),
                    arguments.u.clone().into_buffer_arg(),
                    arguments.delta.clone().into_buffer_arg(),
                    arguments.a_re.clone().into_buffer_arg(),
                    arguments.a_im.clone().into_buffer_arg(),
                    arguments.b_re.clone().into_buffer_arg(),
                    arguments.b_im.clone().into_buffer_arg(),
                    arguments.c_re.clone().into_buffer_arg(),
                    arguments.c_im.clone().into_buffer_arg(),
                    arguments.d.clone().into_buffer_arg(),
                    arguments.z.clone().into_buffer_arg(),
                    arguments.delta_bias.clone().into_buffer_arg(),
                    saved.clone().into_buffer_arg(),
                    grad_u.clone().into_buffer_arg(),
                    grad_delta.clone().into_buffer_arg(),
                    grad_z.clone().into_buffer_arg(),
                    partial.clone().into_buffer_arg(),
                    carry.clone().into_buffer_arg(),
                    state_sums.clone().into_buffer_arg(),
                    strip_sums.clone().into_buffer_arg(),
                    channel_sums.clone().into_buffer_arg(),
                    sizes.launch(),
                    plan,
                    dtype_to_storage_type(like.dtype),
                    dtype_to_storage_type(arguments.b_re.dtype),
                    dtype_to_storage_type(arguments.c_re.dtype),
                );
            }
        }
        let by_state = |part: usize, of: &CubeTensor| {
            let out = shaped(of);
            call.sum_states(&state_sums, part * states, &out);
            out
        };
        let by_strip = |part: usize, of: &CubeTensor| {
            let (out, strips) = (shaped(of), call.strips());
            call.sum_parts(&strip_sums, part * strips * rows, rows, strips, &out);
            out
        };
        let by_channel = |part: usize, of: &CubeTensor, present: bool| {
            // The zero that stands for an absent input has a gradient that nobody reads.
            let out = shaped(of);
            if present {
                call.sum_parts(&channel_sums, part * batch * d_inner, d_inner, batch, &out);
            }
            out
        };
        let c_part = if spec.b_constant { 4 } else { 2 };
        let (b_re, b_im) = if spec.b_constant {
            (by_state(2, &arguments.b_re), by_state(3, &arguments.b_im))
        } else {
            (by_strip(0, &arguments.b_re), by_strip(1, &arguments.b_im))
        };
        let (c_re, c_im) = if spec.c_constant {
            (by_state(c_part, &arguments.c_re), by_state(c_part + 1, &arguments.c_im))
        } else {
            (by_strip(2, &arguments.c_re), by_strip(3, &arguments.c_im))
        };
        [
            grad_u,
            grad_delta,
            by_state(0, &arguments.a_re),
            by_state(1, &arguments.a_im),
            b_re,
            b_im,
            c_re,
            c_im,
            by_channel(0, &arguments.d, spec.has_d),
            grad_z,
            by_channel(1, &arguments.delta_bias, spec.has_delta_bias),
        ]
        .map(Some)
    }
}
