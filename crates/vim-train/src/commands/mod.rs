//! One module for each command.

pub mod bench;
pub mod completions;
pub mod config;
pub mod data;
pub mod doctor;
pub mod eval;
pub mod eval_golden;
pub mod export;
pub mod flops;
pub mod import;
mod job_request;
pub mod methods;
pub mod models;
pub mod predict;
pub mod profile;
pub mod runs;
pub mod slurm;
pub mod sweep;
pub mod train;
pub mod verify;
