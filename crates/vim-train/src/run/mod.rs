//! The folder of a run: lock, checkpoints, metrics, events, log, exit record.

pub mod checkpoint;
pub mod lock;
pub mod log;
pub mod metrics;
pub mod run_dir;
pub mod run_env;
pub mod saver;
pub mod signals;
pub mod storage;
pub mod timestamp;
