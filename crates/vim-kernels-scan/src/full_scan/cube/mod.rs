//! The scan with a full A on a GPU.
//!
//! A channel of a batch element is a team of units (threads), one per state: unit n holds row n of
//! the channel's A and state n in registers, and walks the tokens in order. The team solves each
//! token's system together ([`solve`]); a block holds as many teams as fit into [`UNITS`] units. A
//! team is a power of two of units, so it never spans two planes (warps), and where the device has
//! planes of 32 the units of a team synchronize with each other only, not with the block.

#![expect(unsafe_code, reason = "launches without bounds checks")]

mod backward;
mod coords;
mod forward;
mod solve;

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{CHUNK, FullScanSpec, UNITS, team};
use crate::scan::{ScanArguments, ScanSpec};
use backward::{PartialSumsLaunch, TokenGradsLaunch};
use coords::{FullTensorsLaunch, SizesLaunch};
use vim_kernels_core::cube::sum::sum_parts;
use vim_kernels_core::cube::{dense, elem, empty, has_planes};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Compile-time configuration of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// N.
    n: usize,
    /// See [`team`].
    team: usize,
    /// Whether the units of a plane can wait for each other.
    planes: bool,
    spec: ScanSpec,
    /// Whether the forward pass saves the states at the starts of chunks.
    save: bool,
}

impl Plan {
    fn new(n: usize, planes: bool, spec: ScanSpec, save: bool) -> Self {
        Self { n, team: team(n), planes, spec, save }
    }

    /// Channels of a block.
    fn teams(&self) -> usize {
        UNITS / self.team
    }

    /// Floats between the rows of a system in shared memory: the row and its right side, and one
    /// more where that is even, so that a column's entries lie in different banks.
    fn stride(&self) -> usize {
        (self.n + 1) | 1
    }
}

impl FusedOp<CubeBackend, 8, 1> for FullScanSpec {
    type Inputs = ScanArguments<CubeBackend>;
    type Saved = (ScanArguments<CubeBackend>, CubeTensor);

