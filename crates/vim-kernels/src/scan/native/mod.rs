//! The native kernel behind Burn's Flex backend: tensors in, slices through, tensors out.

mod backward;
mod block;
mod forward;
mod inputs;
mod kernel;
mod strip;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};

use super::ScanSpec;
use super::autodiff::ScanArguments;
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use crate::op::{Forward, FusedOp, Tensors};
use inputs::ScanInputs;
use kernel::{ScanForward, ScanGrads};
use strip::Sizes;

type Flexible = FloatTensor<Flex>;

impl FusedOp<Flex, 8, 1> for ScanSpec {
    type Inputs = ScanArguments<Flex>;
    type Saved = (ScanArguments<Flex>, Flexible);

    fn forward(self, arguments: ScanArguments<Flex>, save: bool) -> Forward<Flex, Self::Saved, 1> {
        let dense = arguments.clone().map(|t| contiguous(&t));
        let inputs = inputs(&dense, self);
        let ScanForward { y, last_state, chunk_states } = kernel::forward(inputs, save);
        let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
        let y = tensor_as(y, &[batch, len, d_inner], arguments.u.dtype());
        let last_state = tensor(last_state, &[batch, d_inner, d_state]);
        let saved = save.then(|| {
            let len = chunk_states.len();
            (arguments, tensor(chunk_states, &[len]))
        });
        (y, [last_state], saved)
    }

    fn backward(
        self,
        grad_y: Flexible,
        (arguments, chunk_states): Self::Saved,
        _wanted: [bool; 8],
    ) -> [Option<Flexible>; 8] {
        let dense = arguments.clone().map(|t| contiguous(&t));
        let (grad_y, chunk_states) = (contiguous(&grad_y), contiguous(&chunk_states));
        let ScanGrads { u, delta, a, b, c, d, z, delta_bias } =
            kernel::backward(inputs(&dense, self), slice(&grad_y), slice(&chunk_states));
        let like = |values: Vec<f32>, of: &Flexible| {
            let shape: Vec<usize> = of.shape().iter().copied().collect();
            tensor_as(values, &shape, of.dtype())
        };
        // The zero that stands for an absent input has a gradient of zero.
        let optional =
            |values: Option<Vec<f32>>, of: &Flexible| like(values.unwrap_or(vec![0.0]), of);
        [
            like(u, &arguments.u),
            like(delta, &arguments.delta),
            like(a, &arguments.a),
            like(b, &arguments.b),
            like(c, &arguments.c),
            optional(d, &arguments.d),
            optional(z, &arguments.z),
            optional(delta_bias, &arguments.delta_bias),
        ]
        .map(Some)
    }
}

/// The arguments as slices, from tensors with contiguous storage.
fn inputs(dense: &ScanArguments<Flex>, spec: ScanSpec) -> ScanInputs<'_> {
    debug_assert!(!spec.bidirectional, "two directions are two calls here");
    let [batch, len, d_inner] = dense.u.shape().dims();
    let [_, d_state] = dense.a.shape().dims();
    let groups = |t: &Flexible, constant: bool| if constant { 1 } else { t.shape()[2] };
    ScanInputs {
        sizes: Sizes {
            batch,
            len,
            d_inner,
            d_state,
            groups: groups(&dense.b, spec.b_constant).max(groups(&dense.c, spec.c_constant)),
        },
        spec,
        u: slice(&dense.u),
        delta: slice(&dense.delta),
        a: slice(&dense.a),
        b: slice(&dense.b),
        c: slice(&dense.c),
        d: spec.has_d.then(|| slice(&dense.d)),
        z: spec.has_z.then(|| slice(&dense.z)),
        delta_bias: spec.has_delta_bias.then(|| slice(&dense.delta_bias)),
    }
}
