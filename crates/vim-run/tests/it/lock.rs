use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use vim_run::{Lock, LockError, Opened, Resume, RunDir, RunError};

use crate::helpers::Helper;

#[test]
fn a_living_holder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("LOCK");
    let helper = Helper::start("holds_a_lock", &path);
    let Err(LockError::Held(holder)) = Lock::acquire(&path) else { panic!("two hold one lock") };
    assert_eq!(holder.pid, helper.pid());
    assert_eq!(holder.slurm_job.as_deref(), Some("4711"));
    assert!(!holder.host.is_empty());
    let says = RunError::InUse { path: folder.path().to_owned(), holder: Box::new(holder.clone()) };
    let says = says.to_string();
    for part in [
        format!("in use by process {} on {}", helper.pid(), holder.host),
        "(SLURM job 4711)".into(),
        "end it (scancel 4711)".into(),
    ] {
        assert!(says.contains(&part), "{says}");
    }
}

#[test]
fn a_dead_holder_is_succeeded_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("LOCK");
    let mut helper = Helper::start("holds_a_lock", &path);
    helper.kill();
    let left = fs::read_to_string(&path).unwrap();
    assert!(left.contains(&helper.pid().to_string()), "the stale content is still there: {left}");

    let _lock = Lock::acquire(&path).unwrap();
    let now = fs::read_to_string(&path).unwrap();
    assert!(now.contains(&format!("\"pid\":{}", std::process::id())), "{now}");
    assert_eq!(now.lines().count(), 1, "nothing of the longer content is left: {now}");
}

#[test]
fn dropping_releases() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("LOCK");
    let first = Lock::acquire(&path).unwrap();
    assert!(first.is_enforced());
    assert!(matches!(Lock::acquire(&path), Err(LockError::Held(_))));
    drop(first);
    assert_eq!(fs::read_to_string(&path).unwrap(), "", "no name stays behind");
    assert!(Lock::acquire(&path).is_ok());
}

#[test]
fn a_process_that_ends_is_waited_for_and_one_at_work_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("LOCK");
    let begin = Instant::now();
    let _dead = Helper::start("holds_the_lock_of_a_dead_process", &path);
    let ready = begin.elapsed();
    let lock = Lock::acquire(&path).unwrap();
    assert!(begin.elapsed() - ready > Duration::from_millis(300), "it did not wait");
    drop(lock);

    let mut alive = Helper::start("holds_a_lock", &path);
    let begin = Instant::now();
    assert!(matches!(Lock::acquire(&path), Err(LockError::Held(_))));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let patience = Duration::from_millis(500);
    assert!(matches!(Lock::acquire_within(&path, patience), Err(LockError::Held(_))));
    assert!(begin.elapsed() > patience);
    // Killed while another one waits.
    let waits = std::thread::spawn(move || Lock::acquire_within(&path, Duration::from_secs(30)));
    alive.kill();
    waits.join().unwrap().unwrap();
}

fn open(path: &Path, fresh: bool) -> Result<Opened, RunError> {
    RunDir::open(path.to_owned(), "", Resume::Auto, fresh, |_| Ok(Vec::new()))
}

#[test]
fn a_folder_in_use_is_refused_by_name_even_for_fresh() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("zoh-s0");
    drop(open(&path, false).unwrap());
    let helper = Helper::start("holds_a_lock", &path.join("LOCK"));
    for fresh in [false, true] {
        let error = open(&path, fresh).unwrap_err();
        assert!(matches!(error, RunError::InUse { .. }));
        let text = error.to_string();
        assert!(text.contains(&format!("process {}", helper.pid())), "{text}");
        assert!(text.contains("SLURM job 4711"), "{text}");
    }
    assert!(!root.path().join("zoh-s0.old-1").exists());
}
