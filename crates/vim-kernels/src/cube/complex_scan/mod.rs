//! The scan with complex A, B and C for GPUs: see [`crate::selective_scan`].
//!
//! A unit has a channel and walks a chunk of tokens for one state after the other, so that N is no compile-time
//! choice and any N works; a state waits for its next chunk in the array of chunk starts, which
//! the backward pass reads again. That is `⌈L/16⌉ − 1` states a channel, for each way of a two-way method.

mod backward;
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

use super::{dense, empty};
use crate::selective_scan::ScanSpec;
use crate::selective_scan::complex::autodiff::{
    ComplexScanArguments, ComplexScanKernels, ComplexScanPrimitives,
};

use backward::complex_backward;
use forward::complex_forward;
use plan::{CHUNK, ComplexPlan, Sizes, SizesLaunch, UNITS};
use sums::{sum_parts, sum_states};

type Arguments = ComplexScanArguments<CubeBackend>;

impl ComplexScanKernels for CubeBackend {
    fn forward(
        arguments: Arguments,
        spec: ScanSpec,
        save: bool,
    ) -> (ComplexScanPrimitives<Self>, Option<CubeTensor>) {
        let call = Call::new(arguments, spec);
        let Call { arguments, sizes, .. } = &call;
        let [batch, len, d_inner, d_state] = call.dims();
        let like = &arguments.u;
        let y = empty(like, [batch, len, d_inner], like.dtype);
        let last_re = empty(like, [batch, d_inner, d_state], DType::F32);
        let last_im = empty(like, [batch, d_inner, d_state], DType::F32);
        let slots = if save { spec.ways() * call.slots() } else { call.slots().min(1) };
        let starts = call.floats(slots * 2 * batch * d_state * d_inner);
        let partial = call.floats(if spec.ways() == 2 { batch * len * d_inner } else { 1 });
        for way in 0..spec.ways() {
            let plan = call.plan(way, save);
            let sizes = Sizes { slots_before: (way * call.slots()) as u32, ..*sizes };
            // SAFETY: units without a channel do nothing, and every index is a product of the checked
            // shapes that the buffers were made for.
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
                    starts.clone().into_buffer_arg(),
                    sizes.launch(),
                    plan,
                    dtype_to_storage_type(like.dtype),
                    dtype_to_storage_type(arguments.b_re.dtype),
                    dtype_to_storage_type(arguments.c_re.dtype),
                );
            }
        }
        (ComplexScanPrimitives { y, last_re, last_im }, save.then_some(starts))
    }

    fn backward(
        grad_y: CubeTensor,
        arguments: Arguments,
        saved: CubeTensor,
        spec: ScanSpec,
    ) -> [CubeTensor; 11] {
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
        let partial = call.floats(if spec.ways() == 2 { 3 * tokens } else { 1 });
        let carry = call.floats(2 * states);
        let constants = usize::from(spec.b_constant) + usize::from(spec.c_constant);
        let state_sums = call.floats((2 + 2 * constants) * states);
        let strip_sums = call.floats(if constants == 2 { 1 } else { 4 * call.strips() * rows });
        let channel_sums = call.floats(2 * batch * d_inner);
        for way in 0..spec.ways() {
            let plan = call.plan(way, true);
            let sizes = Sizes { slots_before: (way * call.slots()) as u32, ..*sizes };
            // SAFETY: units without a channel read that of another and write nothing, and every index
            // is a product of the checked shapes that the buffers were made for.
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
    }
}

impl Sizes {
    fn launch(self) -> SizesLaunch {
        SizesLaunch::new(
            self.batch,
            self.len,
            self.d_inner,
            self.d_state,
            self.groups,
            self.slots_before,
        )
    }
}

/// A call with contiguous arguments.
struct Call {
    arguments: Arguments,
    spec: ScanSpec,
    sizes: Sizes,
}

