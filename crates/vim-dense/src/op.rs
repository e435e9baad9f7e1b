//! A differentiable operation that Burn has not: a sum over shards and ranks.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Flex, backend_extension};
use burn::tensor::Tensor;

use crate::shards::ShardSum;

/// The operation as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait DenseBackend: Backend {
    /// Rows, `[S, C]`, of which each is the total over all rows of all ranks. It is its own
    /// adjoint.
    fn shard_sum(rows: FloatTensor<Self>, over: ShardSum) -> FloatTensor<Self>;
}

/// What it does on a backend without autodiff.
macro_rules! on_backend {
    ($backend:ty) => {
        impl DenseBackend for $backend {
            fn shard_sum(rows: FloatTensor<Self>, over: ShardSum) -> FloatTensor<Self> {
                over.total(Tensor::<2>::from_primitive::<Self>(rows))
                    .try_into_primitive::<Self>()
                    .unwrap_or_else(|_| unreachable!("a sum stays on its backend"))
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
