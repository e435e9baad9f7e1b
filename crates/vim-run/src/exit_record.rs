//! `exit.json`: how the last process at work on a run ended.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::files::{EXIT, write_json_in};
use crate::metrics::Scores;

/// How a process at work on a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitReason {
    /// The last epoch is done: there is nothing to go on with.
    Finished,
    /// The steps asked for are done, and more are left.
    Paused,
    /// A signal asked for it; the state is saved.
    Interrupted,
    /// The loss or the gradient is no longer finite.
    Diverged,
    /// An error.
    Failed,
}

/// `exit.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Why the process ended.
    pub reason: ExitReason,
    /// Optimizer steps done.
    pub step: u64,
    /// The score that the run goes by, where it is known: of the test images under its own name, as
    /// `top1`, and the best of all evaluations on the validation images, as `best_top1`.
    #[serde(flatten)]
    pub scores: Scores,
    /// The error, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The process's exit code.
    pub exit_code: u8,
}

impl ExitRecord {
    /// The record of a process that did not get to train.
    pub fn failed(error: &dyn fmt::Display, exit_code: u8) -> Self {
        Self {
            reason: ExitReason::Failed,
            step: 0,
            scores: Scores::default(),
            error: Some(error.to_string()),
            exit_code,
        }
    }
}

/// How the last process at work in the folder `run` ended, where that was recorded.
pub(crate) fn read_exit_in(run: &Path) -> Result<Option<ExitRecord>, RunError> {
    let path = run.join(EXIT);
    match fs::read(&path) {
        // A record that cannot be understood says no more than none: the checkpoints decide.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RunError::io("read", path)(error)),
    }
}

/// Records how the process at work in the folder `run` ends.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write_exit_in(run: &Path, exit: &ExitRecord) -> Result<(), RunError> {
    write_json_in(run, EXIT, exit)
}
