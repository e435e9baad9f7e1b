//! `exit.json`: how the last process of a run ended.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::files::{EXIT, write_json_in};
use crate::metrics::Scores;

/// How a process of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitReason {
    /// The last epoch is done.
    Finished,
    /// The requested steps are done, and more are left.
    Paused,
    /// A signal stopped the run; the state is saved.
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
    /// The primary score, where known: on the test images under its name, as `top1`, and the best
    /// on the validation images, as `best_top1`.
    #[serde(flatten)]
    pub scores: Scores,
    /// The error, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The process's exit code.
    pub exit_code: u8,
}

impl ExitRecord {
    /// The record of a process that failed before training.
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

/// How the last process in the folder `run` ended, if recorded.
pub(crate) fn read_exit_in(run: &Path) -> Result<Option<ExitRecord>, RunError> {
    let path = run.join(EXIT);
    match fs::read(&path) {
        // An unreadable record counts as none: the checkpoints decide.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RunError::io("read", path)(error)),
    }
}

/// Records how the process in the folder `run` ends.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write_exit_in(run: &Path, exit: &ExitRecord) -> Result<(), RunError> {
    write_json_in(run, EXIT, exit)
}
