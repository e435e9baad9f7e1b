//! What became of a run, as callers bring it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::config::Assignments;

/// How a run of a sweep stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "code", rename_all = "lowercase")]
pub enum RunState {
    /// The last epoch is done.
    Finished,
    /// A process is at work on it.
    Running,
    /// A scheduler has it.
    Queued,
    /// It was stopped or killed, and can go on.
    Interrupted,
    /// It ended with this exit code.
    Failed(u8),
    /// It was never started.
    Missing,
}

impl RunState {
    /// Its name, without the code of a failure.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Queued => "queued",
            Self::Interrupted => "interrupted",
            Self::Failed(_) => "failed",
            Self::Missing => "missing",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        if let Self::Failed(code) = self { write!(formatter, " ({code})") } else { Ok(()) }
    }
}

/// An evaluation of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Optimizer steps that the weights had seen.
    pub step: u64,
    /// `val` or `test`.
    pub split: String,
    /// Of which checkpoint: `last` or `best`.
    pub checkpoint: String,
    /// Which weights, if not the model's own, such as `ema`.
    pub averaged: Option<String>,
    /// Its numbers by name: `top1`, `top5` (0 to 1), `loss`.
    pub values: BTreeMap<String, f64>,
}

/// What a run was computed with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Machine {
    /// The machine's name.
    pub host: Option<String>,
    /// What computed.
    pub backend: Option<String>,
    /// Cores that the process could use.
    pub cpus: Option<String>,
    /// Threads that computed on the CPU.
    pub threads: Option<String>,
    /// Version of the program.
    pub version: Option<String>,
    /// Commit of the program.
    pub commit: Option<String>,
    /// The scheduler's job.
    pub job: Option<String>,
}

/// A run of a sweep, and all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Its place in the plan.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// Its folder's name.
    pub name: String,
    /// Its values of the grid's keys.
    pub assignments: Assignments,
    /// How it stands.
    pub state: RunState,
    /// Steps done.
    pub step: Option<u64>,
    /// Of how many.
    pub total_steps: Option<u64>,
    /// Its error, in a line.
    pub error: Option<String>,
    /// Its evaluations in the order in which they were made.
    pub scores: Vec<Score>,
    /// Training loss by step.
    pub losses: Vec<(f64, f64)>,
    /// Images per second of training, the median.
    pub images_per_second: Option<f64>,
    /// Time at work, in seconds.
    pub seconds: f64,
    /// What it was computed with.
    pub machine: Machine,
    /// Its effective configuration.
    #[serde(skip)]
    pub values: Assignments,
}
