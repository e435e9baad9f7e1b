//! Integration tests, one binary. A new discretization's row goes to `discretization.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod causal_conv1d;
mod choice;
mod discretization;
mod full_scan;
mod golden;
mod oracle;
mod selective_scan;
mod support;
