#![doc = include_str!("../README.md")]

pub mod checkpoint;
mod error;
mod exit_record;
mod files;
mod folder;
mod host;
mod lock;
mod log;
pub mod metrics;
pub mod signals;
pub mod storage;

use std::time::SystemTime;

pub use error::RunError;
pub use exit_record::{ExitReason, ExitRecord, write_exit_in};
pub use files::{
    CONFIG, ENVIRONMENT, EXIT, INIT, LOG, MAX_DEPTH, METRICS, TIMING, checkpoints_in, write_file,
};
pub use folder::{Found, Opened, Resume, RunDir, finished, move_aside};
pub use host::{host_name, slurm_job};
pub use lock::{Holder, LOCK, Lock, LockError, is_held};
pub use log::Log;

/// `time` as RFC 3339 in UTC to the second, such as `2026-01-31T08:15:00Z`.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
