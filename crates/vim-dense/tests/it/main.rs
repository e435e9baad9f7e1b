//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod config;
mod detection;
mod given_boxes;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod gpu;
mod head_rows;
mod naive;
mod network;
mod ranks;
mod sizes;
mod slide;
mod support;
mod weights;