impl Call {
    fn new(arguments: Arguments, spec: ScanSpec) -> Self {
        let [batch, len, d_inner] = arguments.u.shape().dims();
        let [_, d_state] = arguments.a_re.shape().dims();
        let groups = |t: &CubeTensor, constant: bool| if constant { 1 } else { t.shape()[2] };
        let groups =
            groups(&arguments.b_re, spec.b_constant).max(groups(&arguments.c_re, spec.c_constant));
        let sizes = Sizes {
            batch: batch as u32,
            len: len as u32,
            d_inner: d_inner as u32,
            d_state: d_state as u32,
            groups: groups as u32,
            slots_before: 0,
        };
        let arguments = Arguments {
            u: dense(arguments.u),
            delta: dense(arguments.delta),
            a_re: dense(arguments.a_re),
            a_im: dense(arguments.a_im),
            b_re: dense(arguments.b_re),
            b_im: dense(arguments.b_im),
            c_re: dense(arguments.c_re),
            c_im: dense(arguments.c_im),
            d: dense(arguments.d),
            z: dense(arguments.z),
            delta_bias: dense(arguments.delta_bias),
        };
        Self { arguments, spec, sizes }
    }

    /// `[B, L, D, N]`.
    fn dims(&self) -> [usize; 4] {
        let Sizes { batch, len, d_inner, d_state, .. } = self.sizes;
        [batch, len, d_inner, d_state].map(|size| size as usize)
    }

    /// Chunk starts that a way keeps.
    fn slots(&self) -> usize {
        (self.sizes.len as usize).div_ceil(CHUNK) - 1
    }

    /// Strips of channels in a group.
    fn strips(&self) -> usize {
        ((self.sizes.d_inner / self.sizes.groups) as usize).div_ceil(UNITS)
    }

    fn cubes(&self) -> CubeCount {
        CubeCount::Static(self.sizes.groups * self.strips() as u32, self.sizes.batch, 1)
    }

    fn plan(&self, way: usize, save: bool) -> ComplexPlan {
        let spec = self.spec;
        ComplexPlan {
            method: spec.method,
            series: spec.series,
            softplus: spec.delta_softplus,
            reverse: spec.reverse ^ (way == 1),
            has_d: spec.has_d,
            has_z: spec.has_z,
            has_bias: spec.has_delta_bias,
            b_constant: spec.b_constant,
            c_constant: spec.c_constant,
            first: way == 0,
            last: way + 1 == spec.ways(),
            save,
            // The portable exponential and division: this kernel is not tuned.
            ptx: false,
        }
    }

    /// Room for `len` numbers, at least one: a kernel cannot be passed none.
    fn floats(&self, len: usize) -> CubeTensor {
        empty(&self.arguments.u, [len.max(1)], DType::F32)
    }

    fn sum_parts(
        &self,
        from: &CubeTensor,
        offset: usize,
        stride: usize,
        parts: usize,
        out: &CubeTensor,
    ) {
        // SAFETY: units past `stride` do nothing, and the caller's `from` holds what it names.
        #[expect(unsafe_code, reason = "the launch without bounds checks is unsafe")]
        unsafe {
            sum_parts::launch_unchecked(
                &out.client,
                CubeCount::Static((stride as u32).div_ceil(256), 1, 1),
                CubeDim::new_1d(256),
                from.clone().into_buffer_arg(),
                out.clone().into_buffer_arg(),
                offset as u32,
                stride as u32,
                parts as u32,
                dtype_to_storage_type(out.dtype),
            );
        }
    }

    fn sum_states(&self, from: &CubeTensor, offset: usize, out: &CubeTensor) {
        let Sizes { batch, d_inner, d_state, .. } = self.sizes;
        // SAFETY: units past `[D, N]` do nothing, and the caller's `from` holds what it names.
        #[expect(unsafe_code, reason = "the launch without bounds checks is unsafe")]
        unsafe {
            sum_states::launch_unchecked(
                &out.client,
                CubeCount::Static((d_inner * d_state).div_ceil(256), 1, 1),
                CubeDim::new_1d(256),
                from.clone().into_buffer_arg(),
                out.clone().into_buffer_arg(),
                offset as u32,
                batch,
                d_state,
                d_inner,
            );
        }
    }
}
