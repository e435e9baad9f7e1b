//! The machine and the job that this process runs in.

use std::env;

/// The machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The SLURM job that this process belongs to.
pub fn slurm_job() -> Option<String> {
    env::var("SLURM_JOB_ID").ok()
}
