//! What recorded answers of SLURM mean, and what a cluster at hand does.

mod cluster;
mod recorded;
