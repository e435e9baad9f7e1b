//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod agreement;
mod cost;
mod counted;
mod drop_path;
mod features;
mod full_a;
mod golden;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod graph;
mod head_rows;
mod import;
mod infer;
mod init;
mod layers;
mod naive;
mod parameters;
mod patch_embed;
mod pos_embed;
mod record;
mod shapes;
mod state;
mod support;
mod taps;
mod training;
mod variants;
