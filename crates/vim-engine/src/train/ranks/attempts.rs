//! What attempts leave where their ranks meet, once their supervisor was killed.

use std::fs;
use std::path::Path;

use vim_run::{LOCK, host_name, is_held, is_running};

/// Removes from the folder `all` of attempts, before the one called `attempt`, the earlier ones of
/// its job, and those of processes of this machine that are gone.
pub(super) fn remove_left(all: &Path, attempt: &str) {
    let own = of_job(attempt);
    let is_earlier = |name: &str| match (&own, of_job(name)) {
        (Some((job, restarts)), Some((of, earlier))) => of == *job && earlier < *restarts,
        (None, _) | (_, None) => false,
    };
    let mut has_removed = false;
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if is_earlier(&name) || is_abandoned(&name, &path) {
            // What stays is small, and nothing reads it.
            has_removed |= fs::remove_dir_all(path).is_ok();
        }
    }
    if has_removed {
        // Fails where other attempts are there.
        let _ = fs::remove_dir(all);
    }
}

/// Job and restarts of `JOB.STEP.RESTARTS`.
fn of_job(name: &str) -> Option<(String, u32)> {
    let (step, restarts) = name.rsplit_once('.')?;
    let (job, _) = step.split_once('.')?;
    Some((job.to_owned(), restarts.parse().ok()?))
}

/// Whether the attempt in `folder`, called `name`, is `HOST-PID-TIME` of a process of this machine
/// that is gone.
fn is_abandoned(name: &str, folder: &Path) -> bool {
    let mut parts = name.rsplitn(3, '-');
    let (Some(time), Some(pid), Some(host)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(pid) = pid.parse::<u32>() else { return false };
    if host != host_name() || time.parse::<u128>().is_err() {
        return false;
    }
    let lock = folder.join(LOCK);
    let held = is_held(&lock);
    // A process has written there once it has the lock: another one may have its number now.
    let was_held = held == Some(false) && fs::metadata(&lock).is_ok_and(|file| file.len() > 0);
    // Earlier versions have no lock there, and neither has a process that is about to take it.
    held != Some(true) && (was_held || !is_running(pid))
}

#[cfg(test)]
mod tests {
    use std::process;

    use vim_run::Lock;

    use super::*;

    /// What [`remove_left`] leaves of attempts called `names`.
    fn left_of(names: &[&str], attempt: &str, prepare: impl FnOnce(&Path)) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let all = root.path().join(".ranks");
        for name in names {
            fs::create_dir_all(all.join(name)).unwrap();
        }
        prepare(&all);
        remove_left(&all, attempt);
        let left = fs::read_dir(all).into_iter().flatten();
        let mut left: Vec<_> =
            left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    }

    #[test]
    fn earlier_attempts_of_the_job_are_removed() {
        let names = ["7.0.0", "7.0.1", "7.1.0", "7.0.2", "70.0.0", "node 7-12-99", "named"];
        assert_eq!(left_of(&names, "7.0.2", |_| ()), ["7.0.2", "70.0.0", "named", "node 7-12-99"]);
    }

    #[test]
    fn attempts_of_processes_that_are_gone_are_removed() {
        let host = host_name();
        let mut child = process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let gone = format!("{host}-{}-99", child.id());
        let of_this = |time: u32| format!("{host}-{}-{time}", process::id());
        let [here, locked, stranger] = [97, 98, 99].map(of_this);
        let names = [&gone, &here, &locked, &stranger, "monday-1-2", "named"];
        let mut lock = None;
        let left = left_of(&names, &here, |all| {
            lock = Lock::acquire(&all.join(&locked).join(LOCK)).ok();
            // Of a process that had this one's number.
            fs::write(all.join(&stranger).join(LOCK), "{}").unwrap();
        });
        drop(lock);
        let mut expected = [&here, &locked, "monday-1-2", "named"];
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert_eq!(left_of(&[&gone], &here, |_| ()), [""; 0], "nor is the folder of all left");
    }
}
