//! The selective scan and its discretizations, and the short convolution before it, for Burn.
//!
//! > `h[t] = a_bar·h[t-1] + b_bar·b[t]·u[t]`, `y[t] = c[t]·h[t] + d·u[t]`
//!
//! Three implementations with one meaning: a fused kernel, a reference in tensor operations, and
//! an [`oracle`] in f64 loops that both are held against.
//!
//! Letters: `B` batch, `L` tokens, `D` channels (`d_inner`), `N` states per channel (`d_state`),
//! `G` groups of channels that share B and C, `W` taps.

mod add_rms_norm;
mod causal_conv1d;
mod choice;
mod complex;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod discretization;
mod error;
mod flex;
mod full_scan;
mod given;
mod image_batch;
mod inner;
mod linear;
mod many;
mod native;
mod noise;
mod operations;
pub mod oracle;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod parts;
mod phi;
mod precision;
mod range;
mod real;
mod selective_scan;
mod term;

pub use add_rms_norm::add_rms_norm;
pub use causal_conv1d::{ConvOptions, causal_conv1d, causal_conv1d_both};

pub use choice::{Implementation, KERNEL_VARIABLE, ScanChoice, has_kernel, implementations_run};
pub use complex::{Complex, Trig};
pub use discretization::{
    Coefficients, Decay, Discretization, Form, Gain, Linearized, Series, discretize, linearize,
};
pub use error::KernelError;
pub use full_scan::{FullScanOptions, MAX_FULL_STATES, full_scan};
pub use image_batch::{Area, Erased, Fill, ImageBatch, Mixing, image_batch};
pub use inner::{InnerWeights, mixer_inner, mixes_at_once};
pub use linear::linear;
pub use many::{AdamWRate, AdamWRule, Packing, moving_average, sum_of_squares, takes_many};
pub use precision::Precision;
pub use range::{POLYNOMIAL_LIMIT, largest_polynomial_argument};
pub use real::Real;
pub use selective_scan::{
    Projection, Rate, ScanOptions, ScanOutput, scans_both_at_once, selective_scan,
    selective_scan_both,
};
