//! Machine and job of this process.

use std::env;

/// The machine's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The SLURM job of this process.
pub fn slurm_job() -> Option<String> {
    env::var("SLURM_JOB_ID").ok()
}
