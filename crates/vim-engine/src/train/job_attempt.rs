//! One attempt of a job at a run, recorded in `events.jsonl`; the next attempt continues the run.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use vim_slurm::submissions::{self, Submission};
use vim_slurm::{
    Cause, Client, Event, EventKind, Job, JobAttempts, JobId, JobOutcome, SlurmConfig, attempts_at,
    cause, decide, restarts,
};

use vim_run::signals::Stop;
use vim_run::{ExitRecord, Log, MAX_DEPTH, Resume, host_name, rfc3339};

use crate::error::{Error, Failure, code};

/// Longest wait of a preempted process to be killed.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Several attempts of a job made no step.
#[derive(Debug, thiserror::Error)]
#[error(
    "no new step in {attempts} attempts since step {step} (slurm.stop_without_progress): see events.jsonl and the job's output for what ended them, then submit it again"
)]
struct NoProgress {
    attempts: u32,
    step: u64,
}

impl Failure for NoProgress {
    fn exit_code(&self) -> u8 {
        code::FAILED
    }
}

/// What starts the next attempt at an interrupted run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// SLURM, by requeuing the job.
    Requeue,
    /// This job.
    Job(JobId),
}

impl fmt::Display for Successor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requeue => {
                formatter.write_str("its job is in the queue again and goes on from there")
            }
            Self::Job(next) => write!(formatter, "job {next} goes on from there"),
        }
    }
}

/// This process's attempt at a run.
pub(crate) struct JobAttempt<'a> {
    config: &'a SlurmConfig,
    folder: &'a Path,
    log: &'a Log,
    /// Whether the same command would resume the run.
    resumes: bool,
    /// Whether whoever started this process sees to the job.
    is_led: bool,
    job: Option<JobId>,
    /// How often SLURM has requeued the job.
    restart_count: u32,
    /// Attempts before this one.
    restarts: u32,
}

impl<'a> JobAttempt<'a> {
    /// An attempt at the run in `folder` by a command with `--resume` set to `resume`. Of an
    /// attempt that `is_led`, whoever started it sees to the job: several runs share it.
    pub(crate) fn new(
        config: &'a SlurmConfig,
        folder: &'a Path,
        log: &'a Log,
        resume: Resume,
        is_led: bool,
    ) -> Self {
        let job = JobId::of_this_process();
        let count = env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse().ok());
        let restart_count = count.filter(|_| job.is_some()).unwrap_or(0);
        let resumes = match resume {
            Resume::Auto | Resume::Must => true,
            Resume::Never => false,
        };
        let mut attempt =
            Self { config, folder, log, resumes, is_led, job, restart_count, restarts: 0 };
        attempt.restarts = job.map_or(0, |job| restarts(&attempt.events(), job, restart_count));
        attempt
    }

    /// Records the start or resumption at `step`; [`NoProgress`] after
    /// `slurm.stop_without_progress` attempts at the same step.
    pub(crate) fn begin(&self, step: u64, is_resumed: bool) -> Result<(), Error> {
        if self.restarts > 0 {
            let attempts = attempts_at(&self.events(), step);
            if attempts >= self.config.stop_without_progress {
                return Err(NoProgress { attempts, step }.into());
            }
        }
        let kind = if is_resumed { EventKind::Resume } else { EventKind::Start };
        self.record(self.event(kind, step));
        Ok(())
    }

    /// Records the end; after an interruption requeues, resubmits or leaves the job. Returns what
    /// starts the next attempt, if something does.
    ///
    /// Everything is saved by now, `exit.json` included: this process may be killed at any time.
    pub(crate) fn end(&self, exit: &ExitRecord, stop: Option<Stop>) -> Option<Successor> {
        let next = match stop {
            Some(stop @ Stop::Scheduler { .. }) => self.interrupted(stop, exit.step),
            Some(Stop::Keyboard) | None => None,
        };
        let detail = exit.error.clone();
        let exit_code = Some(exit.exit_code);
        self.record(Event { detail, exit_code, ..self.event(EventKind::End, exit.step) });
        next.filter(|_| self.resumes)
    }

    /// After the loss of another node at `step`, before SLURM may have noticed it: requeues,
    /// resubmits or leaves the job. Returns what starts the next attempt, if something does.
    pub(crate) fn lost_node(&self, step: u64) -> Option<Successor> {
        let of_loss = |cause| if cause == Cause::Warning { Cause::NodeLost } else { cause };
        self.act(self.event(EventKind::Signal, step), of_loss).filter(|_| self.resumes)
    }

    fn interrupted(&self, stop: Stop, step: u64) -> Option<Successor> {
        let signal = Some(stop.name().to_owned());
        self.act(Event { signal, ..self.event(EventKind::Signal, step) }, |cause| cause)
    }

    /// Acts on `event`, for the cause that SLURM's record of the job, and `known` of it, say.
    fn act(&self, event: Event, known: impl Fn(Cause) -> Cause) -> Option<Successor> {
        let step = event.step;
        let Some(id) = self.job.filter(|_| !self.is_led) else {
            self.record(event);
            return None;
        };
        let client = Client::hasty();
        let job = match client.job(id) {
            Ok(Some(job)) => job,
            Ok(None) => return self.unknown(event, "SLURM does not know this job"),
            Err(error) => return self.unknown(event, &error.to_string()),
        };
        let cause = known(cause(&job, self.restart_count));
        let attempts = JobAttempts {
            restarts: self.restarts,
            without_progress: attempts_at(&self.events(), step),
            resumes: self.resumes,
        };
        let decision = decide(cause, self.config, &attempts);
        let detail = Some(decision.why.clone());
        self.record(Event { cause: Some(cause.name().into()), detail, ..event });
        match client.carry_out(&decision, &job) {
            Ok(outcome) => self.settle(outcome, &job, &decision.why, step),
            Err(error) => {
                self.log.line(format!(
                    "warning: {}: not put back into the queue ({error}); submit it again to go on at step {step}",
                    decision.why
                ));
                None
            }
        }
    }

    fn settle(&self, outcome: JobOutcome, job: &Job, why: &str, step: u64) -> Option<Successor> {
        let (line, event, next_job) = match outcome {
            JobOutcome::Requeued => (format!("requeued ({why})"), EventKind::Requeue, None),
            JobOutcome::Resubmitted(next) => {
                (format!("resubmitted as job {next} ({why})"), EventKind::Resubmit, Some(next))
            }
            JobOutcome::Wait => {
                (format!("waiting to be requeued by SLURM ({why})"), EventKind::Wait, None)
            }
            JobOutcome::Left => {
                self.log.line(format!("not requeued ({why}); saved at step {step}"));
                return None;
            }
        };
        let then = if self.resumes { "will resume" } else { "saved" };
        self.log.line(format!("{line}, {then} at step {step}"));
        self.record(Event { detail: Some(why.to_owned()), next_job, ..self.event(event, step) });
        match outcome {
            JobOutcome::Resubmitted(next) => {
                self.remember(next, job);
                Some(Successor::Job(next))
            }
            JobOutcome::Wait => {
                sleep(LONGEST_WAIT);
                Some(Successor::Requeue)
            }
            JobOutcome::Requeued => Some(Successor::Requeue),
            JobOutcome::Left => None,
        }
    }

    /// Leaves a job of unknown state alone: it may have been cancelled.
    fn unknown(&self, event: Event, why: &str) -> Option<Successor> {
        self.log.line(format!(
            "warning: not requeued, for nothing says why {} came: {why}; submit it again to go on at step {}",
            event.signal.as_deref().unwrap_or("the end"),
            event.step
        ));
        self.record(Event { detail: Some(why.to_owned()), ..event });
        None
    }

    /// Records job `next` in the folder that lists this job: the run's, or for an array task the
    /// sweep's.
    fn remember(&self, next: JobId, job: &Job) {
        let known = self.folder.ancestors().take(MAX_DEPTH).find_map(|folder| {
            let submissions = submissions::read(folder).unwrap_or_default();
            let of_job = |known: &Submission| known.job.job == job.id.job;
            Some((folder, submissions.into_iter().rev().find(of_job)?))
        });
        let Some((folder, known)) = known else { return };
        let submission = gone_on(known, job.id, next, rfc3339(SystemTime::now()));
        if let Err(error) = submissions::append(folder, &submission) {
            self.warn(&submissions::path(folder), &error);
        }
    }

    fn event(&self, event: EventKind, step: u64) -> Event {
        Event {
            time: rfc3339(SystemTime::now()),
            event,
            step,
            host: host_name(),
            pid: std::process::id(),
            job: self.job,
            restarts: self.restarts,
            signal: None,
            cause: None,
            next_job: None,
            detail: None,
            exit_code: None,
        }
    }

    fn events(&self) -> Vec<Event> {
        Event::read(self.folder).unwrap_or_else(|error| {
            self.warn(&self.path(), &error);
            Vec::new()
        })
    }

    fn record(&self, event: Event) {
        if let Err(error) = event.append(self.folder) {
            self.warn(&self.path(), &error);
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(vim_slurm::EVENTS)
    }

    /// A failure to write the history must not end the training.
    fn warn(&self, path: &Path, error: &std::io::Error) {
        self.log.line(format!("warning: {}: {error}", path.display()));
    }
}

