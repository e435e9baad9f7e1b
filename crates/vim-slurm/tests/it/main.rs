//! What recorded answers of SLURM mean, and what a cluster at hand does.

#![expect(clippy::unwrap_used, reason = "these are tests")]

mod cluster;
mod recorded;
