//! The linear map as a differentiable operation of Burn, on a GPU.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension, tensor::FloatTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;

use super::cube::{Matrix, Output, activations, column_sums, multiply, weight_gradient};
use crate::cube::{dense, empty};
use crate::precision::Precision;

/// A checked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinearSpec {
    pub(super) has_bias: bool,
    pub(super) precision: Precision,
}

/// Backends with products of our own.
pub(super) trait LinearKernels: Backend {
    /// The weight as it is multiplied, which the other functions take.
    fn prepared(weight: FloatTensor<Self>, spec: LinearSpec) -> FloatTensor<Self>;

    /// See [`super::linear`].
    fn forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> FloatTensor<Self>;

    /// The gradient of x in the type of `x`.
    fn backward_x(
        grad: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dtype: DType,
        spec: LinearSpec,
    ) -> FloatTensor<Self>;

    /// The gradients of weight and bias.
    fn backward_weights(
        grad: FloatTensor<Self>,
        x: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);
}

/// The map as dispatched.
#[backend_extension(Cube, Autodiff)]
pub(super) trait LinearBackend: Backend {
    /// See [`super::linear`].
    fn linear_map(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> FloatTensor<Self>;
}

impl LinearBackend for CubeBackend {
    fn linear_map(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> FloatTensor<Self> {
        Self::forward(x, Self::prepared(weight, spec), bias, spec)
    }
}

impl LinearKernels for CubeBackend {
    fn prepared(weight: FloatTensor<Self>, spec: LinearSpec) -> FloatTensor<Self> {
        Matrix::rounded_weight(&weight, spec.precision)
    }

    fn forward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> FloatTensor<Self> {
        let [x, bias] = [x, bias].map(dense);
        let [batch, len, width] = x.shape().dims();
        let [_, columns] = weight.shape().dims();
        let out = activations(&x, [batch, len, columns], spec.precision);
        multiply(
            &Matrix::dense(&x, [batch * len, width]),
            &Matrix::weight(&weight),
            spec.has_bias.then_some(&bias),
            &Matrix::dense(&out, [batch * len, columns]),
            Output::Overwrite,
            spec.precision,
        );
        out
    }

    fn backward_x(
        grad: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        dtype: DType,
        spec: LinearSpec,
    ) -> FloatTensor<Self> {
        let grad = dense(grad);
        let [batch, len, columns] = grad.shape().dims();
        let [width, _] = weight.shape().dims();
        let grad_x = empty(&grad, [batch, len, width], dtype);
        multiply(
            &Matrix::dense(&grad, [batch * len, columns]),
            &Matrix::weight(&weight).transposed(),
            None,
            &Matrix::dense(&grad_x, [batch * len, width]),
            Output::Overwrite,
            spec.precision,
        );
        grad_x
    }

    fn backward_weights(
        grad: FloatTensor<Self>,
        x: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let [grad, x] = [grad, x].map(dense);
        let [batch, len, columns] = grad.shape().dims();
        let [_, _, width] = x.shape().dims();
        let grad = Matrix::dense(&grad, [batch * len, columns]);
        let x = Matrix::dense(&x, [batch * len, width]);
        let bias = spec.has_bias.then(|| column_sums(&grad));
        (weight_gradient(&x, &grad, spec.precision), bias)
    }
}

#[derive(Debug)]
struct LinearBackward;

impl<B: LinearKernels> Backward<B, 3> for LinearBackward {
    type State = ([FloatTensor<B>; 2], LinearSpec);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let ([x, weight], spec) = ops.state;
        let [of_x, of_weight, of_bias] = ops.parents;
        if let Some(node) = of_x {
            let dtype = x.dtype();
            grads.register::<B>(node.id, B::backward_x(grad.clone(), weight, dtype, spec));
        }
        let (weight, bias) = B::backward_weights(grad, x, spec);
        if let Some(node) = of_weight {
            grads.register::<B>(node.id, weight);
        }
        if let (Some(node), Some(bias)) = (of_bias, bias) {
            grads.register::<B>(node.id, bias);
        }
    }
}

impl<B: LinearKernels + LinearBackend, C: CheckpointStrategy> LinearBackend for Autodiff<B, C> {
    fn linear_map(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        spec: LinearSpec,
    ) -> FloatTensor<Self> {
        let nodes = [&x, &weight, &bias].map(|t| t.node());
        let prep = LinearBackward.prepare::<C>(nodes).compute_bound().stateful();
        let [x, weight, bias] = [x, weight, bias].map(|t| t.into_primitive());
        let weight = B::prepared(weight, spec);
        let y = B::forward(x.clone(), weight.clone(), bias, spec);
        match prep {
            OpsKind::Tracked(prep) => prep.finish(([x, weight], spec), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}
