//! The native kernel behind Burn's Flex backend: tensors in, slices through, tensors out.

mod backward;
mod block;
mod forward;
mod inputs;
mod kernel;
mod strip;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};

use super::ScanSpec;
use super::autodiff::{ScanArguments, ScanKernels, ScanPrimitives};
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use inputs::ScanInputs;
use kernel::{ScanForward, ScanGrads};
use strip::Sizes;

type Flexible = FloatTensor<Flex>;

impl ScanKernels for Flex {
    fn forward(
        arguments: ScanArguments<Self>,
        spec: ScanSpec,
        save: bool,
    ) -> (ScanPrimitives<Self>, Option<Flexible>) {
        let dense = Dense::new(&arguments);
        let inputs = dense.inputs(spec);
        let ScanForward { y, last_state, chunk_states } = kernel::forward(inputs, save);
        let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
        let out = ScanPrimitives {
            y: tensor_as(y, &[batch, len, d_inner], arguments.u.dtype()),
            last_state: tensor(last_state, &[batch, d_inner, d_state]),
        };
        (
            out,
            save.then(|| {
                let len = chunk_states.len();
                tensor(chunk_states, &[len])
            }),
        )
    }

    fn backward(
        grad_y: Flexible,
        arguments: ScanArguments<Self>,
        saved: Flexible,
        spec: ScanSpec,
    ) -> [Flexible; 8] {
        let dense = Dense::new(&arguments);
        let (grad_y, saved) = (contiguous(&grad_y), contiguous(&saved));
        let ScanGrads { u, delta, a, b, c, d, z, delta_bias } =
            kernel::backward(dense.inputs(spec), slice(&grad_y), slice(&saved));
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
    }
}

/// The arguments with contiguous storage.
struct Dense {
    u: Flexible,
    delta: Flexible,
    a: Flexible,
    b: Flexible,
    c: Flexible,
    d: Flexible,
    z: Flexible,
    delta_bias: Flexible,
}

impl Dense {
    fn new(arguments: &ScanArguments<Flex>) -> Self {
        Self {
            u: contiguous(&arguments.u),
            delta: contiguous(&arguments.delta),
            a: contiguous(&arguments.a),
            b: contiguous(&arguments.b),
            c: contiguous(&arguments.c),
            d: contiguous(&arguments.d),
            z: contiguous(&arguments.z),
            delta_bias: contiguous(&arguments.delta_bias),
        }
    }

    fn inputs(&self, spec: ScanSpec) -> ScanInputs<'_> {
        debug_assert!(!spec.bidirectional, "two directions are two calls here");
        let [batch, len, d_inner] = self.u.shape().dims();
        let [_, d_state] = self.a.shape().dims();
        let groups = |t: &Flexible, constant: bool| if constant { 1 } else { t.shape()[2] };
        ScanInputs {
            sizes: Sizes {
                batch,
                len,
                d_inner,
                d_state,
                groups: groups(&self.b, spec.b_constant).max(groups(&self.c, spec.c_constant)),
            },
            spec,
            u: slice(&self.u),
            delta: slice(&self.delta),
            a: slice(&self.a),
            b: slice(&self.b),
            c: slice(&self.c),
            d: spec.has_d.then(|| slice(&self.d)),
            z: spec.has_z.then(|| slice(&self.z)),
            delta_bias: spec.has_delta_bias.then(|| slice(&self.delta_bias)),
        }
    }
}
