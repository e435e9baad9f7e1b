//! The shards of a batch that a rank computes together, and sums over all of them.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use vim_comm::{Comm, CommError, TreeSum};

/// Sums over the shards of a micro-batch: those of this rank, and those of all ranks. A clone is a
/// further handle.
///
/// Numbers are added in the order of [`TreeSum`], so that a run of one number of shards has the
/// same bytes on any number of ranks that [`vim_comm::same_order`] allows. Every rank has as many
/// shards, and makes the same calls in the same order.
#[derive(Clone, Debug)]
pub struct ShardSum {
    comm: Comm,
    local: usize,
    /// Of a sum in a backward pass, which cannot return it.
    fault: Arc<Mutex<Option<CommError>>>,
}

impl ShardSum {
    /// Sums over `local` shards of each rank of `comm`.
    #[must_use]
    pub fn new(comm: Comm, local: usize) -> Self {
        Self { comm, local, fault: Arc::default() }
    }

    /// The one shard of a run with one rank.
    #[must_use]
    pub fn single() -> Self {
        Self::new(Comm::single(), 1)
    }

    /// Shards of this rank.
    #[must_use]
    pub fn local(&self) -> usize {
        self.local
    }

    /// Shards of all ranks.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.local * self.comm.size()
    }

    /// What went wrong in a sum since the last call; a backward pass goes on without it. Every
    /// further sum over the ranks fails too.
    ///
    /// # Errors
    ///
    /// As [`Comm::sum`].
    pub fn check(&self) -> Result<(), CommError> {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        fault.map_or(Ok(()), Err)
    }

    /// For each of this rank's shards the sum of all shards' numbers.
    ///
    /// Differentiable: the gradient of a row is the sum of the gradients that reach any shard's
    /// result.
    ///
    /// # Shapes
    ///
    /// - `rows`: of each of this rank's shards `[1, C]`
    /// - results: likewise
    ///
    /// # Errors
    ///
    /// As [`Comm::sum`].
    pub(crate) fn sum(&self, rows: Vec<Tensor<2>>) -> Result<Vec<Tensor<2>>, CommError> {
        if self.shards() == 1 {
            return Ok(rows);
        }
        let count = rows.len();
        let rows = Tensor::cat(rows, 0).into_dispatch();
        let totals = Tensor::<2>::from_dispatch(Dispatch::shard_sum(rows, self.clone()));
        self.check()?;
        Ok((0..count).map(|shard| totals.clone().narrow(0, shard, 1)).collect())
    }

    /// The total of `rows`, `[S, C]`, of all ranks, as often as there are rows. They are without
    /// autodiff.
    fn total(&self, rows: Tensor<2>) -> Tensor<2> {
        let [count, width] = rows.dims();
        let mut sums = TreeSum::new();
        for row in 0..count {
            sums.push(rows.clone().narrow(0, row, 1), |left, right| left + right);
        }
        let Some(own) = sums.finish(|left, right| left + right) else { return rows };
        let total = self.comm.sum(own.clone().reshape([width])).unwrap_or_else(|error| {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            own.reshape([width])
        });
        total.reshape([1, width]).repeat_dim(0, count)
    }
}

/// The operation as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
trait DenseBackend: Backend {
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

/// Copies of `model` for the shards of a rank: with its values, its parameters' identities and its
/// running statistics, but every parameter a leaf of its own, so that one backward pass gives each
/// shard's gradients.
#[must_use]
pub fn replicas<M: Module>(model: &M, count: usize) -> Vec<M> {
    (0..count).map(|_| model.clone().map(&mut Leaves)).collect()
}

struct Leaves;

impl ModuleMapper for Leaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.val().is_require_grad() {
            return param;
        }
        param.map(|value| Tensor::from_inner(value.inner()).require_grad())
    }
}
