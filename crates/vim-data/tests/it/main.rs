//! Integration tests, one binary.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also from its helpers")]

mod check_golden;
mod chi2;
mod cifar;
mod coco;
mod coco_files;
mod coco_tree;
mod config;
mod decode;
mod distributions;
mod draws;
mod fixture;
mod folders;
mod golden;
mod index;
mod inspect;
mod loader;
mod loader_faults;
mod loader_files;
mod memory;
mod mix;
mod objects;
mod ops;
mod order;
mod pack;
mod pairs;
mod picture;
mod recipe;
mod relabelled;
mod resize;
mod shapes;
mod softmax;
mod splits;
mod staging;
mod tars;
mod trees;
