//! Jobs from squeue and sacct, for when scontrol is forbidden or has forgotten them.

use crate::job::{ExitStatus, Job, JobId, JobState};

/// The output format of squeue that [`parse_squeue`] reads.
pub(crate) const SQUEUE_FORMAT: &str = "%F|%K|%A|%T|%r|%j";

/// The output format of sacct that [`parse_sacct`] reads.
pub(crate) const SACCT_FORMAT: &str = "JobID,State,ExitCode,Start,End,NodeList,JobName";

/// Parses the output of `squeue -h -r -o '%F|%K|%A|%T|%r|%j'`; skips lines that do not parse.
pub(crate) fn parse_squeue(answer: &str) -> Vec<Job> {
    let jobs = answer.lines().filter_map(|line| {
        let mut fields = line.trim().splitn(6, '|');
        let job = fields.next()?.parse().ok()?;
        let task = fields.next()?.parse().ok();
        let raw_id = fields.next()?.parse().ok()?;
        let state = JobState::of_slurm(fields.next()?);
        let reason = fields.next().filter(|reason| *reason != "None").map(str::to_owned);
        let name = fields.next().map(str::to_owned);
        Some(Job { raw_id, reason, name, ..Job::new(JobId { job, task }, state) })
    });
    jobs.collect()
}

/// Parses the output of `sacct -n -P -X`; skips groups of pending tasks, which squeue knows.
pub(crate) fn parse_sacct(answer: &str) -> Vec<Job> {
    let jobs = answer.lines().filter_map(|line| {
        let mut fields = line.trim().splitn(7, '|');
        let id: JobId = fields.next()?.parse().ok()?;
        let state = JobState::of_slurm(fields.next()?);
        let exit_code = ExitStatus::of_slurm(fields.next()?);
        let mut text = || {
            let value = fields.next()?;
            (!["", "Unknown", "None assigned"].contains(&value)).then(|| value.to_owned())
        };
        let (start, end, nodes, name) = (text(), text(), text(), text());
        Some(Job { exit_code, start, end, nodes, name, ..Job::new(id, state) })
    });
    jobs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Recorded from SLURM 22.05.8: an array whose odd tasks failed.
    #[test]
    fn tasks_of_an_array_in_the_queue() {
        let jobs = parse_squeue(include_str!("../tests/it/fixtures/squeue_array.txt"));
        let seen = jobs.iter().map(|job| (job.id.task, job.raw_id, job.state));
        let (done, failed) = (JobState::Completed, JobState::Failed);
        let expected = [(4, 20, done), (2, 18, done), (0, 16, done)]
            .into_iter()
            .chain([(5, 14, failed), (3, 19, failed), (1, 17, failed)])
            .map(|(task, raw_id, state)| (Some(task), raw_id, state));
        assert!(seen.eq(expected), "{jobs:?}");
        assert!(jobs.iter().all(|job| job.id.job == 14 && job.name.as_deref() == Some("wrap")));
        assert_eq!(
            (jobs[0].reason.as_deref(), jobs[3].reason.as_deref()),
            (None, Some("NonZeroExitCode"))
        );
    }

    #[test]
    fn accounts_of_ended_jobs() {
        let answer = "12_3|FAILED|1:0|2026-11-22T08:00:00|2026-11-22T08:01:00|n1|disc\n\
                      12_[4-9]|PENDING|0:0|Unknown|Unknown|None assigned|disc\n\
                      13|CANCELLED by 0|0:15|Unknown|2026-11-22T08:01:00||x\n";
        let jobs = parse_sacct(answer);
        assert_eq!(jobs.len(), 2);
        assert_eq!((jobs[0].id.to_string().as_str(), jobs[0].state), ("12_3", JobState::Failed));
        assert_eq!(jobs[0].exit_code.unwrap().code, 1);
        assert_eq!((jobs[1].state, jobs[1].start.as_ref()), (JobState::Cancelled, None));
    }
}
