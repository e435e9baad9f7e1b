//! The complex scan as a differentiable operation: the CubeCL kernels, and the autodiff node.

#![expect(clippy::too_many_arguments, reason = "the operation has these inputs")]

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, Dispatch, ExtensionType, backend_extension,
    tensor::FloatTensor,
};
use burn::tensor::Tensor;
use burn_cubecl::CubeBackend;

use super::ComplexInputs;
use crate::scan::{ScanOutput, ScanSpec};

/// What a scan gives: `y [B, L, D]` and the parts of the last state, `[B, D, N]`.
#[derive(ExtensionType)]
pub(crate) struct ComplexScanPrimitives<B: Backend> {
    pub(crate) y: FloatTensor<B>,
    pub(crate) last_re: FloatTensor<B>,
    pub(crate) last_im: FloatTensor<B>,
}

/// The arguments of a scan on a backend, shapes as in [`super::ComplexInputs`].
#[derive(Clone, Debug)]
pub(crate) struct ComplexScanArguments<B: Backend> {
    pub(crate) u: FloatTensor<B>,
    pub(crate) delta: FloatTensor<B>,
    pub(crate) a_re: FloatTensor<B>,
    pub(crate) a_im: FloatTensor<B>,
    pub(crate) b_re: FloatTensor<B>,
    pub(crate) b_im: FloatTensor<B>,
    pub(crate) c_re: FloatTensor<B>,
    pub(crate) c_im: FloatTensor<B>,
    pub(crate) d: FloatTensor<B>,
    pub(crate) z: FloatTensor<B>,
    pub(crate) delta_bias: FloatTensor<B>,
}

/// Backends with a fused complex scan.
pub(crate) trait ComplexScanKernels: Backend {
    /// The scan; with `save`, also what [`backward`](Self::backward) needs beside the arguments.
    fn forward(
        arguments: ComplexScanArguments<Self>,
        spec: ScanSpec,
        save: bool,
    ) -> (ComplexScanPrimitives<Self>, Option<FloatTensor<Self>>);

    /// The gradients of the arguments, in their order, shaped as they are.
    fn backward(
        grad_y: FloatTensor<Self>,
        arguments: ComplexScanArguments<Self>,
        saved: FloatTensor<Self>,
        spec: ScanSpec,
    ) -> [FloatTensor<Self>; 11];
}

/// The complex scan as dispatched: on a backend, or on autodiff over one.
#[backend_extension(Cube, Autodiff)]
pub(crate) trait ComplexScanBackend: Backend {
    /// See [`super`].
    fn complex_scan(
        u: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        a_re: FloatTensor<Self>,
        a_im: FloatTensor<Self>,
        b_re: FloatTensor<Self>,
        b_im: FloatTensor<Self>,
        c_re: FloatTensor<Self>,
        c_im: FloatTensor<Self>,
        d: FloatTensor<Self>,
        z: FloatTensor<Self>,
        delta_bias: FloatTensor<Self>,
        spec: ScanSpec,
    ) -> ComplexScanPrimitives<Self>;
}

/// The kernel's scan of a checked call, on tensors.
pub(super) fn scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    parts: ComplexInputs,
    d: Tensor<1>,
    z: Tensor<3>,
    delta_bias: Tensor<1>,
    spec: ScanSpec,
) -> ScanOutput {
    let out = Dispatch::complex_scan(
        u.into_dispatch(),
        delta.into_dispatch(),
        parts.a.into_dispatch(),
        parts.imaginary.a.into_dispatch(),
        parts.b.into_dispatch(),
        parts.imaginary.b.into_dispatch(),
        parts.c.into_dispatch(),
        parts.imaginary.c.into_dispatch(),
        d.into_dispatch(),
        z.into_dispatch(),
        delta_bias.into_dispatch(),
        spec,
    );
    ScanOutput {
        y: Tensor::from_dispatch(out.y),
        last_state: Tensor::from_dispatch(out.last_re),
        last_state_im: Some(Tensor::from_dispatch(out.last_im)),
    }
}

impl ComplexScanBackend for CubeBackend {
    fn complex_scan(
        u: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        a_re: FloatTensor<Self>,
        a_im: FloatTensor<Self>,
        b_re: FloatTensor<Self>,
        b_im: FloatTensor<Self>,
        c_re: FloatTensor<Self>,
        c_im: FloatTensor<Self>,
        d: FloatTensor<Self>,
        z: FloatTensor<Self>,
        delta_bias: FloatTensor<Self>,
        spec: ScanSpec,
    ) -> ComplexScanPrimitives<Self> {
        let arguments =
            ComplexScanArguments { u, delta, a_re, a_im, b_re, b_im, c_re, c_im, d, z, delta_bias };
        Self::forward(arguments, spec, false).0
    }
}

#[derive(Debug)]
struct ComplexScanBackward;

impl<B: ComplexScanKernels> Backward<B, 11> for ComplexScanBackward {
    type State = (ComplexScanArguments<B>, FloatTensor<B>, ScanSpec);

    fn backward(
        self,
        ops: Ops<Self::State, 11>,
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

impl<B: ComplexScanKernels + ComplexScanBackend, C: CheckpointStrategy> ComplexScanBackend
    for Autodiff<B, C>
{
    fn complex_scan(
        u: FloatTensor<Self>,
        delta: FloatTensor<Self>,
        a_re: FloatTensor<Self>,
        a_im: FloatTensor<Self>,
        b_re: FloatTensor<Self>,
        b_im: FloatTensor<Self>,
        c_re: FloatTensor<Self>,
        c_im: FloatTensor<Self>,
        d: FloatTensor<Self>,
        z: FloatTensor<Self>,
        delta_bias: FloatTensor<Self>,
        spec: ScanSpec,
    ) -> ComplexScanPrimitives<Self> {
        let nodes = [&u, &delta, &a_re, &a_im, &b_re, &b_im, &c_re, &c_im, &d, &z, &delta_bias]
            .map(|t| t.node());
        let prep = ComplexScanBackward.prepare::<C>(nodes).compute_bound().stateful();
        let arguments = ComplexScanArguments::<B> {
            u: u.into_primitive(),
            delta: delta.into_primitive(),
            a_re: a_re.into_primitive(),
            a_im: a_im.into_primitive(),
            b_re: b_re.into_primitive(),
            b_im: b_im.into_primitive(),
            c_re: c_re.into_primitive(),
            c_im: c_im.into_primitive(),
            d: d.into_primitive(),
            z: z.into_primitive(),
            delta_bias: delta_bias.into_primitive(),
        };
        match prep {
            OpsKind::Tracked(prep) => {
                let (out, saved) = B::forward(arguments.clone(), spec, true);
                let saved =
                    saved.expect("invariant: a forward pass that saves returns what it saved");
                ComplexScanPrimitives {
                    last_re: Self::from_inner(out.last_re),
                    last_im: Self::from_inner(out.last_im),
                    y: prep.finish((arguments, saved, spec), out.y),
                }
            }
            OpsKind::UnTracked(prep) => {
                let (out, _) = B::forward(arguments, spec, false);
                ComplexScanPrimitives {
                    last_re: Self::from_inner(out.last_re),
                    last_im: Self::from_inner(out.last_im),
                    y: prep.finish(out.y),
                }
            }
        }
    }
}
