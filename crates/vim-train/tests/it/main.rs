//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

mod checkpoint;
mod commands;
mod config;
mod data;
mod data_train;
mod docs;
mod fatal;
mod faults;
mod golden;
mod helpers;
mod lock;
mod metrics;
mod models;
mod profile;
mod resume;
mod run_dir;
mod saver;
mod signals;
mod train;
mod verify;
mod weights;
