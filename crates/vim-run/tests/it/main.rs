//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

mod checkpoint;
mod faults;
mod helpers;
mod lock;
mod metrics;
mod saver;
mod storage;
