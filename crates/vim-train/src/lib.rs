//! Train, evaluate and compare Vision Mamba under six discretizations.
//!
//! A configuration ([`config`]) describes a run; a run has a folder ([`run_dir`]) with checkpoints
//! ([`checkpoint`]) and metrics ([`metrics`]); whatever goes wrong is an [`Error`] with an exit code.

pub mod batches;
pub mod bench;
pub mod checkpoint;
pub mod cli;
pub mod comm;
pub mod completions;
pub mod config;
pub mod config_command;
pub mod cuda_libraries;
pub mod data;
pub mod device;
pub mod device_memory;
pub mod disk_space;
pub mod doctor;
pub mod ema;
mod error;
pub mod eval;
pub mod eval_golden;
pub mod events;
pub mod export;
pub mod fatal;
pub mod fault;
pub mod flat;
pub mod flops;
pub mod import;
pub mod interval;
pub mod loaders;
pub mod lock;
pub mod log;
pub mod loss;
pub mod machine;
mod manifest;
pub mod memory;
pub mod methods;
pub mod metrics;
pub mod metrics_csv;
pub mod models;
pub mod multi_tensor;
pub mod optim;
pub mod output;
pub mod pass;
pub mod predict;
pub mod predictions;
pub mod profile;
pub mod progress;
mod record;
mod retention;
pub mod run_dir;
pub mod run_env;
pub mod runs;
pub mod saver;
pub mod schedule;
pub mod signals;
pub mod sinks;
pub mod source;
pub mod state;
pub mod storage;
pub mod summary;
pub mod timestamp;
pub mod train;
pub mod verify;
pub mod weights;

pub use error::Error;
