#![doc = include_str!("../README.md")]

pub mod checkpoint;
mod error;
mod folder;
mod lock;
mod log;
pub mod metrics;
mod printable;
pub mod signals;
pub mod storage;

use std::env;
use std::time::SystemTime;

pub use error::{Displaced, RunError};
pub use folder::{
    CLASSES, CONFIG, ENVIRONMENT, EXIT, ExitReason, ExitRecord, Found, INIT, LOG, MAX_DEPTH,
    METRICS, Opened, PER_CLASS, PREDICTIONS, Resume, RunDir, TIMING, checkpoints_in, finished,
    move_aside, write_exit_in,
};
pub use lock::{Holder, LOCK, Lock, LockError, is_held};
pub use log::Log;
pub use printable::{printable, printable_lines};
pub use storage::write_file;

/// `time` as RFC 3339 in UTC to the second, such as `2026-01-31T08:15:00Z`.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The SLURM job of this process.
pub fn slurm_job() -> Option<String> {
    env::var("SLURM_JOB_ID").ok()
}
