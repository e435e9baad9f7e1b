//! The binary on arrays of the original programs, and on files that are not what they should be.

mod check;
mod classifier;
mod dense;
mod support;
