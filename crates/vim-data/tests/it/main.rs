//! Integration tests, one binary.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also from its helpers")]

mod augment;
mod check_golden;
mod chi2;
mod cifar;
mod cifar_damage;
mod config;
mod decode;
mod distributions;
mod draws;
mod fixture;
mod golden;
mod loader;
mod loader_faults;
mod mix;
mod noise;
mod ops;
mod order;
mod picture;
mod recipe;
mod resize;
mod shapes;
mod softmax;
mod splits;
