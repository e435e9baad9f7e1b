//! The attempts of a run: `events.jsonl` in its folder.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::submissions::{append_line, read_lines};

/// The file's name in a run's folder.
pub const EVENTS: &str = "events.jsonl";

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// A run has started.
    Start,
    /// A run has resumed.
    Resume,
    /// A signal was received and the state is saved.
    Signal,
    /// The job was put back into the queue.
    Requeue,
    /// The job was submitted again.
    Resubmit,
    /// The process waits to be killed and its job to be requeued.
    Wait,
    /// The process ends.
    End,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time, as RFC 3339.
    pub time: String,
    /// The kind.
    pub event: EventKind,
    /// Optimizer steps done and saved.
    pub step: u64,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Earlier attempts of the job, including those of jobs that it was resubmitted from.
    pub restarts: u32,
    /// Of [`EventKind::Signal`]: the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Of [`EventKind::Signal`]: its cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Of [`EventKind::Resubmit`]: the new job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_job: Option<JobId>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of [`EventKind::End`]: the exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

impl Event {
    /// Adds the event to the file in `folder`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn append(&self, folder: &Path) -> io::Result<()> {
        append_line(&folder.join(EVENTS), self)
    }

    /// The events in `folder`, oldest first; none where there is no file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn read(folder: &Path) -> io::Result<Vec<Self>> {
        read_lines(&folder.join(EVENTS))
    }

    fn begins_attempt(&self) -> bool {
        matches!(self.event, EventKind::Start | EventKind::Resume)
    }
}

/// The attempts before this one of `job`, which SLURM has restarted `restart_count` times.
///
/// The count continues across resubmissions.
pub fn restarts(events: &[Event], job: JobId, restart_count: u32) -> u32 {
    let from = events.iter().rev().find(|event| event.next_job == Some(job));
    from.map_or(0, |event| event.restarts + 1) + restart_count
}

/// The number of consecutive attempts, up to the newest, that began at `step`.
///
/// A submission by a user starts a new count.
pub fn attempts_at(events: &[Event], step: u64) -> u32 {
    let mut attempts = 0;
    for attempt in events.iter().rev().filter(|event| event.begins_attempt()) {
        if attempt.step != step {
            break;
        }
        attempts += 1;
        if attempt.restarts == 0 {
            break;
        }
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: EventKind, job: &str, restarts: u32, step: u64) -> Event {
        Event {
            time: "2026-11-22T08:00:00Z".into(),
            event,
            step,
            host: "n1".into(),
            pid: 1,
            job: job.parse().ok(),
            restarts,
            signal: None,
            cause: None,
            next_job: None,
            detail: None,
            exit_code: None,
        }
    }

    #[test]
    fn attempts_without_a_step_are_counted_from_the_last_submission() {
        use EventKind::{End, Resume, Signal, Start};
        let mut events = Vec::new();
        assert_eq!(attempts_at(&events, 0), 0);
        events.push(event(Start, "1", 0, 0));
        assert_eq!((attempts_at(&events, 0), attempts_at(&events, 40)), (1, 0));
        events.extend([event(Signal, "1", 0, 40), event(End, "1", 0, 40)]);
        events.push(event(Resume, "1", 1, 40));
        assert_eq!(attempts_at(&events, 40), 1);
        events.push(event(Resume, "1", 2, 40));
        assert_eq!(attempts_at(&events, 40), 2);
        events.push(event(Resume, "2", 0, 40));
        assert_eq!(attempts_at(&events, 40), 1, "submitted by hand: tried again");
    }

    #[test]
    fn restarts_go_on_through_resubmission() {
        assert_eq!(restarts(&[], "7".parse().unwrap(), 2), 2);
        let mut resubmitted = event(EventKind::Resubmit, "7", 2, 40);
        resubmitted.next_job = "8".parse().ok();
        assert_eq!(restarts(&[resubmitted.clone()], "8".parse().unwrap(), 1), 4);
        assert_eq!(restarts(&[resubmitted], "9".parse().unwrap(), 1), 1);
    }

    #[test]
    fn events_are_lines() {
        let folder = tempfile::tempdir().unwrap();
        let start = event(EventKind::Start, "12_3", 0, 0);
        start.append(folder.path()).unwrap();
        assert_eq!(Event::read(folder.path()).unwrap(), [start]);
        let text = std::fs::read_to_string(folder.path().join(EVENTS)).unwrap();
        assert_eq!(
            text,
            "{\"time\":\"2026-11-22T08:00:00Z\",\"event\":\"start\",\"step\":0,\"host\":\"n1\",\
             \"pid\":1,\"job\":\"12_3\",\"restarts\":0}\n"
        );
    }
}
