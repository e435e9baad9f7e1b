//! Two differentiable operations that Burn has not: a sum over shards and ranks, and a result whose
//! gradient is known before the backward pass.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Shape, Tensor};

use crate::shards::ShardSum;

/// The operations as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait DenseBackend: Backend {
    /// Rows, `[S, C]`, of which each is the total over all rows of all ranks. It is its own
    /// adjoint.
    fn shard_sum(rows: FloatTensor<Self>, over: ShardSum) -> FloatTensor<Self>;

    /// `value`, `[1]`, as a function of `x` whose gradient is `slope`, shaped as `x`.
    fn with_slope(
        x: FloatTensor<Self>,
        value: FloatTensor<Self>,
        slope: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

/// What the operations do on a backend without autodiff.
macro_rules! on_backend {
    ($backend:ty) => {
        impl DenseBackend for $backend {
            fn shard_sum(rows: FloatTensor<Self>, over: ShardSum) -> FloatTensor<Self> {
                over.total(Tensor::<2>::from_primitive::<Self>(rows))
                    .try_into_primitive::<Self>()
                    .unwrap_or_else(|_| unreachable!("a sum stays on its backend"))
            }

            fn with_slope(
                _x: FloatTensor<Self>,
                value: FloatTensor<Self>,
                _slope: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                value
            }
        }
    };
}

on_backend!(Flex);
#[cfg(any(feature = "cuda", feature = "wgpu"))]
on_backend!(burn_cubecl::CubeBackend);

impl<B: DenseBackend, C: CheckpointStrategy> DenseBackend for Autodiff<B, C> {
    fn shard_sum(rows: FloatTensor<Self>, over: ShardSum) -> FloatTensor<Self> {
        let node = SumNode(over.clone());
        let prep = Backward::<B, 1>::prepare::<C>(node, [rows.node()]).compute_bound().stateful();
        let total = B::shard_sum(rows.into_primitive(), over);
        match prep {
            OpsKind::Tracked(prep) => prep.finish((), total),
            OpsKind::UnTracked(prep) => prep.finish(total),
        }
    }

    fn with_slope(
        x: FloatTensor<Self>,
        value: FloatTensor<Self>,
        slope: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let prep = Backward::<B, 1>::prepare::<C>(SlopeNode, [x.node()]).compute_bound().stateful();
        let value = value.into_primitive();
        match prep {
            OpsKind::Tracked(prep) => prep.finish(slope.into_primitive(), value),
            OpsKind::UnTracked(prep) => prep.finish(value),
        }
    }
}

#[derive(Debug)]
struct SumNode(ShardSum);

impl<B: DenseBackend> Backward<B, 1> for SumNode {
    type State = ();

    fn backward(self, ops: Ops<(), 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [parent] = ops.parents;
        // Without a parent, too: other ranks wait for this one's part.
        let grad = B::shard_sum(grad, self.0);
        if let Some(node) = parent {
            grads.register::<B>(node.id, grad);
        }
    }
}

#[derive(Debug)]
struct SlopeNode;

impl<B: Backend> Backward<B, 1> for SlopeNode {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [parent] = ops.parents;
        if let Some(node) = parent {
            let shape = ops.state.shape();
            let by = B::float_reshape(grad, Shape::from(vec![1; shape.num_dims()]));
            let by = B::float_expand(by, shape);
            grads.register::<B>(node.id, B::float_mul(ops.state, by));
        }
    }
}
