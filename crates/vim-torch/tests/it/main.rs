//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

mod forge;
mod hostile;
mod mutations;
mod pytorch;
mod round_trip;
mod wrappers;
