//! The convolution as a differentiable operation of Burn.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, Flex, backend_extension, tensor::FloatTensor};

use super::ConvSpec;

/// Backends with a fused convolution. This is where a GPU's kernels join.
pub(super) trait ConvKernels: Backend {
    /// See [`super::causal_conv1d`].
    fn forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self>;

    /// The gradients of x, weight and bias, shaped as they are.
    fn backward(
        grad_y: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> [FloatTensor<Self>; 3];
}

/// The convolution as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(super) trait ConvBackend: Backend {
    /// See [`super::causal_conv1d`].
    fn causal_conv1d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self>;
}

impl ConvBackend for Flex {
    fn causal_conv1d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        Self::forward(x, weight, bias, spec)
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl ConvBackend for burn_cubecl::CubeBackend {
    fn causal_conv1d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        Self::forward(x, weight, bias, spec)
    }
}

#[derive(Debug)]
struct ConvBackward;

impl<B: ConvKernels> Backward<B, 3> for ConvBackward {
    type State = ([FloatTensor<B>; 3], ConvSpec);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad_y = grads.consume::<B>(&ops.node);
        let ([x, weight, bias], spec) = ops.state;
        let inputs = B::backward(grad_y, x, weight, bias, spec);
        for (parent, grad) in ops.parents.into_iter().zip(inputs) {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

impl<B: ConvKernels + ConvBackend, C: CheckpointStrategy> ConvBackend for Autodiff<B, C> {
    fn causal_conv1d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        let nodes = [&x, &weight, &bias].map(|t| t.node());
        let prep = ConvBackward.prepare::<C>(nodes).compute_bound().stateful();
        let [x, weight, bias] = [x, weight, bias].map(|t| t.into_primitive());
        let y = B::forward(x.clone(), weight.clone(), bias.clone(), spec);
        match prep {
            OpsKind::Tracked(prep) => prep.finish(([x, weight, bias], spec), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}
