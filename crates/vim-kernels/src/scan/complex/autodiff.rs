//! The complex scan as a differentiable operation of Burn, on CubeCL devices.

use crate::op::{fused_op, tensors};
use crate::scan::ScanSpec;

tensors! {
    /// The arguments of a scan on a backend, shapes as in [`super::ComplexInputs`].
    ComplexScanArguments, 11: { u, delta, a_re, a_im, b_re, b_im, c_re, c_im, d, z, delta_bias }
}

tensors! {
    /// What a scan returns: `y [B, L, D]` and the parts of the last state, `[B, D, N]`.
    ComplexScanOutputs, 3: { y, last_re, last_im }
}

fused_op! {
    Cube:
    ComplexScanBackend::complex_scan(ScanSpec, ComplexScanArguments, 11)
        -> ComplexScanOutputs { y, last_re, last_im }
}
