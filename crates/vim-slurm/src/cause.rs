//! Why a signal came, and what to do about it.
//!
//! | what happened | state | reason | preempted | restarts |
//! |---|---|---|---|---|
//! | the warning before the time limit | RUNNING | | no | as at the start |
//! | preemption, the grace running | RUNNING | | yes | as at the start |
//! | preemption or requeue has taken effect | COMPLETING | | no | one more |
//! | the time limit | COMPLETING | TimeLimit | no | as at the start |
//! | scancel | COMPLETING | | no | as at the start |
//!
//! Recorded from SLURM 22.05.8 (tests/it/fixtures).

use crate::config::{OnInterrupt, SlurmConfig};
use crate::job::{Job, JobState};

/// Why a job was signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time limit is near, or somebody has sent a signal.
    Warning,
    /// Another job takes the node.
    Preemption,
    /// SLURM has put the job back into the queue.
    Requeued,
    /// The time limit is over.
    TimeLimit,
    /// Somebody has cancelled the job.
    Cancelled,
    /// This is no batch job: there is nothing to start again.
    NotBatch,
}

impl Cause {
    /// A word for it in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Preemption => "preemption",
            Self::Requeued => "requeued",
            Self::TimeLimit => "time limit",
            Self::Cancelled => "cancelled",
            Self::NotBatch => "no batch job",
        }
    }

    /// A word or two for it in a sentence about the job.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Warning => "time limit near",
            Self::Preemption => "preempted",
            Self::Requeued => "requeued by SLURM",
            Self::TimeLimit => "time limit",
            Self::Cancelled => "cancelled",
            Self::NotBatch => "no batch job",
        }
    }
}

/// Why the job was signalled that SLURM describes by `job` and that began with `restart_count` restarts.
#[must_use]
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
        // A state that is not known is left alone like one that somebody has asked for.
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

/// What has become of the run so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lives {
    /// Lives before this one.
    pub restarts: u32,
    /// Lives without a new step, this one included, since the last that made one.
    pub without_progress: u32,
    /// Whether the next life would go on where this one ends.
    pub resumes: bool,
}

/// What an interrupted run does with its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Puts it back into the queue.
    Requeue,
    /// Submits it again.
    Resubmit,
    /// Waits for SLURM to put it back into the queue.
    Wait,
    /// Leaves it as it is.
    Leave,
}

/// An action, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Why, in words.
    pub why: String,
}

/// What a run that was interrupted for `cause`, and whose state is saved, does with its job.
#[must_use]
pub fn decide(cause: Cause, config: &SlurmConfig, lives: &Lives) -> Decision {
    let leave = |why: String| Decision { action: Action::Leave, why };
    match cause {
        Cause::NotBatch => return leave("an interactive job has no script to start again".into()),
        Cause::Cancelled => return leave("cancelled: scancel is final".into()),
        Cause::Requeued => return leave("SLURM has put it back into the queue".into()),
        Cause::Warning | Cause::Preemption | Cause::TimeLimit => {}
    }
    let words = cause.words();
    if config.on_interrupt == OnInterrupt::None {
        return leave(format!("{words}; slurm.on_interrupt = \"none\""));
    }
    if !lives.resumes {
        return leave(format!("{words}; without --resume auto another life could not go on"));
    }
    if lives.without_progress >= config.stop_without_progress {
        let lives = lives.without_progress;
        return leave(format!(
            "{words}; no new step in {lives} lives (slurm.stop_without_progress): a life is too short for one, or hangs"
        ));
    }
    if lives.restarts >= config.max_restarts {
        let restarts = lives.restarts;
        return leave(format!("{words}; restarted {restarts} times (slurm.max_restarts)"));
    }
    let action = match (config.on_interrupt, cause) {
        (OnInterrupt::Requeue, _) => Action::Requeue,
        (OnInterrupt::Resubmit, _) => Action::Resubmit,
        (OnInterrupt::Wait, Cause::Preemption) => Action::Wait,
        (OnInterrupt::Wait | OnInterrupt::None, _) => {
            return leave(format!(
                "{words}; slurm.on_interrupt = \"wait\" waits for preemption alone"
            ));
        }
    };
    Decision { action, why: words.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Lives = Lives { restarts: 3, without_progress: 0, resumes: true };

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
            (Cause::Requeued, On::Requeue, Action::Leave),
            (Cause::Cancelled, On::Requeue, Action::Leave),
            (Cause::NotBatch, On::Requeue, Action::Leave),
            (Cause::Warning, On::Resubmit, Action::Resubmit),
            (Cause::Cancelled, On::Resubmit, Action::Leave),
            (Cause::Preemption, On::Wait, Action::Wait),
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
    fn some_lives_are_the_last() {
        let requeue = config(OnInterrupt::Requeue);
        for (lives, said) in [
            (Lives { without_progress: 2, ..FINE }, "no new step in 2 lives"),
            (Lives { restarts: 50, ..FINE }, "restarted 50 times"),
            (Lives { resumes: false, ..FINE }, "without --resume auto"),
        ] {
            let decision = decide(Cause::Warning, &requeue, &lives);
            assert_eq!(decision.action, Action::Leave);
            assert!(decision.why.contains(said), "{}", decision.why);
        }
        let lives = Lives { without_progress: 1, restarts: 49, ..FINE };
        assert_eq!(decide(Cause::Warning, &requeue, &lives).action, Action::Requeue);
    }
}
