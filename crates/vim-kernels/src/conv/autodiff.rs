//! The convolution as a differentiable operation of Burn.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, Backend, Flex, TensorMetadata, backend_extension, tensor::FloatTensor,
};
use burn::tensor::Slice;

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

    /// See [`super::causal_conv1d_bidirectional`]: `[2·B, L, D]`, from weight and bias of each direction.
    fn forward_both(
        x: FloatTensor<Self>,
        ahead: [FloatTensor<Self>; 2],
        back: [FloatTensor<Self>; 2],
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        let one = |[weight, bias]: [FloatTensor<Self>; 2], spec| {
            Self::forward(x.clone(), weight, bias, spec)
        };
        Self::float_cat(vec![one(ahead, spec), one(back, spec.reversed())], 0)
    }

    /// The gradients of x, and of weight and bias of each direction.
    fn backward_both(
        grad_y: FloatTensor<Self>,
        x: FloatTensor<Self>,
        ahead: [FloatTensor<Self>; 2],
        back: [FloatTensor<Self>; 2],
        spec: ConvSpec,
    ) -> [FloatTensor<Self>; 5] {
        let [batch, len, d_inner] = x.shape().dims();
        let one = |[weight, bias]: [FloatTensor<Self>; 2], spec, first: usize| {
            let slices = [first..first + batch, 0..len, 0..d_inner].map(Slice::from);
            let grad_y = Self::float_slice(grad_y.clone(), &slices);
            Self::backward(grad_y, x.clone(), weight, bias, spec)
        };
        let [x_ahead, weight_ahead, bias_ahead] = one(ahead, spec, 0);
        let [x_back, weight_back, bias_back] = one(back, spec.reversed(), batch);
        let grad_x = Self::float_add(x_ahead, x_back);
        [grad_x, weight_ahead, bias_ahead, weight_back, bias_back]
    }
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

    /// See [`super::causal_conv1d_bidirectional`].
    fn causal_conv1d_bidirectional(
        x: FloatTensor<Self>,
        weight_ahead: FloatTensor<Self>,
        bias_ahead: FloatTensor<Self>,
        weight_back: FloatTensor<Self>,
        bias_back: FloatTensor<Self>,
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

    fn causal_conv1d_bidirectional(
        x: FloatTensor<Self>,
        weight_ahead: FloatTensor<Self>,
        bias_ahead: FloatTensor<Self>,
        weight_back: FloatTensor<Self>,
        bias_back: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        Self::forward_both(x, [weight_ahead, bias_ahead], [weight_back, bias_back], spec)
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

    fn causal_conv1d_bidirectional(
        x: FloatTensor<Self>,
        weight_ahead: FloatTensor<Self>,
        bias_ahead: FloatTensor<Self>,
        weight_back: FloatTensor<Self>,
        bias_back: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        Self::forward_both(x, [weight_ahead, bias_ahead], [weight_back, bias_back], spec)
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

#[derive(Debug)]
struct ConvBothBackward;

impl<B: ConvKernels> Backward<B, 5> for ConvBothBackward {
    type State = ([FloatTensor<B>; 5], ConvSpec);

    fn backward(
        self,
        ops: Ops<Self::State, 5>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad_y = grads.consume::<B>(&ops.node);
        let ([x, weight_ahead, bias_ahead, weight_back, bias_back], spec) = ops.state;
        let ahead = [weight_ahead, bias_ahead];
        let inputs = B::backward_both(grad_y, x, ahead, [weight_back, bias_back], spec);
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

    fn causal_conv1d_bidirectional(
        x: FloatTensor<Self>,
        weight_ahead: FloatTensor<Self>,
        bias_ahead: FloatTensor<Self>,
        weight_back: FloatTensor<Self>,
        bias_back: FloatTensor<Self>,
        spec: ConvSpec,
    ) -> FloatTensor<Self> {
        let inputs = [x, weight_ahead, bias_ahead, weight_back, bias_back];
        let nodes = inputs.each_ref().map(|t| t.node());
        let prep = ConvBothBackward.prepare::<C>(nodes).compute_bound().stateful();
        let inputs = inputs.map(|t| t.into_primitive());
        let [x, weight_ahead, bias_ahead, weight_back, bias_back] = inputs.clone();
        let y = B::forward_both(x, [weight_ahead, bias_ahead], [weight_back, bias_back], spec);
        match prep {
            OpsKind::Tracked(prep) => prep.finish((inputs, spec), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}
