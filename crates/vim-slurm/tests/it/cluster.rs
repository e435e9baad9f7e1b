//! On a real SLURM, such as that of scripts/slurm_up.sh: `cargo test -p vim-slurm -- --ignored`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vim_slurm::{BatchScript, Client, CommandWord, Job, JobArray, JobId, JobState, SlurmConfig};

fn script(folder: &Path, config: &str, command: Vec<CommandWord>) -> BatchScript {
    let config: SlurmConfig = toml::from_str(config).unwrap();
    BatchScript {
        request: config.request(None, 0).unwrap(),
        name: "vim-slurm test".into(),
        output: folder.join("out/%x-%j.out").display().to_string(),
        chdir: folder.to_owned(),
        array: None,
        dependencies: Vec::new(),
        command,
    }
}

/// What `ask` answers, once it does.
fn once<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come about");
        sleep(Duration::from_millis(300));
    }
}

/// The jobs, once all have ended.
fn ended(client: &Client, id: JobId) -> BTreeMap<JobId, Job> {
    let has_ended = |jobs: &BTreeMap<_, Job>| jobs.values().all(|job| !job.state.is_active());
    once(|| Some(client.jobs(&[id]).unwrap()).filter(has_ended))
}

/// The job, once it has that state.
fn until(client: &Client, id: JobId, state: JobState) -> Job {
    once(|| client.job(id).unwrap().filter(|job| job.state == state))
}

#[test]
#[ignore = "needs SLURM"]
fn awkward_names_arrive() {
    let client = Client::new();
    client.check().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("it's $HOME here");
    fs::create_dir(&folder).unwrap();
    let config =
        "mem = \"100M\"\ncpus_per_task = 2\ntime = \"10\"\nenv = { NOTE = \"a $b 'c' \\\"d\\\"\" }";
    let show = "printf '%s|%s|%s|%s' \"$1\" \"$NOTE\" \"$PWD\" \"$SRUN_CPUS_PER_TASK\"";
    let command = ["sh", "-c", show, "-", "two words"].into_iter().map(CommandWord::from).collect();
    let script = script(&folder, config, command);
    client.check_request(&script.request).unwrap();
    assert!(client.test_only(&script).unwrap().contains("to start at"));
    let id = client.submit(&script, &folder.join("job.sh")).unwrap();
    let jobs = ended(&client, id);
    assert_eq!(jobs[&id].state, JobState::Completed, "{jobs:?}");
    assert_eq!(client.job(id).unwrap().unwrap().script, Some(folder.join("job.sh")));
    let output = folder.join(format!("out/vim-slurm-test-{id}.out"));
    let expected = format!("two words|a $b 'c' \"d\"|{}|2", folder.display());
    assert_eq!(fs::read_to_string(output).unwrap(), expected);
}

#[test]
#[ignore = "needs SLURM"]
fn tasks_know_what_to_do_and_how_they_ended() {
    let client = Client::new();
    let folder = tempfile::tempdir().unwrap();
    let fail_at_odd = ["sh", "-c", "exit $(($1 % 2))", "-"].into_iter().map(CommandWord::from);
    let script = BatchScript {
        array: Some(JobArray { indices: vec![0, 1, 2], offset: 7, throttle: Some(2) }),
        ..script(
            folder.path(),
            "mem = \"100M\"",
            fail_at_odd.chain([CommandWord::ArrayIndex]).collect(),
        )
    };
    let id = client.submit(&script, &folder.path().join("job.sh")).unwrap();
    let waiting = client.jobs(&[id]).unwrap();
    assert_eq!(waiting.keys().map(|id| id.task).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let codes: Vec<u8> =
        ended(&client, id).values().map(|job| job.exit_code.unwrap().code).collect();
    assert_eq!(codes, [1, 0, 1]);
    assert!(client.max_array_size().unwrap() > 1);
}

#[test]
#[ignore = "needs SLURM"]
fn cancelled_and_unknown_jobs() {
    let client = Client::new();
    let folder = tempfile::tempdir().unwrap();
    let sleeps = ["sleep", "60"].into_iter().map(CommandWord::from).collect();
    let script = script(folder.path(), "mem = \"100M\"", sleeps);
    let id = client.submit(&script, &folder.path().join("job.sh")).unwrap();
    client.cancel(&[id]).unwrap();
    assert_eq!(ended(&client, id)[&id].state, JobState::Cancelled);
    client.cancel(&[id]).unwrap();
    assert!(client.requeue(JobId { job: 99_999_999, task: None }).is_err());
    assert_eq!(client.job(JobId { job: 99_999_999, task: None }).unwrap(), None);
}

#[test]
#[ignore = "needs SLURM"]
fn a_refusal_is_told_in_slurms_words() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(folder.path(), "partition = \"nowhere\"", vec!["true".into()]);
    let error = Client::new().submit(&script, &folder.path().join("job.sh")).unwrap_err();
    assert!(error.to_string().contains("invalid partition specified: nowhere"), "{error}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let script = BatchScript { output: file.join("x/%j.out").display().to_string(), ..script };
    let error = Client::new().submit(&script, &folder.path().join("job.sh")).unwrap_err();
    assert!(error.to_string().starts_with("cannot make"), "{error}");
}

#[test]
#[ignore = "needs SLURM"]
fn requeued_or_else_resubmitted() {
    use vim_slurm::{Action, Decision, JobOutcome};
    let client = Client::new();
    let folder = tempfile::tempdir().unwrap();
    let requeue = Decision { action: Action::Requeue, why: String::new() };
    let sleeps = || ["sleep", "60"].into_iter().map(CommandWord::from).collect();
    for (on_interrupt, array) in [("requeue", false), ("none", false), ("none", true)] {
        let config = format!("mem = \"100M\"\non_interrupt = \"{on_interrupt}\"");
        let array = array.then(|| JobArray { indices: vec![3, 4], offset: 0, throttle: None });
        let task = array.as_ref().map(|array| array.indices[0]);
        let script = BatchScript { array, ..script(folder.path(), &config, sleeps()) };
        let submitted = client.submit(&script, &folder.path().join("job.sh")).unwrap();
        let id = JobId { task, ..submitted };
        let job = until(&client, id, JobState::Running);
        match client.carry_out(&requeue, &job).unwrap() {
            JobOutcome::Requeued => {
                assert_eq!(on_interrupt, "requeue");
                assert_eq!(until(&client, id, JobState::Pending).restarts, 1);
            }
            JobOutcome::Resubmitted(next) => {
                // Its script says --no-requeue.
                assert_eq!((on_interrupt, next.task), ("none", task));
                // Why it waits is said once the scheduler has looked at it.
                let waits = |job: &Job| job.reason.as_deref() == Some("Dependency");
                once(|| Some(until(&client, next, JobState::Pending)).filter(waits));
                client.cancel(&[next]).unwrap();
            }
            outcome @ (JobOutcome::Wait | JobOutcome::Left) => panic!("{outcome:?}"),
        }
        client.cancel(&[submitted]).unwrap();
    }
}
