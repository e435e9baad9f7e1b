//! Integration tests, one binary. A new discretization's row goes to `discretization.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod add_rms_norm;
mod both;
mod causal_conv1d;
mod choice;
mod complex_scan;
mod devices;
mod discretization;
mod full_scan;
mod golden;
mod image_batch;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod many;
mod oracle;
mod selective_scan;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod selective_scan_gpu;
mod support;
