//! The status of a run.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use serde::Serialize;
use vim_run::{EXIT, ExitReason, ExitRecord, LOCK, is_held};

/// How a run stands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum, strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// A process is at work on it.
    Running,
    /// The last epoch is done.
    Finished,
    /// It was asked for a number of steps, and did them.
    Paused,
    /// A signal stopped it; the state is saved.
    Interrupted,
    /// The loss or the gradient was no longer finite.
    Diverged,
    /// An error ended it.
    Failed,
    /// It did not record its end, and no process is at work on it: it was killed, or the machine
    /// stopped.
    Stale,
    /// The folder does not say, or holds no run.
    Unknown,
}

impl From<ExitReason> for Status {
    fn from(reason: ExitReason) -> Self {
        match reason {
            ExitReason::Finished => Self::Finished,
            ExitReason::Paused => Self::Paused,
            ExitReason::Interrupted => Self::Interrupted,
            ExitReason::Diverged => Self::Diverged,
            ExitReason::Failed => Self::Failed,
        }
    }
}

/// Without locks, a run with a change this recent counts as running.
const RECENT: Duration = Duration::from_secs(600);

/// The status of the run in `folder` that was last changed at `changed`, and the record of its end.
pub(super) fn read(
    folder: &Path,
    changed: Option<SystemTime>,
    problems: &mut Vec<String>,
) -> (Status, Option<ExitRecord>) {
    // Check the lock first: a resumed run may be about to remove its last exit record.
    let held = is_held(&folder.join(LOCK));
    if held == Some(true) {
        return (Status::Running, None);
    }
    match fs::read(folder.join(EXIT)) {
        Ok(text) => match serde_json::from_slice::<ExitRecord>(&text) {
            Ok(exit) => (exit.reason.into(), Some(exit)),
            Err(error) => {
                problems.push(format!("{EXIT} cannot be understood: {error}"));
                (Status::Unknown, None)
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_recent = changed
                .and_then(|changed| SystemTime::now().duration_since(changed).ok())
                .is_some_and(|age| age < RECENT);
            let at_work = held.is_none() && is_recent;
            (if at_work { Status::Running } else { Status::Stale }, None)
        }
        Err(error) => {
            problems.push(format!("{EXIT} cannot be read: {error}"));
            (Status::Unknown, None)
        }
    }
}