    fn forward(
        self,
        arguments: ScanArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 1> {
        let saved = save.then(|| arguments.clone());
        let call = Call::new(arguments, self.0, save);
        let [batch, len, d_inner] = call.arguments.u.meta.shape().dims();
        let u = &call.arguments.u;
        let y = empty(u, [batch, len, d_inner], u.dtype);
        let last_state = empty(u, [batch, d_inner, call.plan.n], DType::F32);
        let chunks = len.div_ceil(CHUNK);
        let chunk_states = if save { vec![batch, chunks, d_inner, call.plan.n] } else { vec![1] };
        let chunk_states = empty(u, Shape::from(chunk_states), DType::F32);
        // SAFETY: the call was checked: every tensor has the shape that the kernel indexes it by.
        unsafe {
            forward::forward::launch_unchecked(
                &u.client,
                call.cubes(),
                CubeDim::new_1d(UNITS as u32),
                call.tensors(),
                y.clone().into_buffer_arg(),
                last_state.clone().into_buffer_arg(),
                chunk_states.clone().into_buffer_arg(),
                call.sizes(),
                call.plan,
                call.types(),
            );
        }
        (y, [last_state], saved.map(|arguments| (arguments, chunk_states)))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        (arguments, saved): Self::Saved,
        wanted: [bool; 8],
    ) -> [Option<CubeTensor>; 8] {
        let call = Call::new(arguments, self.0, true);
        let ScanArguments { u, delta, a, b, c, d, z, delta_bias } = &call.arguments;
        let ([batch, len, d_inner], d_state) = (u.meta.shape().dims(), call.plan.n);
        let spec = self.0;
        let like = |of: &CubeTensor| empty(of, of.meta.shape().clone(), of.dtype);
        let grads = [u, delta, a, b, c, d, z, delta_bias].map(like);
        let [grad_u, grad_delta, grad_a, grad_b, grad_c, grad_d, grad_z, grad_bias] = &grads;
        let part = |count: usize| empty(u, [count], DType::F32);
        let projection = |constant| {
            let rows = batch * len * call.groups * call.blocks;
            part(if constant { batch * d_inner } else { rows } * d_state)
        };
        let parts = [
            part(batch * d_inner * d_state * d_state),
            projection(spec.b_constant),
            projection(spec.c_constant),
            part(batch * d_inner),
            part(batch * d_inner),
        ];
        let [part_a, part_b, part_c, part_d, part_bias] =
            parts.each_ref().map(|part| part.clone().into_buffer_arg());
        let token_grads = TokenGradsLaunch::new(
            grad_u.clone().into_buffer_arg(),
            grad_delta.clone().into_buffer_arg(),
            grad_z.clone().into_buffer_arg(),
        );
        // SAFETY: the call was checked: every tensor has the shape that the kernel indexes it by.
        unsafe {
            backward::backward::launch_unchecked(
                &u.client,
                call.cubes(),
                CubeDim::new_1d(UNITS as u32),
                dense(grad_y).into_buffer_arg(),
                call.tensors(),
                dense(saved).into_buffer_arg(),
                token_grads,
                PartialSumsLaunch::new(part_a, part_b, part_c, part_d, part_bias),
                call.sizes(),
                call.plan,
                call.types(),
            );
        }
        let [part_a, part_b, part_c, part_d, part_bias] = &parts;
        let projected = |part: &CubeTensor, to: &CubeTensor, constant| {
            if constant {
                sum_parts(part, 0, batch, size(to), to);
            } else {
                sum_parts(part, 0, call.blocks, d_state, to);
            }
        };
        // Of what is not wanted, as the zero that stands for an absent input, no sums are added.
        let [_, _, wants_a, wants_b, wants_c, wants_d, _, wants_bias] = wanted;
        if wants_a {
            sum_parts(part_a, 0, batch, size(grad_a), grad_a);
        }
        if wants_b {
            projected(part_b, grad_b, spec.b_constant);
        }
        if wants_c {
            projected(part_c, grad_c, spec.c_constant);
        }
        for (wanted, part, to) in [(wants_d, part_d, grad_d), (wants_bias, part_bias, grad_bias)] {
            if wanted {
                sum_parts(part, 0, batch, size(to), to);
            }
        }
        let mut wanted = wanted.into_iter();
        grads.map(|grad| Some(grad).filter(|_| wanted.next() == Some(true)))
    }
}

fn size(of: &CubeTensor) -> usize {
    of.meta.shape().num_elements()
}

/// A call with dense arguments.
struct Call {
    arguments: ScanArguments<CubeBackend>,
    groups: usize,
    /// Blocks that share a group's channels.
    blocks: usize,
    plan: Plan,
}

impl Call {
    fn new(arguments: ScanArguments<CubeBackend>, spec: ScanSpec, save: bool) -> Self {
        let arguments = arguments.map(dense);
        let [_, _, d_inner] = arguments.u.meta.shape().dims::<3>();
        let [_, d_state, _] = arguments.a.meta.shape().dims::<3>();
        let groups = |of: &CubeTensor, constant| if constant { 1 } else { of.meta.shape()[2] };
        let groups =
            groups(&arguments.b, spec.b_constant).max(groups(&arguments.c, spec.c_constant));
        let plan = Plan::new(d_state, has_planes(&arguments.u.client), spec, save);
        let blocks = (d_inner / groups).div_ceil(plan.teams());
        Self { arguments, groups, blocks, plan }
    }

    fn cubes(&self) -> CubeCount {
        let batch = self.arguments.u.meta.shape()[0];
        CubeCount::Static((self.groups * self.blocks) as u32, batch as u32, 1)
    }

    fn tensors<F: Float, P: Float, Q: Float>(&self) -> FullTensorsLaunch<F, P, Q> {
        let [u, delta, a, b, c, d, z, delta_bias] =
            self.arguments.clone().into_array().map(CubeTensor::into_buffer_arg);
        FullTensorsLaunch::new(u, delta, a, b, c, d, z, delta_bias)
    }

    fn sizes(&self) -> SizesLaunch {
        let [_, len, d_inner] = self.arguments.u.meta.shape().dims();
        SizesLaunch::new(len, d_inner, self.groups, self.blocks)
    }

    /// Element types of the activations, of B and of C.
    fn types(&self) -> [ElemType; 3] {
        [&self.arguments.u, &self.arguments.b, &self.arguments.c].map(elem)
    }
}
