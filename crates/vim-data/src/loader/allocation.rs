//! The part of the machine that is allocated to this process.

use std::{env, thread};

/// Cores of this process, and the GPUs that share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuAllocation {
    /// Cores that may be used, ≥ 1.
    pub cores: usize,
    /// GPUs of the job on this machine, ≥ 1: a run uses one, and others may use the rest.
    pub gpus: usize,
    /// Whether a scheduler allocated them.
    pub is_job: bool,
}

/// More loader threads do not help: one makes 400 photographs a second with the whole recipe, and
/// the fastest GPU measured trains the smallest model on 4000 (docs/benchmarks.md).
const MOST_WORKERS: usize = 16;

impl CpuAllocation {
    /// The allocation of this process: affinity and control groups, and `SLURM_CPUS_PER_TASK` where
    /// it is less, as under a SLURM that binds no cores.
    pub fn of_this_process() -> Self {
        let system = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with(system, |name| env::var(name).ok())
    }

    /// The allocation on a machine of `system` cores; `variable` looks up environment variables.
    pub fn with(system: usize, variable: impl Fn(&str) -> Option<String>) -> Self {
        let number =
            |name| variable(name)?.trim().parse().ok().filter(|&number: &usize| number > 0);
        let cores = number("SLURM_CPUS_PER_TASK").map_or(system, |given| given.min(system));
        let gpus = number("SLURM_GPUS_ON_NODE").unwrap_or(1);
        Self { cores, gpus, is_job: variable("SLURM_JOB_ID").is_some() }
    }

    /// Loader threads of a run on one GPU: its share of the cores, at most 16.
    pub fn workers(self) -> usize {
        (self.cores / self.gpus).clamp(1, MOST_WORKERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(system: usize, variables: &[(&str, &str)]) -> CpuAllocation {
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
        CpuAllocation::with(system, |name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_least_counts() {
        for (system, variables, cores, gpus, workers) in [
            (2, &[][..], 2, 1, 2),
            (64, &[], 64, 1, 16),
            (64, &[("SLURM_CPUS_PER_TASK", "16")], 16, 1, 16),
            (4, &[("SLURM_CPUS_PER_TASK", "16")], 4, 1, 4),
            (64, &[("SLURM_CPUS_PER_TASK", "16"), ("SLURM_GPUS_ON_NODE", "4")], 16, 4, 4),
            (2, &[("SLURM_GPUS_ON_NODE", "4")], 2, 4, 1),
            (8, &[("SLURM_CPUS_PER_TASK", "0"), ("SLURM_GPUS_ON_NODE", "x")], 8, 1, 8),
        ] {
            let found = with(system, variables);
            assert_eq!((found.cores, found.gpus, found.workers()), (cores, gpus, workers));
            assert!(!found.is_job);
        }
        assert!(with(1, &[("SLURM_JOB_ID", "7")]).is_job);
    }
}
