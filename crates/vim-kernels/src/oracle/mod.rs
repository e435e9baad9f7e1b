//! The operations in f64, as plain loops over plain vectors: what every implementation is held against.
//!
//! Slow and obvious on purpose: all states are kept, nothing is fused, there is no tensor. Its own
//! gradients are checked by finite differences.

mod conv;
mod full_scan;
mod images;
mod norm;
mod number;
mod scan;

pub use conv::{OracleConv, OracleConvGrads};
pub use full_scan::OracleFullScan;
pub use images::image_batch;
pub use norm::{OracleNorm, OracleNormGrads};
pub use number::Number;
pub use scan::{OracleScan, OracleScanGrads};

/// ln(1 + eˣ), without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// 1/(1 + e⁻ˣ).
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x·sigmoid(x).
fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The derivative of [`silu`].
fn silu_slope(x: f64) -> f64 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}
