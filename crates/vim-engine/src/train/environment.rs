//! `env.json`: program, machine and job of a run; and the head of a document of measurements.

use std::collections::BTreeMap;
use std::env;
use std::time::SystemTime;

use serde::Serialize;
use vim_comm::LibraryInfo;
use vim_data::CpuAllocation;
use vim_run::{host_name, rfc3339};

use crate::device::{self, SelectedDevice, threads};
use crate::program;

/// The facts about a run that its configuration does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// Version of this program.
    pub version: &'static str,
    /// The commit of the build, if known.
    pub commit: Option<&'static str>,
    /// Target triple of the build.
    pub target: Option<&'static str>,
    /// The machine's name.
    pub host: String,
    /// Cores that this process may use.
    pub cpus: usize,
    /// The device as found.
    pub backend: String,
    /// NCCL's library, where the ranks of the run use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nccl: Option<LibraryInfo>,
    /// Threads that compute on the CPU.
    pub threads: usize,
    /// Optimizer steps of the whole run.
    pub total_steps: u64,
    /// `SLURM_*` variables that identify the job.
    pub slurm: BTreeMap<String, String>,
    /// The command line.
    pub command: Vec<String>,
    /// When the process started.
    pub started: String,
}

/// The variables that name a job; others describe the site, and some hold secrets.
const SLURM_VARIABLES: [&str; 10] = [
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NODELIST",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_ON_NODE",
];

impl Environment {
    /// The environment of this process.
    pub fn of_this_process(backend: impl Into<String>, threads: usize, total_steps: u64) -> Self {
        let slurm = SLURM_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?)))
            .collect();
        Self {
            version: program::VERSION,
            commit: program::commit(),
            target: program::TARGET,
            host: host_name(),
            cpus: CpuAllocation::of_this_process().cores,
            backend: backend.into(),
            nccl: None,
            threads,
            total_steps,
            slurm,
            command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            started: rfc3339(SystemTime::now()),
        }
    }
}

/// What a document of measurements begins with: command, program, machine and time.
#[derive(Debug, Serialize)]
pub(crate) struct Head {
    command: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    device: String,
    hardware: Option<String>,
    threads: usize,
    date: String,
}

impl Head {
    pub(crate) fn new(command: &'static str, chosen: &SelectedDevice) -> Self {
        Self {
            command,
            version: program::VERSION,
            commit: program::commit(),
            device: chosen.name.clone(),
            hardware: device::hardware(&chosen.device),
            threads: threads::count(),
            date: rfc3339(SystemTime::now()),
        }
    }

    pub(crate) fn line(&self) -> String {
        let hardware = self.hardware.as_deref().unwrap_or("unnamed hardware");
        let commit = self.commit.map_or_else(String::new, |commit| {
            format!(", commit {}", commit.get(..9).unwrap_or(commit))
        });
        format!("{} on {} ({hardware}){commit}, {}", self.command, self.device, self.date)
    }
}
