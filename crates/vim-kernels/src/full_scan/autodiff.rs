//! The scan with a full A as a differentiable operation of Burn: the backend's kernels, and the autodiff node.

#![expect(clippy::too_many_arguments, reason = "the operation has these inputs")]

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, ExtensionType, Flex, backend_extension, tensor::FloatTensor,
};

use super::FullScanSpec;

/// What a scan gives: `y [B, L, D]` and the last state `[B, D, N]`.
#[derive(ExtensionType)]
pub(crate) struct FullPrimitives<B: Backend> {
    pub(crate) y: FloatTensor<B>,
    pub(crate) last_state: FloatTensor<B>,
}

/// The arguments of a scan on a backend, shapes as in [`super::full_scan`].
#[derive(Clone, Debug)]
pub(crate) struct FullArguments<B: Backend> {
    pub(crate) u: FloatTensor<B>,
    pub(crate) delta: FloatTensor<B>,
    pub(crate) a: FloatTensor<B>,
    pub(crate) b: FloatTensor<B>,
    pub(crate) c: FloatTensor<B>,
    pub(crate) d: FloatTensor<B>,
    pub(crate) z: FloatTensor<B>,
    pub(crate) delta_bias: FloatTensor<B>,
}

/// Backends with kernels for it.
pub(crate) trait FullKernels: Backend {
    /// The scan; with `save`, also what [`backward`](Self::backward) needs beside the arguments.
    fn forward(
        arguments: FullArguments<Self>,
        spec: FullScanSpec,
        save: bool,
    ) -> (FullPrimitives<Self>, Option<FloatTensor<Self>>);

    /// The gradients of u, delta, a, b, c, d, z and the delta bias, in this order, shaped as they are.
    fn backward(
        grad_y: FloatTensor<Self>,
        arguments: FullArguments<Self>,
        saved: FloatTensor<Self>,
        spec: FullScanSpec,
    ) -> [FloatTensor<Self>; 8];
}

/// The scan as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Flex, Autodiff, Cube: cfg(any(feature = "cuda", feature = "wgpu")))]
pub(crate) trait FullScanBackend: Backend {
    /// See [`super::full_scan`].
    fn full_scan(
        u: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        z: FloatTensor<Self>,
        delta_bias: FloatTensor<Self>,
        spec: FullScanSpec,
    ) -> FullPrimitives<Self>;
}

/// Without autodiff: nothing is kept.
macro_rules! without_gradient {
    ($backend:ty) => {
        impl FullScanBackend for $backend {
            fn full_scan(
                u: FloatTensor<Self>,
                delta: FloatTensor<Self>,
                a: FloatTensor<Self>,
                b: FloatTensor<Self>,
                c: FloatTensor<Self>,
                d: FloatTensor<Self>,
                z: FloatTensor<Self>,
                delta_bias: FloatTensor<Self>,
                spec: FullScanSpec,
            ) -> FullPrimitives<Self> {
                let arguments = FullArguments { u, delta, a, b, c, d, z, delta_bias };
                Self::forward(arguments, spec, false).0
            }
        }
    };
}
without_gradient!(Flex);
#[cfg(any(feature = "cuda", feature = "wgpu"))]
without_gradient!(burn_cubecl::CubeBackend);

#[derive(Debug)]
struct FullScanBackward;

impl<B: FullKernels> Backward<B, 8> for FullScanBackward {
    type State = (FullArguments<B>, FloatTensor<B>, FullScanSpec);

    fn backward(
        self,
        ops: Ops<Self::State, 8>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad_y = grads.consume::<B>(&ops.node);
        let (arguments, saved, spec) = ops.state;
        let inputs = B::backward(grad_y, arguments, saved, spec);
        for (parent, grad) in ops.parents.into_iter().zip(inputs) {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

impl<B: FullKernels + FullScanBackend, C: CheckpointStrategy> FullScanBackend for Autodiff<B, C> {
    fn full_scan(
        u: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        z: FloatTensor<Self>,
        delta_bias: FloatTensor<Self>,
        spec: FullScanSpec,
    ) -> FullPrimitives<Self> {
        let nodes = [&u, &delta, &a, &b, &c, &d, &z, &delta_bias].map(|t| t.node());
        let prep = FullScanBackward.prepare::<C>(nodes).compute_bound().stateful();
        let arguments = FullArguments::<B> {
            u: u.into_primitive(),
            delta: delta.into_primitive(),
            a: a.into_primitive(),
            b: b.into_primitive(),
            c: c.into_primitive(),
            d: d.into_primitive(),
            z: z.into_primitive(),
            delta_bias: delta_bias.into_primitive(),
        };
        match prep {
            OpsKind::Tracked(prep) => {
                let (out, saved) = B::forward(arguments.clone(), spec, true);
                let saved =
                    saved.expect("invariant: a forward pass that saves returns what it saved");
                let last_state = Self::from_inner(out.last_state);
                FullPrimitives { y: prep.finish((arguments, saved, spec), out.y), last_state }
            }
            OpsKind::UnTracked(prep) => {
                let (out, _) = B::forward(arguments, spec, false);
                let last_state = Self::from_inner(out.last_state);
                FullPrimitives { y: prep.finish(out.y), last_state }
            }
        }
    }
}
