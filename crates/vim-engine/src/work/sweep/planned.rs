//! A checked plan, and writing it: one process at a time, and only what differs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use vim_run::{Lock, LockError, move_aside};
use vim_sweep::{PLAN, RunState, SweepPlan};

use super::SweepRunError;
use super::folder::{Origins, SECTION, read_plan, state, write_file};
use crate::Error;

/// Held by the process that writes a plan, and there as long as it does.
const PLAN_LOCK: &str = "plan.lock";
/// How long another process may take to write its plan: thousands of files on a slow disk.
const PATIENCE: Duration = Duration::from_mins(10);
/// How often a folder may be moved aside while this process is about to lock it.
const ATTEMPTS: usize = 100;

/// A checked sweep, ready to be written.
pub struct Planned {
    /// Where it is to be.
    pub folder: PathBuf,
    /// Its runs.
    pub plan: SweepPlan,
    /// Runs that were not planned before.
    pub added: usize,
    /// What it is planned from.
    pub origins: Origins,
    /// Path and content of each run's file.
    pub configs: Vec<(String, String)>,
    /// Warnings about files that may be missing on the node.
    pub warnings: BTreeSet<String>,
}

impl Planned {
    /// Writes what differs from the files there. Others that plan this sweep wait, and have planned
    /// before: so it is planned `again` under the lock. With `fresh` what is there is moved aside.
    pub fn write(
        self,
        fresh: bool,
        again: impl FnOnce() -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        // A lock that is there is another planner's, or what a killed one left.
        let is_locked = self.folder.join(PLAN_LOCK).exists();
        if !fresh && !is_locked && self.differing()?.is_empty() {
            return Ok(self);
        }
        let mut lock = PlanLock::acquire(&self.folder)?;
        if fresh && set_aside(&self.folder)? {
            lock = PlanLock::acquire(&self.folder)?;
        }
        let planned = again()?;
        let inside = planned.folder.join("configs");
        fs::create_dir_all(&inside).map_err(Error::io("make", &inside))?;
        for (name, text) in planned.differing()? {
            write_file(&planned.folder, name, &text)?;
        }
        drop(lock);
        Ok(planned)
    }

    /// The files that are not there with this content. The plan is last, so that every file that it
    /// names exists.
    fn differing(&self) -> Result<Vec<(&str, String)>, Error> {
        let is_there = |name: &str, text: &str| {
            let path = self.folder.join(name);
            fs::read(path).is_ok_and(|there| there == text.as_bytes())
        };
        let configs = self.configs.iter().filter(|(name, text)| !is_there(name, text));
        let mut differing: Vec<(&str, String)> =
            configs.map(|(name, text)| (name.as_str(), text.clone())).collect();
        let plan = self.plan.to_jsonl();
        let plan = (!is_there(PLAN, &plan)).then_some((PLAN, plan));
        if plan.is_some() || !differing.is_empty() || !self.has_same_origins() {
            let text = toml::to_string(&self.origins)
                .map_err(|error| Error::internal(format!("{SECTION}: {error}")))?;
            differing.push((SECTION, text));
        }
        differing.extend(plan);
        Ok(differing)
    }

    /// Whether the recorded origins differ from these in nothing but when and how they were asked
    /// for.
    fn has_same_origins(&self) -> bool {
        let there = fs::read_to_string(self.folder.join(SECTION)).ok();
        let there = there.and_then(|text| toml::from_str::<Origins>(&text).ok());
        there.is_some_and(|there| {
            let Origins { command, planned, .. } = there.clone();
            there == Origins { command, planned, ..self.origins.clone() }
        })
    }

    /// How many runs are new, in words.
    pub fn added_in_words(&self) -> String {
        match self.added {
            0 => "nothing new".to_owned(),
            1 => "1 is new".to_owned(),
            added => format!("{added} are new"),
        }
    }
}

/// The right to write a plan, until dropped.
struct PlanLock {
    path: PathBuf,
    lock: Option<Lock>,
}

impl PlanLock {
    /// Of the sweep in `folder`, which is made if needed.
    fn acquire(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(PLAN_LOCK);
        for _ in 0..ATTEMPTS {
            fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
            return match Lock::acquire_within(&path, PATIENCE) {
                Ok(lock) => Ok(Self { path, lock: Some(lock) }),
                // Without locks a planner of another machine cannot be waited for. Each file is
                // replaced as a whole all the same.
                Err(LockError::Recorded(_)) => Ok(Self { path, lock: None }),
                // Another process has moved the folder aside.
                Err(LockError::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(LockError::Io(error)) => Err(Error::io("lock", path)(error)),
                Err(LockError::Held(holder)) => {
                    let folder = folder.to_owned();
                    Err(SweepRunError::BeingPlanned { folder, holder: Box::new(holder) }.into())
                }
            };
        }
        Err(Error::io("lock", path)(io::ErrorKind::NotFound.into()))
    }
}

impl Drop for PlanLock {
    fn drop(&mut self) {
        // Whoever waits for the lock of a file that is gone looks for the next one.
        if self.lock.as_ref().is_some_and(|lock| lock.check().is_ok()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Moves an existing sweep in `folder` aside, unless a process works on it. Returns whether there
/// was something.
fn set_aside(folder: &Path) -> Result<bool, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    if entries.flatten().all(|entry| entry.file_name() == PLAN_LOCK) {
        return Ok(false);
    }
    let plan = read_plan(folder)?.unwrap_or_default();
    let at_work = |name: &str| state(&folder.join(name)) == RunState::Running;
    if let Some(entry) = plan.entries.iter().find(|entry| at_work(&entry.name)) {
        let (folder, name) = (folder.to_owned(), entry.name.clone());
        return Err(SweepRunError::AtWork { folder, name }.into());
    }
    let aside = move_aside(folder)?;
    eprintln!("moved the sweep that was there to {}", aside.display());
    // It goes with the folder, and is not needed there.
    let _ = fs::remove_file(aside.join(PLAN_LOCK));
    Ok(true)
}
