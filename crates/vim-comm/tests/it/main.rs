//! Integration tests, one binary.

#![expect(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

mod host;
mod rendezvous;
mod support;
