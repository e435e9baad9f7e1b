//! The convolutions as differentiable operations of Burn.

use super::{BidirectionalConvSpec, ConvSpec};
use crate::op::{Single, fused_op, tensors};

tensors! {
    /// The arguments of a convolution on a backend, shapes as in [`super::causal_conv1d`].
    ConvArguments, 3: { x, weight, bias }
}

fused_op! {
    Flex and Cube:
    ConvBackend::causal_conv1d(ConvSpec, ConvArguments, 3) -> Single { y }
}

tensors! {
    /// The arguments of both directions, shapes as in [`super::causal_conv1d_bidirectional`].
    BidirectionalConvArguments, 5: { x, weight_fwd, bias_fwd, weight_rev, bias_rev }
}

fused_op! {
    Flex and Cube:
    BidirectionalConvBackend::causal_conv1d_bidirectional(
        BidirectionalConvSpec, BidirectionalConvArguments, 5) -> Single { y }
}
