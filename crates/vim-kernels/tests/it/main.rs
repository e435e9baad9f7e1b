//! Integration tests, one binary. A new discretization's row goes to `discretization.rs`.

mod causal_conv1d;
mod choice;
mod discretization;
mod golden;
mod oracle;
mod selective_scan;
mod support;
