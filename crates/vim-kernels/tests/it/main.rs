//! Integration tests, one binary. A new discretization's row goes to `discretization.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod batch_norm;
mod bidirectional;
mod complex_scan;
mod conv;
mod conv3x3;
mod discretization;
mod dispatch;
mod full_scan;
mod golden;
mod graph;
mod image_batch;
mod layer_norm;
mod linear;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod multi_tensor;
mod norm;
mod resize;
mod roi_align;
mod rotate_pairs;
mod scan;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod scan_gpu;
mod sum;
mod support;
