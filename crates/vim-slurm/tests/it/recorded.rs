//! Answers of SLURM 22.05.8, recorded by programs in jobs that were signalled.

use vim_slurm::{Cause, Job, JobState, cause, fit, parse_jobs, parse_sinfo};

fn job(recorded: &str) -> Job {
    let jobs = parse_jobs(recorded).unwrap();
    assert_eq!(jobs.len(), 1);
    jobs.into_iter().next().unwrap()
}

#[test]
fn why_a_signal_came() {
    for (recorded, expected) in [
        (include_str!("fixtures/warning.txt"), Cause::Warning),
        (include_str!("fixtures/preemption.txt"), Cause::Preemption),
        (include_str!("fixtures/requeued.txt"), Cause::Requeued),
        (include_str!("fixtures/time_limit.txt"), Cause::TimeLimit),
        (include_str!("fixtures/cancelled.txt"), Cause::Cancelled),
        (include_str!("fixtures/interactive.txt"), Cause::NotBatch),
    ] {
        assert_eq!(cause(&job(recorded), 0), expected, "{recorded}");
    }
    // In the second life of a job, one restart is nothing new.
    let requeued = job(include_str!("fixtures/requeued.txt"));
    assert_eq!(cause(&requeued, requeued.restarts), Cause::Cancelled);
}

#[test]
fn what_a_job_says_of_itself() {
    let cancelled = job(include_str!("fixtures/after_scancel.txt"));
    assert_eq!((cancelled.state, cancelled.state.is_active()), (JobState::Cancelled, false));
    assert_eq!(cancelled.exit_code.unwrap().signal, 9);
    assert!(cancelled.is_batch && cancelled.can_requeue);
    assert_eq!(cancelled.name.as_deref(), Some("cancelled"));
    assert!(cancelled.script.is_some());

    let waits = job(include_str!("fixtures/time_above_limit.txt"));
    assert_eq!(
        (waits.state, waits.reason.as_deref()),
        (JobState::Pending, Some("PartitionTimeLimit"))
    );
}

#[test]
fn every_task_of_an_array() {
    let jobs = parse_jobs(include_str!("fixtures/array.txt")).unwrap();
    let mut tasks: Vec<u32> = jobs.iter().map(|job| job.id.task.unwrap()).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, [0, 1, 2, 3, 4, 5]);
    assert!(jobs.iter().all(|job| job.id.job == jobs[0].id.job));
    let ended = jobs.iter().find(|job| job.id.task == Some(1)).unwrap();
    assert_eq!((ended.state, ended.exit_code.unwrap().code), (JobState::Failed, 1));
}

#[test]
fn what_nodes_there_are() {
    let kinds = parse_sinfo(include_str!("fixtures/sinfo.txt")).unwrap();
    assert_eq!(kinds.len(), 3);
    assert_eq!(kinds[0].gpus.as_ref().unwrap()[0].to_string(), "h100:4");
    let config: vim_slurm::SlurmConfig =
        toml::from_str("partition = \"low\"\ntime = \"2-00:00:00\"").unwrap();
    let request = config.request(None, 1).unwrap();
    let message = fit(&request, &kinds).unwrap_err().to_string();
    assert!(message.contains("wait for ever: at most 1-00:00:00"), "{message}");
}
