//! The binary on arrays of the original programs, and on files that are not what they should be.

#![expect(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

mod check;
mod classifier;
mod dense;
mod support;
