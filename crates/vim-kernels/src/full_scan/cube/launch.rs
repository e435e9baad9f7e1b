//! Launches of the kernels on Burn's tensors.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::ir::ElemType;
use cubecl::prelude::{CubeCount, CubeDim};

use super::{Plan, UNITS, backward, forward, sum};
use crate::cube::{dense, empty, has_planes};
use crate::full_scan::{CHUNK, FullScanSpec};
use crate::op::{Forward, FusedOp, Tensors};
use crate::scan::ScanArguments;

impl FusedOp<CubeBackend, 8, 1> for FullScanSpec {
    type Inputs = ScanArguments<CubeBackend>;
    type Saved = (ScanArguments<CubeBackend>, CubeTensor);

    fn forward(
        self,
        arguments: ScanArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 1> {
        let saved = save.then(|| arguments.clone());
        let call = Call::new(arguments, self, save);
        let Sizes { batch, len, d_inner, d_state, groups, blocks } = call.sizes;
        let ScanArguments { u, delta, a, b, c, d, z, delta_bias } = call.arguments;
        let y = empty(&u, [batch, len, d_inner], u.dtype);
        let last_state = empty(&u, [batch, d_inner, d_state], DType::F32);
        let chunks = len.div_ceil(CHUNK);
        let chunk_states = if save { vec![batch, chunks, d_inner, d_state] } else { vec![1] };
        let chunk_states = empty(&u, Shape::from(chunk_states), DType::F32);
        let client = u.client.clone();
        #[expect(unsafe_code, reason = "a launch without bounds checks")]
        // SAFETY: the call was checked: every tensor has the shape that the kernel indexes it by.
        unsafe {
            forward::forward::launch_unchecked(
                &client,
                CubeCount::Static((groups * blocks) as u32, batch as u32, 1),
                CubeDim::new_1d(UNITS as u32),
                u.into_buffer_arg(),
                delta.into_buffer_arg(),
                a.into_buffer_arg(),
                b.into_buffer_arg(),
                c.into_buffer_arg(),
                d.into_buffer_arg(),
                z.into_buffer_arg(),
                delta_bias.into_buffer_arg(),
                y.clone().into_buffer_arg(),
                last_state.clone().into_buffer_arg(),
                chunk_states.clone().into_buffer_arg(),
                len,
                d_inner,
                groups,
                blocks,
                call.plan,
                call.types,
            );
        }
        (y, [last_state], saved.map(|arguments| (arguments, chunk_states)))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        (arguments, saved): Self::Saved,
        _wanted: [bool; 8],
    ) -> [Option<CubeTensor>; 8] {
        let call = Call::new(arguments, self, true);
        let Sizes { batch, len, d_inner, d_state, groups, blocks } = call.sizes;
        let ScanArguments { u, delta, a, b, c, d, z, delta_bias } = call.arguments;
        let like = |of: &CubeTensor| empty(of, of.meta.shape().clone(), of.dtype);
        let grads = [&u, &delta, &a, &b, &c, &d, &z, &delta_bias].map(like);
        let [grad_u, grad_delta, grad_a, grad_b, grad_c, grad_d, grad_z, grad_bias] = &grads;
        let part = |shape: &[usize]| empty(grad_u, Shape::from(shape.to_vec()), DType::F32);
        let projection = |constant| {
            if constant {
                part(&[batch, d_inner * d_state])
            } else {
                part(&[batch * len * groups, blocks, d_state])
            }
        };
        let part_a = part(&[batch, d_inner * d_state * d_state]);
        let (part_b, part_c) = (projection(self.b_constant), projection(self.c_constant));
        let (part_d, part_bias) = (part(&[batch, d_inner]), part(&[batch, d_inner]));
        let client = u.client.clone();
        #[expect(unsafe_code, reason = "a launch without bounds checks")]
        // SAFETY: the call was checked: every tensor has the shape that the kernel indexes it by.
        unsafe {
            backward::backward::launch_unchecked(
                &client,
                CubeCount::Static((groups * blocks) as u32, batch as u32, 1),
                CubeDim::new_1d(UNITS as u32),
                dense(grad_y).into_buffer_arg(),
                u.into_buffer_arg(),
                delta.into_buffer_arg(),
                a.into_buffer_arg(),
                b.into_buffer_arg(),
                c.into_buffer_arg(),
                d.into_buffer_arg(),
                z.into_buffer_arg(),
                delta_bias.into_buffer_arg(),
                dense(saved).into_buffer_arg(),
                grad_u.clone().into_buffer_arg(),
                grad_delta.clone().into_buffer_arg(),
                grad_z.clone().into_buffer_arg(),
                part_a.clone().into_buffer_arg(),
                part_b.clone().into_buffer_arg(),
                part_c.clone().into_buffer_arg(),
                part_d.clone().into_buffer_arg(),
                part_bias.clone().into_buffer_arg(),
                len,
                d_inner,
                groups,
                blocks,
                call.plan,
                call.types,
            );
        }
        let over_blocks = |constant| if constant { batch } else { blocks };
        let inner = |constant, all: &CubeTensor| if constant { size(all) } else { d_state };
        sum_parts(part_a, grad_a, batch, size(grad_a));
        sum_parts(part_b, grad_b, over_blocks(self.b_constant), inner(self.b_constant, grad_b));
        sum_parts(part_c, grad_c, over_blocks(self.c_constant), inner(self.c_constant, grad_c));
        // The zero that stands for an absent input has a gradient of zero.
        for (present, parts, to) in
            [(self.has_d, part_d, grad_d), (self.has_delta_bias, part_bias, grad_bias)]
        {
            sum_parts(parts, to, if present { batch } else { 0 }, size(to));
        }
        if !self.has_z {
            sum_parts(part(&[1]), grad_z, 0, 1);
        }
        grads.map(Some)
    }
}

fn size(of: &CubeTensor) -> usize {
    of.meta.shape().num_elements()
}

/// Fills `to` with the sums over `n_parts` of `parts [outer, n_parts, inner]`.
fn sum_parts(parts: CubeTensor, to: &CubeTensor, n_parts: usize, inner: usize) {
    let count = size(to);
    let client = to.client.clone();
    let dim = CubeDim::new_1d(UNITS as u32);
    #[expect(unsafe_code, reason = "a launch without bounds checks")]
    // SAFETY: units from `count` on do nothing, and `parts` has `n_parts` numbers for each before.
    unsafe {
        sum::sum_parts::launch_unchecked(
            &client,
            calculate_cube_count_elemwise(&client, count, dim),
            dim,
            parts.into_buffer_arg(),
            to.clone().into_buffer_arg(),
            count,
            n_parts,
            inner,
            dtype_to_storage_type(to.dtype),
        );
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    groups: usize,
    /// Blocks that share a group's channels.
    blocks: usize,
}

/// A call with dense arguments.
struct Call {
    arguments: ScanArguments<CubeBackend>,
    sizes: Sizes,
    plan: Plan,
    /// Element types of the activations, of B and of C.
    types: [ElemType; 3],
}

impl Call {
    fn new(arguments: ScanArguments<CubeBackend>, spec: FullScanSpec, save: bool) -> Self {
        let arguments = arguments.map(dense);
        let [batch, len, d_inner] = arguments.u.meta.shape().dims::<3>();
        let [_, d_state, _] = arguments.a.meta.shape().dims::<3>();
        let groups = |of: &CubeTensor, constant| if constant { 1 } else { of.meta.shape()[2] };
        let groups =
            groups(&arguments.b, spec.b_constant).max(groups(&arguments.c, spec.c_constant));
        let plan = Plan::new(d_state, has_planes(&arguments.u.client), spec, save);
        let blocks = (d_inner / groups).div_ceil(plan.teams());
        let types = [&arguments.u, &arguments.b, &arguments.c]
            .map(|tensor| dtype_to_storage_type(tensor.dtype));
        Self {
            sizes: Sizes { batch, len, d_inner, d_state, groups, blocks },
            arguments,
            plan,
            types,
        }
    }
}
