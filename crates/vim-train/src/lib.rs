//! Train, evaluate and compare Vision Mamba under six discretizations.
//!
//! A configuration ([`config`]) describes a run; a run has a folder ([`run::run_dir`]) with checkpoints
//! ([`run::checkpoint`]) and metrics ([`run::metrics`]); whatever goes wrong is an [`Error`] with an exit code.

pub mod cli;
pub mod comm;
pub mod commands;
pub mod config;
pub mod device;
mod error;
pub mod fatal;
pub mod output;
pub mod run;
pub mod task;
pub mod train;
pub mod weights;

pub use error::Error;
