//! Why a job was signalled, what to do about it, and doing it.
//!
//! | what happened | state | reason | preempted | restarts |
//! |---|---|---|---|---|
//! | the warning before the time limit | RUNNING | | no | as at the start |
//! | preemption, in the grace period | RUNNING | | yes | as at the start |
//! | preemption or requeue in effect | COMPLETING | | no | one more |
//! | time limit reached | COMPLETING | TimeLimit | no | as at the start |
//! | scancel | COMPLETING | | no | as at the start |
//! | one of several nodes is gone, until SLURM notices | RUNNING | | no | as at the start |
//!
//! Recorded from SLURM 22.05.8 (tests/it/fixtures).

use crate::client::Client;
use crate::config::{OnInterrupt, SlurmConfig};
use crate::error::SlurmError;
use crate::job::{Job, JobId, JobState};

/// Why a job was signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time limit is near, or a user sent the signal.
    Warning,
    /// Another job needs the node.
    Preemption,
    /// SLURM requeued the job.
    Requeued,
    /// The time limit was reached.
    TimeLimit,
    /// A user cancelled the job.
    Cancelled,
    /// Another node of the job is gone, which SLURM does not know yet.
    NodeLost,
    /// An interactive job, which has no script to start again.
    NotBatch,
}

impl Cause {
    /// Its name in `events.jsonl`.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Its description in a sentence about the job.
    pub fn words(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Warning => ("warning", "time limit near"),
            Self::Preemption => ("preemption", "preempted"),
            Self::Requeued => ("requeued", "requeued by SLURM"),
            Self::TimeLimit => ("time limit", "time limit"),
            Self::Cancelled => ("cancelled", "cancelled"),
            Self::NodeLost => ("node lost", "a node is lost"),
            Self::NotBatch => ("no batch job", "no batch job"),
        }
    }
}

/// Why `job` was signalled; `restart_count` is the number of restarts at the start of this attempt.
pub fn cause(job: &Job, restart_count: u32) -> Cause {
    if !job.is_batch {
        return Cause::NotBatch;
    }
    if job.restarts > restart_count {
        return Cause::Requeued;
    }
    match job.state {
        _ if job.preempted => Cause::Preemption,
        JobState::Running | JobState::Suspended | JobState::Pending => Cause::Warning,
        JobState::Timeout => Cause::TimeLimit,
        JobState::Preempted => Cause::Preemption,
        JobState::Requeued => Cause::Requeued,
        _ if job.reason.as_deref() == Some("TimeLimit") => Cause::TimeLimit,
        // An unknown state is left alone, as is a cancelled job.
        JobState::Completing
        | JobState::Completed
        | JobState::Cancelled
        | JobState::Failed
        | JobState::NodeFail
        | JobState::OutOfMemory
        | JobState::BootFail
        | JobState::Deadline
        | JobState::Other => Cause::Cancelled,
    }
}

/// The attempts of a run so far. An attempt is one execution of a job's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobAttempts {
    /// Attempts before this one.
    pub restarts: u32,
    /// Consecutive attempts without a new step, up to and including this one.
    pub without_progress: u32,
    /// Whether the next attempt would resume where this one ends.
    pub resumes: bool,
}

/// What an interrupted run does with its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Requeue it.
    Requeue,
    /// Nothing: SLURM has requeued it.
    Requeued,
    /// Submit it again.
    Resubmit,
    /// Wait for SLURM to requeue it.
    Wait,
    /// Leave it as it is.
    Leave,
}

/// An action, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Why.
    pub why: String,
}

/// What an interrupted run does with its job once its state is saved.
pub fn decide(cause: Cause, config: &SlurmConfig, attempts: &JobAttempts) -> Decision {
    let leave = |why: String| Decision { action: Action::Leave, why };
    match cause {
        Cause::NotBatch => return leave("an interactive job has no script to start again".into()),
        Cause::Cancelled => return leave("cancelled: scancel is final".into()),
        Cause::Requeued => {
            let why = if attempts.resumes {
                "SLURM has put the job back into the queue"
            } else {
                "SLURM has put the job back into the queue; without --resume auto its next attempt \
                 cannot go on"
            };
            return Decision { action: Action::Requeued, why: why.into() };
        }
        Cause::Warning | Cause::Preemption | Cause::TimeLimit | Cause::NodeLost => {}
    }
    let words = cause.words();
    if config.on_interrupt == OnInterrupt::None {
        return leave(format!("{words}; slurm.on_interrupt = \"none\""));
    }
    if !attempts.resumes {
        return leave(format!("{words}; without --resume auto another attempt could not go on"));
    }
    if attempts.without_progress >= config.stop_without_progress {
        let count = attempts.without_progress;
        return leave(format!(
            "{words}; no new step in {count} attempts (slurm.stop_without_progress): an attempt \
             is too short for one, or hangs"
        ));
    }
    if attempts.restarts >= config.max_restarts {
        let restarts = attempts.restarts;
        return leave(format!("{words}; restarted {restarts} times (slurm.max_restarts)"));
    }
    let action = match (config.on_interrupt, cause) {
        (OnInterrupt::Requeue, _) => Action::Requeue,
        (OnInterrupt::Resubmit, _) => Action::Resubmit,
        (OnInterrupt::Wait, Cause::Preemption | Cause::NodeLost) => Action::Wait,
        (OnInterrupt::Wait | OnInterrupt::None, _) => {
            return leave(format!(
                "{words}; slurm.on_interrupt = \"wait\" waits for preemption and lost nodes alone"
            ));
        }
    };
    Decision { action, why: words.to_owned() }
}

