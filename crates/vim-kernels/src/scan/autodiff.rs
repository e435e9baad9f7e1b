//! The scan as a differentiable operation of Burn.

use super::ScanSpec;
use crate::op::{fused_op, tensors};

tensors! {
    /// The arguments of a scan on a backend, shapes as in [`super::selective_scan`].
    ScanArguments, 8: { u, delta, a, b, c, d, z, delta_bias }
}

tensors! {
    /// What a scan returns: `y [B, L, D]` and the last state `[B, D, N]`.
    ScanOutputs, 2: { y, last_state }
}

fused_op! {
    Flex and Cube:
    ScanBackend::selective_scan(ScanSpec, ScanArguments, 8) -> ScanOutputs { y, last_state }
}
