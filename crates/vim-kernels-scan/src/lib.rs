//! The recurrences of [`vim-kernels`](https://docs.rs/vim-kernels): the selective scan and its
//! discretizations, the scan with a full A, and the norms.
//!
//! Use `vim-kernels`, which has them and the other operations.

mod complex;
mod discretization;
mod full_scan;
mod layer_norm;
mod norm;
mod scan;

pub use complex::{Complex, Trig};
pub use discretization::{
    Coefficients, Decay, Discretization, Form, Gain, LEAST_RATE, Linearized, Series, UnknownMethod,
    discretize, linearize,
};
pub use full_scan::{FullScanOptions, MAX_FULL_STATES, full_scan};
pub use layer_norm::layer_norm;
pub use norm::{ImageFactors, add_rms_norm, add_scaled_rms_norm};
pub use scan::raw;
pub use scan::{
    POLYNOMIAL_LIMIT, ScanA, ScanBC, ScanOptions, ScanOutput, has_bidirectional_scan,
    largest_argument, largest_polynomial_argument, selective_scan, selective_scan_bidirectional,
};

/// The operations in f64, as plain loops over plain vectors.
pub mod oracle {
    pub use crate::full_scan::oracle::OracleFullScan;
    pub use crate::layer_norm::oracle::{OracleLayerNorm, OracleLayerNormGrads};
    pub use crate::norm::oracle::{OracleNorm, OracleNormGrads};
    pub use crate::scan::oracle::{Number, OracleScan, OracleScanGrads};
}

/// What the fused mixer of `vim-kernels` runs.
#[doc(hidden)]
pub mod for_mixer {
    pub use crate::scan::shapes::ScanShapes;
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub use crate::scan::{Partial, ScanPasses, Wanted, gated_sum, scan_passes, scan_results};
    pub use crate::scan::{ScanArguments, ScanSpec};

    /// On a CPU.
    pub mod native {
        pub use crate::scan::native::{
            ScanForward, ScanGrads, ScanInputs, Sizes, backward, forward,
        };
    }
}
