//! Jobs, from `scontrol show job`.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::PathBuf;

use crate::array::expand;
use crate::text_form::{TextForm, as_text};

/// A job, or a task of an array: `12` or `12_3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The number of the job or array.
    pub job: u64,
    /// The task number in an array.
    pub task: Option<u32>,
}

impl JobId {
    /// The job that this process belongs to.
    pub fn of_this_process() -> Option<Self> {
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        // SLURM_JOB_ID of an array task is a number of its own, or the array's for the last task.
        let task = number("SLURM_ARRAY_TASK_ID").and_then(|task| u32::try_from(task).ok());
        match (number("SLURM_ARRAY_JOB_ID"), task) {
            (Some(job), Some(task)) => Some(Self { job, task: Some(task) }),
            _ => Some(Self { job: number("SLURM_JOB_ID")?, task: None }),
        }
    }
}

impl TextForm for JobId {
    const EXPECTED: &'static str = "a job's number such as 12, or 12_3 for a task of an array";

    fn of_text(text: &str) -> Option<Self> {
        let (job, task) = match text.split_once('_') {
            Some((job, task)) => (job, Some(task.parse().ok()?)),
            None => (text, None),
        };
        Some(Self { job: job.parse().ok()?, task })
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.job)?;
        self.task.map_or(Ok(()), |task| write!(formatter, "_{task}"))
    }
}

as_text!(JobId, { "type": "string" });

/// The state of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobState {
    /// In the queue.
    Pending,
    /// Running, or about to.
    Running,
    /// Suspended for another job.
    Suspended,
    /// Ending: its processes have been signalled.
    Completing,
    /// Ended with exit code 0.
    Completed,
    /// Cancelled by scancel.
    Cancelled,
    /// Ended with a nonzero exit code.
    Failed,
    /// Reached its time limit.
    Timeout,
    /// Its node failed.
    NodeFail,
    /// Preempted by another job.
    Preempted,
    /// Out of memory.
    OutOfMemory,
    /// Its node did not start.
    BootFail,
    /// Its deadline passed.
    Deadline,
    /// About to be requeued.
    Requeued,
    /// A state unknown to this crate.
    #[default]
    Other,
}

/// SLURM's names of the states; the first of several is the one that is printed.
const STATES: [(&str, JobState); 19] = [
    ("PENDING", JobState::Pending),
    ("RUNNING", JobState::Running),
    ("CONFIGURING", JobState::Running),
    ("STAGE_OUT", JobState::Completing),
    ("SUSPENDED", JobState::Suspended),
    ("STOPPED", JobState::Suspended),
    ("COMPLETING", JobState::Completing),
    ("COMPLETED", JobState::Completed),
    ("CANCELLED", JobState::Cancelled),
    ("FAILED", JobState::Failed),
    ("TIMEOUT", JobState::Timeout),
    ("NODE_FAIL", JobState::NodeFail),
    ("PREEMPTED", JobState::Preempted),
    ("OUT_OF_MEMORY", JobState::OutOfMemory),
    ("BOOT_FAIL", JobState::BootFail),
    ("DEADLINE", JobState::Deadline),
    ("REQUEUED", JobState::Requeued),
    ("REQUEUE_HOLD", JobState::Requeued),
    ("SPECIAL_EXIT", JobState::Requeued),
];

impl JobState {
    /// The state that SLURM calls `word`; sacct appends who cancelled a job.
    pub(crate) fn of_slurm(word: &str) -> Self {
        let word = word.split([' ', '+']).next().unwrap_or_default();
        STATES.iter().find(|(name, _)| *name == word).map_or(Self::Other, |(_, state)| *state)
    }

    /// SLURM's name of the state.
    pub fn name(self) -> &'static str {
        STATES.iter().find(|(_, state)| *state == self).map_or("UNKNOWN", |(name, _)| name)
    }

    /// Whether the job came to an end that nobody asked for.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Failed
                | Self::Timeout
                | Self::NodeFail
                | Self::OutOfMemory
                | Self::BootFail
                | Self::Deadline
        )
    }

    /// Whether the job runs or is going to run.
    pub fn is_active(self) -> bool {
        matches!(
            self,
            Self::Pending | Self::Running | Self::Suspended | Self::Completing | Self::Requeued
        )
    }
}

/// How a job's script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// Its exit code.
    pub code: u8,
    /// The signal that killed it, 0 for none.
    pub signal: u8,
}

impl ExitStatus {
    /// Parses `CODE:SIGNAL`.
    pub(crate) fn of_slurm(text: &str) -> Option<Self> {
        let (code, signal) = text.split_once(':')?;
        Some(Self { code: code.parse().ok()?, signal: signal.parse().ok()? })
    }
}

