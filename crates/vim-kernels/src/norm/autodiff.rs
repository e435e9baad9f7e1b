//! The differentiable operation, with two outputs.
//!
//! A node of Burn's autodiff has one output, and a backward pass that took the gradients of the two
//! results one after the other would pass over memory once more to add them. So there are three
//! nodes: one for the operation, and one above it for each result. The nodes of the results only
//! store the gradient that reaches them. Burn runs a node after all nodes that depend on it, so the
//! operation's node finds both gradients, or the one that the loss depends on, and a single kernel
//! takes them. (An operation with one differentiable output is declared with
//! [`crate::op::fused_op`].)

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, ExtensionType, Flex, TensorMetadata, backend_extension,
    tensor::FloatTensor,
};
use burn::tensor::{DType, FloatDType};

use super::NormSpec;

/// The results, both `[.., D]`.
#[derive(ExtensionType)]
pub(crate) struct NormPrimitives<B: Backend> {
    pub(crate) normed: FloatTensor<B>,
    pub(crate) sum: FloatTensor<B>,
}

/// Results of the adjoint: the gradients of x in its type, of the sum (and so of the residual) in
/// f32, and of the weight.
pub(crate) struct NormGrads<B: Backend> {
    pub(crate) x: FloatTensor<B>,
    pub(crate) sum: FloatTensor<B>,
    pub(crate) weight: FloatTensor<B>,
}

/// Backends with a fused addition and norm.
pub(crate) trait NormKernels: Backend {
    /// See [`super::add_rms_norm`].
    fn forward(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
    ) -> NormPrimitives<Self>;

    /// The gradients from that of `normed`, and that of `sum` if there is one; `dtype` is that of
    /// x.
    fn backward(
        grad_normed: FloatTensor<Self>,
        grad_sum: Option<FloatTensor<Self>>,
        sum: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
        dtype: DType,
    ) -> NormGrads<Self>;
}

/// The operation as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait NormBackend: Backend {
    /// See [`super::add_rms_norm`].
    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
    ) -> NormPrimitives<Self>;
}

impl NormBackend for Flex {
    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
    ) -> NormPrimitives<Self> {
        Self::forward(x, residual, weight, spec)
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl NormBackend for burn_cubecl::CubeBackend {
    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
    ) -> NormPrimitives<Self> {
        Self::forward(x, residual, weight, spec)
    }
}

/// The gradients that have reached the results.
#[derive(Debug)]
struct Arrived<B: Backend> {
    normed: Option<FloatTensor<B>>,
    sum: Option<FloatTensor<B>>,
}

/// Shared by the three nodes of a call.
type PendingGrads<B> = Arc<Mutex<Arrived<B>>>;

/// The node of the operation.
#[derive(Debug)]
struct NormBackward;

/// What the operation's node saves.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    sum: FloatTensor<B>,
    weight: FloatTensor<B>,
    spec: NormSpec,
    /// Type of x.
    dtype: DType,
    pending: PendingGrads<B>,
}

impl<B: NormKernels> Backward<B, 3> for NormBackward {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let Saved { sum, weight, spec, dtype, pending } = ops.state;
        let (normed, through) = {
            let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
            (pending.normed.take(), pending.sum.take())
        };
        let NormGrads { x, sum, weight } = match (normed, through) {
            (Some(normed), through) => B::backward(normed, through, sum, weight, spec, dtype),
            (None, Some(through)) => NormGrads {
                x: if dtype == DType::F32 {
                    through.clone()
                } else {
                    B::float_cast(through.clone(), dtype.into())
                },
                sum: through,
                weight: B::float_zeros(weight.shape(), &weight.device(), FloatDType::F32),
            },
            (None, None) => return,
        };
        let [of_x, of_residual, of_weight] = ops.parents;
        for (parent, grad) in [(of_x, x), (of_residual, sum), (of_weight, weight)] {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// The node of a result.
#[derive(Debug)]
enum ResultBackward {
    Normed,
    Sum,
}

impl<B: Backend> Backward<B, 1> for ResultBackward {
    type State = PendingGrads<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let mut pending = ops.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            Self::Normed => pending.normed = Some(grad),
            Self::Sum => pending.sum = Some(grad),
        }
    }
}

impl<B: NormKernels + NormBackend, C: CheckpointStrategy> NormBackend for Autodiff<B, C> {
    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        spec: NormSpec,
    ) -> NormPrimitives<Self> {
        let nodes = [&x, &residual, &weight].map(|t| t.node());
        let prep = NormBackward.prepare::<C>(nodes).compute_bound().stateful();
        let dtype = x.dtype();
        let [x, residual, weight] = [x, residual, weight].map(|t| t.into_primitive());
        let NormPrimitives { normed, sum } = B::forward(x, residual, weight.clone(), spec);
        let prep = match prep {
            OpsKind::Tracked(prep) => prep,
            OpsKind::UnTracked(prep) => {
                return NormPrimitives { normed: Self::from_inner(normed), sum: prep.finish(sum) };
            }
        };
        let pending = Arc::new(Mutex::new(Arrived { normed: None, sum: None }));
        let saved = Saved { sum: sum.clone(), weight, spec, dtype, pending: pending.clone() };
        // Nobody reads this output: it is the operation's node below the results.
        let operation = prep.finish(saved, sum.clone());
        let result =
            |backward: ResultBackward, of: FloatTensor<B>| match Backward::<B, 1>::prepare::<C>(
                backward,
                [operation.node()],
            )
            .compute_bound()
            .stateful()
            {
                OpsKind::Tracked(prep) => prep.finish(pending.clone(), of),
                OpsKind::UnTracked(prep) => prep.finish(of),
            };
        NormPrimitives {
            normed: result(ResultBackward::Normed, normed),
            sum: result(ResultBackward::Sum, sum),
        }
    }
}
