//! The inner mixer as a differentiable operation of Burn, on CubeCL devices.

use super::MixerSpec;
use crate::op::{Single, fused_op, tensors};

tensors! {
    /// `xz`, then the weights of both directions, shapes as in [`super::DirectionWeights`].
    MixerArguments, 15: {
        xz,
        conv_weight_fwd, conv_bias_fwd, x_proj_fwd, dt_proj_fwd, delta_bias_fwd, a_log_fwd, d_fwd,
        conv_weight_rev, conv_bias_rev, x_proj_rev, dt_proj_rev, delta_bias_rev, a_log_rev, d_rev,
    }
}

fused_op! {
    Cube:
    MixerBackend::mixer_inner(MixerSpec, MixerArguments, 15) -> Single { y }
}