/// A job, as far as SLURM knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its own job number, which a task of an array has besides its id.
    pub raw_id: u64,
    /// Its name.
    pub name: Option<String>,
    /// Its state.
    pub state: JobState,
    /// Why it waits, or ended.
    pub reason: Option<String>,
    /// How it ended.
    pub exit_code: Option<ExitStatus>,
    /// How often it was requeued.
    pub restarts: u32,
    /// Whether it is being preempted.
    pub preempted: bool,
    /// Whether it may be requeued.
    pub can_requeue: bool,
    /// Whether it has a batch script.
    pub is_batch: bool,
    /// Its batch script.
    pub script: Option<PathBuf>,
    /// Where its output goes.
    pub output: Option<PathBuf>,
    /// When it started or is expected to start.
    pub start: Option<String>,
    /// When it ended or has to end.
    pub end: Option<String>,
    /// Its nodes.
    pub nodes: Option<String>,
    /// Its time limit.
    pub time_limit: Option<String>,
}

impl Job {
    /// A job of which only id and state are known.
    pub(crate) fn new(id: JobId, state: JobState) -> Self {
        Self { id, raw_id: id.job, state, is_batch: true, ..Self::default() }
    }
}

/// Parses the output of `scontrol -o show job`; a group of pending tasks becomes one job each.
///
/// # Errors
///
/// The first line that does not parse.
pub fn parse_jobs(answer: &str) -> Result<Vec<Job>, String> {
    let lines = answer.lines().map(str::trim).filter(|line| line.starts_with("JobId="));
    let jobs = lines.map(|line| parse(line).ok_or_else(|| line.chars().take(120).collect()));
    Ok(jobs.collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect())
}

fn parse(line: &str) -> Option<Vec<Job>> {
    let fields = fields(line);
    let text = |key: &str| {
        let value = fields.get(key).map(String::as_str)?;
        let is_nothing = ["", "(null)", "None", "N/A", "Unknown"].contains(&value);
        (!is_nothing).then(|| value.to_owned())
    };
    let number = |key: &str| text(key).and_then(|value| value.parse::<u64>().ok());
    let raw_id = number("JobId")?;
    let job = Job {
        raw_id,
        name: text("JobName"),
        reason: text("Reason"),
        exit_code: text("ExitCode").and_then(|status| ExitStatus::of_slurm(&status)),
        restarts: number("Restarts").and_then(|count| count.try_into().ok()).unwrap_or(0),
        preempted: text("PreemptTime").is_some(),
        can_requeue: number("Requeue") == Some(1),
        is_batch: number("BatchFlag").is_some_and(|flag| flag > 0),
        script: text("Command").map(Into::into),
        output: text("StdOut").map(Into::into),
        start: text("StartTime"),
        end: text("EndTime"),
        nodes: text("NodeList"),
        time_limit: text("TimeLimit"),
        ..Job::new(JobId { job: raw_id, task: None }, JobState::of_slurm(fields.get("JobState")?))
    };
    let Some(tasks) = text("ArrayTaskId") else { return Some(vec![job]) };
    let array = number("ArrayJobId")?;
    let tasks = expand(&tasks)?.into_iter();
    let of_task = |task| Job { id: JobId { job: array, task: Some(task) }, ..job.clone() };
    Some(tasks.map(of_task).collect())
}

/// The fields of a line `Key=value Key=value`. Values may contain spaces, and `word=` in lower
/// case.
fn fields(line: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for word in line.split(' ') {
        let field = word.split_once('=').filter(|(key, _)| {
            key.starts_with(|c: char| c.is_ascii_uppercase())
                && key.chars().all(|c| c.is_ascii_alphanumeric() || "/:_&".contains(c))
        });
        match (field, &last) {
            (Some((key, value)), _) => {
                // The first counts: a later one is part of some value.
                fields.entry(key.to_owned()).or_insert_with(|| value.to_owned());
                last = Some(key.to_owned());
            }
            (None, Some(key)) if !word.is_empty() => {
                if let Some(value) = fields.get_mut(key) {
                    value.push(' ');
                    value.push_str(word);
                }
            }
            (None, _) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for text in ["12", "12_3"] {
            assert_eq!(text.parse::<JobId>().unwrap().to_string(), text);
        }
        for text in ["", "x", "12_", "_3", "12_[0-3]", "12.batch"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }

    #[test]
    fn states_of_every_spelling() {
        for (name, state) in STATES {
            assert_eq!(JobState::of_slurm(name), state);
            assert_eq!(JobState::of_slurm(state.name()), state);
        }
        assert_eq!(JobState::of_slurm("CANCELLED by 1000"), JobState::Cancelled);
        assert_eq!(JobState::of_slurm("CANCELLED+"), JobState::Cancelled);
        assert_eq!(JobState::of_slurm("WONDERING"), JobState::Other);
    }

    #[test]
    fn values_with_blanks() {
        let line =
            "JobId=7 JobName=a JobState=RUNNING Command=/home/a b/job.sh x=1 StdOut=/o p Power= ";
        let jobs = parse_jobs(line).unwrap();
        assert_eq!(jobs[0].script.as_deref(), Some("/home/a b/job.sh x=1".as_ref()));
        assert_eq!(jobs[0].output.as_deref(), Some("/o p".as_ref()));
        assert!(parse_jobs("JobId=x JobState=RUNNING").is_err());
        assert_eq!(parse_jobs("No jobs in the system").unwrap(), []);
    }
}
