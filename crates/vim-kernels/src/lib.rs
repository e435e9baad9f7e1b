//! Differentiable operations of Vision Mamba for Burn: the selective scan and its discretizations,
//! the short convolution, the norm, the fused mixer, what training needs beside them, and the
//! operations of the heads of segmentation and detection.
//!
//! > `h[t] = a_bar·h[t-1] + b_bar·b[t]·u[t]`, `y[t] = c[t]·h[t] + d·u[t]`
//!
//! Each operation has a folder with its arguments and checks, a fused kernel for CPUs (`native`)
//! and one for GPUs (`cube`), a reference in tensor operations, and an [`oracle`] in f64 loops;
//! both implementations are tested against the oracle.
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use vim_kernels::{Discretization, ScanOptions, selective_scan};
//!
//! let device = Device::flex().autodiff();
//! let random = |shape| Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), &device);
//! let (u, delta) = (random([2, 64, 16]).require_grad(), random([2, 64, 16])); // [B, L, D]
//! let a = Tensor::<2>::ones([16, 8], &device).neg(); // [D, N]
//! let (b, c) = (random([2, 64, 8]), random([2, 64, 8])); // [B, L, N]
//! let options = ScanOptions {
//!     method: Discretization::Bilinear,
//!     delta_softplus: true,
//!     ..ScanOptions::default()
//! };
//! let y = selective_scan(u.clone(), delta, a, b, c, None, None, None, options)?.y;
//! let gradients = y.sum().backward();
//! assert_eq!(u.grad(&gradients).unwrap().dims(), [2, 64, 16]);
//! # Ok::<(), vim_kernels::KernelError>(())
//! ```
//!
//! Letters: `B` batch, `L` tokens, `D` channels (`d_inner`), `N` states per channel (`d_state`),
//! `G` groups of channels that share B and C, `W` taps.

mod batch_norm;
mod check;
mod complex;
mod conv;
mod conv3x3;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod discretization;
mod dispatch;
mod error;
mod full_scan;
mod graph;
mod image_batch;
mod matmul;
mod mixer_inner;
mod multi_tensor;
mod native;
mod norm;
mod op;
mod oracle_math;
mod precision;
mod real;
mod resize;
mod resize_nll;
mod roi_align;
mod rotate_pairs;
mod scan;

pub use batch_norm::{channel_sums, scale_shift};
pub use conv::{ConvOptions, causal_conv1d, causal_conv1d_bidirectional};
pub use conv3x3::conv3x3;
pub use norm::add_rms_norm;

pub use complex::{Complex, Trig};
pub use discretization::{
    Coefficients, Decay, Discretization, Form, Gain, Linearized, Series, UnknownMethod, discretize,
    linearize,
};
pub use dispatch::{
    Implementation, KERNEL_VARIABLE, KernelChoice, has_kernel, implementations_run,
};
pub use error::KernelError;
pub use full_scan::{FullScanOptions, MAX_FULL_STATES, full_scan};
pub use graph::Graph;
pub use image_batch::{EraseBox, EraseFill, ImageBatch, MixPlan, Region, image_batch};
pub use matmul::{halved_linear, linear};
pub use mixer_inner::{
    DirectionWeights, MixerWeights, PreparedMixers, has_fused_mixer, mixer_inner, prepare_mixers,
};
pub use multi_tensor::{
    AdamWHyper, FlatParams, ParamStep, moving_average, sum_of_squares, supports_multi_tensor,
};
pub use precision::Precision;
pub use real::Real;
pub use resize::axis::LONGEST_SIDE;
pub use resize::resize;
pub use resize_nll::{IGNORED_LABEL, ResizeNll, resize_nll};
pub use roi_align::{Roi, RoiSampling, roi_align, roi_axis};
pub use rotate_pairs::rotate_pairs;
pub use scan::{
    POLYNOMIAL_LIMIT, ScanA, ScanBC, ScanOptions, ScanOutput, has_bidirectional_scan,
    largest_polynomial_argument, selective_scan, selective_scan_bidirectional,
};

// What a caller needs beside this crate: the Burn of its tensors, whose version is pinned, and the
// trait by which an enum lists its values.
pub use burn;
pub use strum::VariantArray;

/// The operations in f64, as plain loops over plain vectors: what the implementations are tested
/// against.
///
/// Slow and obvious on purpose: all states are stored, nothing is fused, there is no tensor. Their
/// own gradients are checked by finite differences.
pub mod oracle {
    pub use crate::batch_norm::oracle::{OracleScaleShift, OracleScaleShiftGrads};
    pub use crate::conv::oracle::{OracleConv, OracleConvGrads};
    pub use crate::conv3x3::oracle::{OracleConv3x3, OracleConv3x3Grads};
    pub use crate::full_scan::oracle::OracleFullScan;
    pub use crate::image_batch::oracle::image_batch;
    pub use crate::norm::oracle::{OracleNorm, OracleNormGrads};
    pub use crate::oracle_math::Number;
    pub use crate::resize::oracle::OracleResize;
    pub use crate::resize_nll::oracle::{OracleResizeNll, OracleResizeNllResult};
    pub use crate::roi_align::oracle::OracleRoiAlign;
    pub use crate::rotate_pairs::oracle::OracleRotation;
    pub use crate::scan::oracle::{OracleScan, OracleScanGrads};
}