/// The submission of job `next`, which continues the job `ended` of the submission `known`.
pub fn gone_on(known: Submission, ended: JobId, next: JobId, submitted: String) -> Submission {
    let output = match (next.task, &known.array) {
        // Its name is a pattern.
        (Some(_), _) | (None, Some(_)) => known.output.clone(),
        (None, None) => known.output.as_ref().map(|output| {
            let name = output.file_name().unwrap_or_default().to_string_lossy();
            output.with_file_name(name.replace(&ended.to_string(), &next.to_string()))
        }),
    };
    Submission {
        job: JobId { task: None, ..next },
        array: next.task.map(|task| task.to_string()).or(known.array),
        submitted,
        output,
        ..known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_goes_on_as_one_and_a_task_as_an_array_of_one() {
        let known = |array: Option<&str>, output: &str| Submission {
            job: JobId { job: 8, task: None },
            array: array.map(str::to_owned),
            submitted: "before".into(),
            script: "slurm/tasks-from-0-1.sh".into(),
            output: Some(output.into()),
        };
        let id = |job, task| JobId { job, task };
        let whole = gone_on(known(None, "/8/zoh-8.out"), id(8, None), id(20, None), "now".into());
        assert_eq!((whole.job, whole.array.as_deref()), (id(20, None), None));
        assert_eq!(whole.output.unwrap(), Path::new("/8/zoh-20.out"));
        let pattern = "/8/%x-%A_%a.out";
        let task =
            gone_on(known(Some("0-11%2"), pattern), id(8, Some(3)), id(20, Some(3)), "now".into());
        assert_eq!((task.job, task.array.as_deref()), (id(20, None), Some("3")));
        assert_eq!(task.output.unwrap(), Path::new(pattern));
        assert_eq!(
            (task.script.as_path(), task.submitted.as_str()),
            (whole.script.as_path(), "now")
        );
    }
}
