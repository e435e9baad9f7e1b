//! Results of a run, provided by the caller.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::config::Assignments;

/// The exit code of a run whose loss or gradient was no longer finite.
const DIVERGED: u8 = 76;

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", content = "code", rename_all = "lowercase")]
pub enum RunState {
    /// The last epoch is done.
    Finished,
    /// A process is running it.
    Running,
    /// It waits in a scheduler's queue.
    Queued,
    /// It was stopped or killed and can be resumed.
    Interrupted,
    /// It failed with this exit code.
    Failed(u8),
    /// It has not been started.
    Missing,
}

impl RunState {
    /// Its name, without the code of a failure.
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

    /// Whether its loss or gradient was no longer finite.
    pub fn is_diverged(self) -> bool {
        self == Self::Failed(DIVERGED)
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
    /// Optimizer steps done.
    pub step: u64,
    /// `val` or `test`.
    pub split: String,
    /// The checkpoint: `last` or `best`.
    pub checkpoint: String,
    /// The averaged weights that were evaluated, such as `ema`; `None` for the model's own.
    pub averaged: Option<String>,
    /// Values by the names of the scores; shares are 0 to 1.
    pub values: BTreeMap<String, f64>,
}

/// The hardware and software of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Machine {
    /// The machine's name.
    pub host: Option<String>,
    /// The backend and device.
    pub backend: Option<String>,
    /// CPU cores available to the process.
    pub cpus: Option<String>,
    /// Compute threads on the CPU.
    pub threads: Option<String>,
    /// Version of the program.
    pub version: Option<String>,
    /// Commit of the program.
    pub commit: Option<String>,
    /// The id of the scheduler's job.
    pub job: Option<String>,
}

/// A run of a sweep with its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Its index in the plan.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// Its folder's name.
    pub name: String,
    /// Its values of the grid's keys.
    pub assignments: Assignments,
    /// Its state.
    pub state: RunState,
    /// Steps done.
    pub step: Option<u64>,
    /// Steps planned.
    pub total_steps: Option<u64>,
    /// Its error, on one line.
    pub error: Option<String>,
    /// Its evaluations in chronological order.
    pub scores: Vec<Score>,
    /// Training loss by step.
    pub losses: Vec<(f64, f64)>,
    /// Median training speed in images per second.
    pub images_per_second: Option<f64>,
    /// Running time in seconds.
    pub seconds: f64,
    /// Its hardware and software.
    pub machine: Machine,
    /// Its effective configuration.
    #[serde(skip)]
    pub values: Assignments,
}
