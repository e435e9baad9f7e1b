//! The operation as a differentiable one of Burn.

#![expect(clippy::too_many_arguments, reason = "the operation has these inputs")]

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, backend_extension, tensor::FloatTensor};
use burn_cubecl::CubeBackend;

use super::MixerSpec;

/// `xz`, then conv weight, conv bias, x_proj, dt_proj, delta bias, a_log and d of each direction.
pub(super) type Inputs<B> = [FloatTensor<B>; INPUTS];

/// How many they are.
pub(super) const INPUTS: usize = 1 + 2 * WEIGHTS;
/// Weights of a direction.
pub(super) const WEIGHTS: usize = 7;

/// What is kept for the way back: what the convolutions project to, the weights as the kernels take them, and the states that
/// chunks begin with.
#[derive(Clone, Debug)]
pub(super) struct Saved<B: Backend> {
    pub(super) projected: FloatTensor<B>,
    pub(super) weights: [FloatTensor<B>; 4],
    /// Absent where they are computed again.
    pub(super) chunk_states: Option<FloatTensor<B>>,
}

/// Backends with kernels for all parts.
pub(super) trait MixerKernels: Backend {
    /// See [`super::mixer_inner`]; with `save`, what [`backward`](Self::backward) needs.
    fn forward(
        inputs: &Inputs<Self>,
        spec: MixerSpec,
        save: bool,
    ) -> (FloatTensor<Self>, Option<Saved<Self>>);

    /// The gradients of the inputs.
    fn backward(
        grad: FloatTensor<Self>,
        inputs: Inputs<Self>,
        saved: Saved<Self>,
        spec: MixerSpec,
    ) -> Inputs<Self>;
}

/// The operation as dispatched.
#[backend_extension(Cube, Autodiff)]
pub(super) trait MixerBackend: Backend {
    /// See [`super::mixer_inner`].
    fn mixer_inner(
        xz: FloatTensor<Self>,
        conv_weight_ahead: FloatTensor<Self>,
        conv_bias_ahead: FloatTensor<Self>,
        x_proj_ahead: FloatTensor<Self>,
        dt_proj_ahead: FloatTensor<Self>,
        delta_bias_ahead: FloatTensor<Self>,
        a_log_ahead: FloatTensor<Self>,
        d_ahead: FloatTensor<Self>,
        conv_weight_back: FloatTensor<Self>,
        conv_bias_back: FloatTensor<Self>,
        x_proj_back: FloatTensor<Self>,
        dt_proj_back: FloatTensor<Self>,
        delta_bias_back: FloatTensor<Self>,
        a_log_back: FloatTensor<Self>,
        d_back: FloatTensor<Self>,
        spec: MixerSpec,
    ) -> FloatTensor<Self>;
}

impl MixerBackend for CubeBackend {
    fn mixer_inner(
        xz: FloatTensor<Self>,
        conv_weight_ahead: FloatTensor<Self>,
        conv_bias_ahead: FloatTensor<Self>,
        x_proj_ahead: FloatTensor<Self>,
        dt_proj_ahead: FloatTensor<Self>,
        delta_bias_ahead: FloatTensor<Self>,
        a_log_ahead: FloatTensor<Self>,
        d_ahead: FloatTensor<Self>,
        conv_weight_back: FloatTensor<Self>,
        conv_bias_back: FloatTensor<Self>,
        x_proj_back: FloatTensor<Self>,
        dt_proj_back: FloatTensor<Self>,
        delta_bias_back: FloatTensor<Self>,
        a_log_back: FloatTensor<Self>,
        d_back: FloatTensor<Self>,
        spec: MixerSpec,
    ) -> FloatTensor<Self> {
        let inputs = [
            xz,
            conv_weight_ahead,
            conv_bias_ahead,
            x_proj_ahead,
            dt_proj_ahead,
            delta_bias_ahead,
            a_log_ahead,
            d_ahead,
            conv_weight_back,
            conv_bias_back,
            x_proj_back,
            dt_proj_back,
            delta_bias_back,
            a_log_back,
            d_back,
        ];
        Self::forward(&inputs, spec, false).0
    }
}

#[derive(Debug)]
struct MixerBackward;

impl<B: MixerKernels> Backward<B, INPUTS> for MixerBackward {
    type State = (Inputs<B>, Saved<B>, MixerSpec);

    fn backward(
        self,
        ops: Ops<Self::State, INPUTS>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (inputs, saved, spec) = ops.state;
        let inputs = B::backward(grad, inputs, saved, spec);
        for (parent, grad) in ops.parents.into_iter().zip(inputs) {
            if let Some(node) = parent {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

impl<B: MixerKernels + MixerBackend, C: CheckpointStrategy> MixerBackend for Autodiff<B, C> {
    fn mixer_inner(
        xz: FloatTensor<Self>,
        conv_weight_ahead: FloatTensor<Self>,
        conv_bias_ahead: FloatTensor<Self>,
        x_proj_ahead: FloatTensor<Self>,
        dt_proj_ahead: FloatTensor<Self>,
        delta_bias_ahead: FloatTensor<Self>,
        a_log_ahead: FloatTensor<Self>,
        d_ahead: FloatTensor<Self>,
        conv_weight_back: FloatTensor<Self>,
        conv_bias_back: FloatTensor<Self>,
        x_proj_back: FloatTensor<Self>,
        dt_proj_back: FloatTensor<Self>,
        delta_bias_back: FloatTensor<Self>,
        a_log_back: FloatTensor<Self>,
        d_back: FloatTensor<Self>,
        spec: MixerSpec,
    ) -> FloatTensor<Self> {
        let inputs = [
            xz,
            conv_weight_ahead,
            conv_bias_ahead,
            x_proj_ahead,
            dt_proj_ahead,
            delta_bias_ahead,
            a_log_ahead,
            d_ahead,
            conv_weight_back,
            conv_bias_back,
            x_proj_back,
            dt_proj_back,
            delta_bias_back,
            a_log_back,
            d_back,
        ];
        let nodes = inputs.each_ref().map(|t| t.node());
        let prep = MixerBackward.prepare::<C>(nodes).compute_bound().stateful();
        let inputs = inputs.map(|t| t.into_primitive());
        match prep {
            OpsKind::Tracked(prep) => {
                let (y, saved) = B::forward(&inputs, spec, true);
                let saved =
                    saved.expect("invariant: a forward pass that saves returns what it saved");
                prep.finish((inputs, saved, spec), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::forward(&inputs, spec, false).0),
        }
    }
}
