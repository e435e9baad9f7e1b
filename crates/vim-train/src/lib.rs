//! Train, evaluate and compare Vision Mamba under six discretizations.
//!
//! A configuration ([`config`]) describes a run; a run has a folder ([`run_dir`]) with checkpoints
//! ([`checkpoint`]) and metrics ([`metrics`]); whatever goes wrong is an [`Error`] with an exit code.

pub mod batches;
pub mod checkpoint;
pub mod cli;
pub mod comm;
pub mod config;
pub mod data;
pub mod device;
mod error;
pub mod eval;
pub mod eval_golden;
pub mod export;
pub mod fatal;
pub mod fault;
pub mod flops;
pub mod import;
pub mod interval;
pub mod loaders;
pub mod lock;
pub mod log;
pub mod loss;
mod manifest;
pub mod methods;
pub mod metrics;
pub mod models;
pub mod optim;
pub mod output;
pub mod predict;
pub mod profile;
pub mod progress;
mod retention;
pub mod run_dir;
pub mod run_env;
pub mod saver;
pub mod schedule;
pub mod show_config;
pub mod signals;
pub mod source;
pub mod state;
pub mod storage;
pub mod summary;
pub mod timestamp;
pub mod train;
pub mod verify;
pub mod weights;

pub use error::Error;
