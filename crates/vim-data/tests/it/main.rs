//! Integration tests, one binary.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also from its helpers")]

mod cifar;
mod cifar_damage;
mod config;
mod decode;
mod fixture;
mod golden;
mod loader;
mod loader_faults;
mod loader_files;
mod ops;
mod picture;
mod resize;
mod shapes;
mod softmax;
mod splits;
