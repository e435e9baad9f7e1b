//! The scan with a full A as a differentiable operation of Burn; inputs and outputs as those of
//! [`crate::selective_scan()`].

use super::FullScanSpec;
use crate::op::fused_op;
use crate::scan::{ScanArguments, ScanOutputs};

fused_op! {
    Flex and Cube:
    FullScanBackend::full_scan(FullScanSpec, ScanArguments, 8) -> ScanOutputs { y, last_state }
}
