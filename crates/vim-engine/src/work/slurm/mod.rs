//! What commands know of jobs: what a run asks for, what was submitted, and why a job failed.

pub mod names;
pub mod request;
pub mod words;
