//! Integration tests, one binary.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also from its helpers")]

mod augment;
mod cifar;
mod cifar_damage;
mod config;
mod decode;
mod fixture;
mod folders;
mod golden;
mod index;
mod inspect;
mod loader;
mod loader_faults;
mod ops;
mod pack;
mod picture;
mod resize;
mod shapes;
mod softmax;
mod splits;
mod staging;
mod tars;
mod trees;
