//! The native kernel behind Burn's Flex backend: tensors in, slices through, tensors out.

mod backward;
mod block;
mod forward;
mod inputs;
mod kernel;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};

use super::{ScanArguments, ScanSpec};
use vim_kernels_core::native::slices::{contiguous, slice, tensor, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

pub use inputs::{ScanInputs, Sizes};
pub(crate) use kernel::Wanted;
pub(crate) use kernel::saved_len;
pub use kernel::{ScanForward, ScanGrads, backward, forward};

type Flexible = FloatTensor<Flex>;

/// What a scan saves: its arguments and the chunk states.
pub(crate) type Saved = (ScanArguments<Flex>, Flexible);

impl FusedOp<Flex, 8, 1> for ScanSpec {
    type Inputs = ScanArguments<Flex>;
    type Saved = Saved;

    fn forward(self, arguments: ScanArguments<Flex>, save: bool) -> Forward<Flex, Saved, 1> {
        scan_tensors(arguments, self, save, kernel::forward)
    }

    fn backward(self, grad_y: Flexible, saved: Saved, wanted: Wanted) -> [Option<Flexible>; 8] {
        tensor_gradients(&grad_y, saved, self, wanted, kernel::backward)
    }
}

/// Runs a scan's forward kernel, whatever the shape of A.
pub(crate) fn scan_tensors(
    arguments: ScanArguments<Flex>,
    spec: ScanSpec,
    save: bool,
    kernel: fn(ScanInputs<'_>, bool) -> ScanForward,
) -> Forward<Flex, Saved, 1> {
    let dense = arguments.clone().map(|t| contiguous(&t));
    let inputs = inputs(&dense, spec);
    let ScanForward { y, last_state, chunk_states } = kernel(inputs, save);
    let Sizes { batch, len, d_inner, d_state, .. } = inputs.sizes;
    let y = tensor_as(y, &[batch, len, d_inner], arguments.u.dtype());
    let last_state = tensor(last_state, &[batch, d_inner, d_state]);
    let saved = save.then(|| {
        let len = chunk_states.len();
        (arguments, tensor(chunk_states, &[len]))
    });
    (y, [last_state], saved)
}

/// Runs a scan's backward kernel, whatever the shape of A.
pub(crate) fn tensor_gradients(
    grad_y: &Flexible,
    (arguments, chunk_states): Saved,
    spec: ScanSpec,
    wanted: Wanted,
    kernel: fn(ScanInputs<'_>, &[f32], &[f32], Wanted) -> ScanGrads,
) -> [Option<Flexible>; 8] {
    let dense = arguments.clone().map(|t| contiguous(&t));
    let (grad_y, chunk_states) = (contiguous(grad_y), contiguous(&chunk_states));
    let grads = kernel(inputs(&dense, spec), slice(&grad_y), slice(&chunk_states), wanted);
    let mut grads = grads.into_array().into_iter().zip(wanted);
    arguments.into_array().map(|of| {
        let (values, wanted) = grads.next().expect("invariant: eight gradients");
        // The zero that stands for an absent input has a gradient of zero.
        let values = if values.is_empty() { vec![0.0] } else { values };
        let shape: Vec<usize> = of.shape().iter().copied().collect();
        wanted.then(|| tensor_as(values, &shape, of.dtype()))
    })
}

/// The arguments as slices, from tensors with contiguous storage.
fn inputs(dense: &ScanArguments<Flex>, spec: ScanSpec) -> ScanInputs<'_> {
    debug_assert!(!spec.bidirectional, "two directions are two calls here");
    let [batch, len, d_inner] = dense.u.shape().dims();
    let d_state = dense.a.shape()[1];
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