/// What became of an interrupted job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It is in the queue again, and starts once this attempt is over.
    Requeued,
    /// Another job continues the run when this one has ended.
    Resubmitted(JobId),
    /// SLURM requeues it after killing this process.
    Wait,
    /// It ends.
    Left,
}

impl Client {
    /// Carries out a `decision` about `job`, to which this process belongs.
    ///
    /// If SLURM refuses to requeue the job, the job is submitted again.
    ///
    /// # Errors
    ///
    /// If SLURM refuses that too, or does not answer.
    pub fn carry_out(&self, decision: &Decision, job: &Job) -> Result<JobOutcome, SlurmError> {
        match decision.action {
            Action::Leave => Ok(JobOutcome::Left),
            Action::Requeued => Ok(JobOutcome::Requeued),
            Action::Wait => Ok(JobOutcome::Wait),
            Action::Resubmit => self.resubmit(job).map(JobOutcome::Resubmitted),
            Action::Requeue => match self.requeue(job.id) {
                Ok(()) => Ok(JobOutcome::Requeued),
                // Only after a refusal: a request without an answer may have succeeded.
                Err(SlurmError::Refused { command, message }) => match self.resubmit(job) {
                    Ok(next) => Ok(JobOutcome::Resubmitted(next)),
                    Err(_) => Err(SlurmError::Refused { command, message }),
                },
                Err(error) => Err(error),
            },
        }
    }

    /// Submits the script of `job` again, to start when `job` has ended; of an array, its task
    /// only.
    ///
    /// # Errors
    ///
    /// If SLURM refuses, or the job has no script in a file.
    pub fn resubmit(&self, job: &Job) -> Result<JobId, SlurmError> {
        let missing = || SlurmError::Refused {
            command: "sbatch".into(),
            message: format!("job {} has no batch script in a file to submit again", job.id),
        };
        let script = job.script.as_ref().filter(|script| script.is_file()).ok_or_else(missing)?;
        let mut options = vec![format!("--dependency=afterany:{}", job.id)];
        options.extend(job.id.task.map(|task| format!("--array={task}")));
        let id = self.submit_script(script, &options)?;
        Ok(JobId { task: job.id.task, ..id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: JobAttempts = JobAttempts { restarts: 3, without_progress: 0, resumes: true };

    fn config(on_interrupt: OnInterrupt) -> SlurmConfig {
        SlurmConfig { on_interrupt, ..SlurmConfig::default() }
    }

    #[test]
    fn the_table() {
        use OnInterrupt as On;
        let table = [
            (Cause::Warning, On::Requeue, Action::Requeue),
            (Cause::Preemption, On::Requeue, Action::Requeue),
            (Cause::TimeLimit, On::Requeue, Action::Requeue),
            (Cause::Requeued, On::Requeue, Action::Requeued),
            (Cause::Requeued, On::None, Action::Requeued),
            (Cause::Cancelled, On::Requeue, Action::Leave),
            (Cause::NotBatch, On::Requeue, Action::Leave),
            (Cause::Warning, On::Resubmit, Action::Resubmit),
            (Cause::Cancelled, On::Resubmit, Action::Leave),
            (Cause::Preemption, On::Wait, Action::Wait),
            (Cause::NodeLost, On::Requeue, Action::Requeue),
            (Cause::NodeLost, On::Wait, Action::Wait),
            (Cause::Warning, On::Wait, Action::Leave),
            (Cause::TimeLimit, On::Wait, Action::Leave),
            (Cause::Warning, On::None, Action::Leave),
            (Cause::Preemption, On::None, Action::Leave),
        ];
        for (cause, on, action) in table {
            let decision = decide(cause, &config(on), &FINE);
            assert_eq!(decision.action, action, "{cause:?} {on:?}: {}", decision.why);
        }
    }

    #[test]
    fn some_attempts_are_the_last() {
        let requeue = config(OnInterrupt::Requeue);
        for (attempts, said) in [
            (JobAttempts { without_progress: 2, ..FINE }, "no new step in 2 attempts"),
            (JobAttempts { restarts: 50, ..FINE }, "restarted 50 times"),
            (JobAttempts { resumes: false, ..FINE }, "without --resume auto"),
        ] {
            let decision = decide(Cause::Warning, &requeue, &attempts);
            assert_eq!(decision.action, Action::Leave);
            assert!(decision.why.contains(said), "{}", decision.why);
        }
        let attempts = JobAttempts { without_progress: 1, restarts: 49, ..FINE };
        assert_eq!(decide(Cause::Warning, &requeue, &attempts).action, Action::Requeue);
    }
}
