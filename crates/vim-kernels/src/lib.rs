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

//!
//! The crate holds the fused mixer; the other operations come from `vim-kernels-scan` and
//! `vim-kernels-ops`, what these share from `vim-kernels-core`.

mod mixer_inner;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub use mixer_inner::RawMixer;
pub use mixer_inner::{
    DirectionWeights, MixerWeights, PreparedMixers, Recompute, has_fused_mixer, mixer_inner,
    prepare_mixers,
};
pub use vim_kernels_core::{
    Draws, Graph, Implementation, KERNEL_VARIABLE, KernelChoice, KernelError, Launches, Precision,
    Real, WarmUp, cuda_number, drawn, has_kernel, implementations_run, in_own_buffer,
    in_own_buffer_int, overwrite, overwrite_int, read_while, runs_cuda, sum_in_order,
};
pub use vim_kernels_ops::{
    AdamWHyper, ConvOptions, EraseBox, EraseFill, FlatParams, IGNORED_LABEL, ImageBatch,
    LONGEST_SIDE, MixPlan, ParamStep, Region, ResizeNll, Roi, RoiSampling, causal_conv1d,
    causal_conv1d_bidirectional, channel_sums, conv3x3, halved_linear, image_batch, linear,
    moving_average, resize, resize_nll, roi_align, roi_axis, rotate_pairs, scale_shift,
    sum_of_squares, supports_multi_tensor,
};
pub use vim_kernels_scan::{
    Coefficients, Complex, Decay, Discretization, Form, FullScanOptions, Gain, ImageFactors,
    LEAST_RATE, Linearized, MAX_FULL_STATES, POLYNOMIAL_LIMIT, ScanA, ScanBC, ScanOptions,
    ScanOutput, Series, Trig, UnknownMethod, add_rms_norm, add_scaled_rms_norm, discretize,
    full_scan, has_bidirectional_scan, largest_argument, largest_polynomial_argument, layer_norm,
    linearize, raw, selective_scan, selective_scan_bidirectional,
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
    pub use vim_kernels_ops::oracle::{
        OracleConv, OracleConv3x3, OracleConv3x3Grads, OracleConvGrads, OracleResize,
        OracleResizeNll, OracleResizeNllResult, OracleRoiAlign, OracleRotation, OracleScaleShift,
        OracleScaleShiftGrads, image_batch,
    };
    pub use vim_kernels_scan::oracle::{
        Number, OracleFullScan, OracleLayerNorm, OracleLayerNormGrads, OracleNorm, OracleNormGrads,
        OracleScan, OracleScanGrads,
    };
}
