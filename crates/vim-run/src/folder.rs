//! A run's folder: its files, who may use it, whether its run is resumed, and how it ended.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::lock::{LOCK, Lock, LockError};
use crate::metrics::Scores;
use crate::storage::{Disk, Storage, replace, write_json};

/// The effective configuration.
pub const CONFIG: &str = "config.toml";
/// Program, machine and job of the last start.
pub const ENVIRONMENT: &str = "env.json";
/// How the last process ended.
pub const EXIT: &str = "exit.json";
/// The log.
pub const LOG: &str = "log.txt";
/// Results.
pub const METRICS: &str = "metrics.jsonl";
/// Speeds, waits and memory.
pub const TIMING: &str = "timing.jsonl";
/// How deep below `run.root` a run may be: names such as `sweep/zoh-s0` make folders.
pub const MAX_DEPTH: usize = 4;
/// The paths of the configuration, resolved and as given.
pub const PATHS: &str = "paths.json";
/// The weights that the run started from.
pub const INIT: &str = "init.json";
/// Names of the classes, by label.
pub const CLASSES: &str = "classes.json";

/// What the tested model says of each test image.
pub const PREDICTIONS: &str = "predictions.csv";

/// The tested model's scores of each class, in segmentation and detection.
pub const PER_CLASS: &str = "per_class.csv";

/// The page of a finished run.
pub const RESULTS: &str = "results.html";

/// The folder of the checkpoints of the run in `run`.
pub fn checkpoints_in(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

/// What to do where there is a run already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Resume {
    /// Go on with it; start one where there is none.
    Auto,
    /// Stop with an error.
    #[default]
    Never,
    /// Go on with it; stop with an error where there is none.
    Must,
}

/// The result of opening a run's folder.
#[derive(Debug)]
pub enum Opened {
    /// A new or resumed run.
    Run(RunDir),
    /// A run that is finished.
    Finished {
        /// Its folder.
        path: PathBuf,
        /// How it ended.
        exit: ExitRecord,
    },
}

/// What [`RunDir::open`] would find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// No run.
    Nothing,
    /// A run to resume.
    Run,
    /// A run that is finished.
    Finished,
    /// A run to move aside for a new one.
    ToMoveAside,
}

impl Found {
    /// What happens to the run, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Nothing => "a new run",
            Self::Run => "there, and gone on with",
            Self::Finished => "finished, with nothing left to do",
            Self::ToMoveAside => "moved aside, and a new run in its place",
        }
    }
}

/// A run's folder, locked by this process until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    is_resumed: bool,
    moved_aside: Option<PathBuf>,
    rounding: Vec<String>,
    lock: Arc<Lock>,
}

impl RunDir {
    /// Opens the folder `path` for the run with the configuration `config`, a complete TOML text.
    ///
    /// `fresh` first moves an existing run to `<name>.old-N`, then starts a new one. For a resumed
    /// run, `check` compares the recorded configuration with `config`, and returns the differing
    /// keys that change results only in rounding.
    ///
    /// # Errors
    ///
    /// If another process uses the folder, if `resume` forbids an existing run or requires a
    /// missing one, or the error of `check`.
    pub fn open<E: From<RunError>>(
        path: PathBuf,
        config: &str,
        resume: Resume,
        fresh: bool,
        check: impl FnOnce(&Path) -> Result<Vec<String>, E>,
    ) -> Result<Opened, E> {
        // A misspelt name must not leave a folder behind.
        if resume == Resume::Must && !holds_run(&path) {
            return Err(RunError::NothingToResume { path }.into());
        }
        let mut lock = Self::lock(&path)?;
        let mut moved_aside = None;
        if fresh && holds_run(&path) {
            let aside = move_aside(&path)?;
            // The old lock moved with its folder and still protects that folder.
            lock = Self::lock(&path)?;
            moved_aside = Some(aside);
        }
        let mut run = Self { path, is_resumed: false, moved_aside, rounding: Vec::new(), lock };
        if holds_run(&run.path) {
            if resume == Resume::Never {
                return Err(RunError::AlreadyHoldsRun { path: run.path }.into());
            }
            run.rounding = check(&run.path)?;
            if let Some(exit) = finished(&run.path)? {
                return Ok(Opened::Finished { path: run.path, exit });
            }
            run.is_resumed = true;
            run.remove_exit()?;
        }
        let path = run.path.join(CONFIG);
        replace(&run.lock, &path, config.as_bytes()).map_err(RunError::io("write", path))?;
        Ok(Opened::Run(run))
    }

    /// What [`RunDir::open`] would find, without making, moving or locking anything.
    pub fn look<E: From<RunError>>(
        path: PathBuf,
        resume: Resume,
        fresh: bool,
        check: impl FnOnce(&Path) -> Result<Vec<String>, E>,
    ) -> Result<Found, E> {
        match (holds_run(&path), resume) {
            (false, Resume::Must) => Err(RunError::NothingToResume { path }.into()),
            (false, Resume::Auto | Resume::Never) => Ok(Found::Nothing),
            (true, _) if fresh => Ok(Found::ToMoveAside),
            (true, Resume::Never) => Err(RunError::AlreadyHoldsRun { path }.into()),
            (true, Resume::Auto | Resume::Must) => {
                check(&path)?;
                Ok(if finished(&path)?.is_some() { Found::Finished } else { Found::Run })
            }
        }
    }

    /// Makes the folder `path`, and keeps other processes out of it until the lock is dropped.
    ///
    /// # Errors
    ///
    /// If another process uses it.
    pub fn lock(path: &Path) -> Result<Arc<Lock>, RunError> {
        fs::create_dir_all(path).map_err(RunError::io("make", path))?;
        let file = path.join(LOCK);
        Lock::acquire(&file).map(Arc::new).map_err(|error| match error {
            LockError::Held(holder) => {
                RunError::InUse { path: path.to_owned(), holder: Box::new(holder) }
            }
            LockError::Recorded(holder) => {
                RunError::MayBeInUse { path: path.to_owned(), holder: Box::new(holder) }
            }
            LockError::Io(source) => RunError::io("lock", file)(source),
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the run is resumed; it may have been stopped before its first checkpoint.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Where `--fresh` moved the previous run.
    pub fn moved_aside(&self) -> Option<&Path> {
        self.moved_aside.as_deref()
    }

    /// Keys that differ from the recorded ones and change later rounding, with both values.
    pub fn rounding(&self) -> &[String] {
        &self.rounding
    }

    /// Whether a lock keeps other processes out; some cluster file systems have no locks.
    pub fn is_locked(&self) -> bool {
        self.lock.is_enforced()
    }

    /// Checks that the folder is still at [`Self::path`]: it may have been moved, removed or
    /// replaced by another run's.
    pub fn check(&self) -> Result<(), RunError> {
        Ok(self.lock.check()?)
    }

    /// The disk for files of this folder; it writes nothing once [`Self::check`] fails.
    pub fn storage(&self) -> Box<dyn Storage> {
        Box::new(Arc::clone(&self.lock))
    }

    /// Path of the results.
    pub fn metrics(&self) -> PathBuf {
        self.path.join(METRICS)
    }

    /// Returns when the names of the folder's files are on the disk, so that a crash leaves at
    /// least the part of `metrics.jsonl` that a checkpoint counts.
    pub fn sync(&self) -> Result<(), RunError> {
        Disk.sync_dir(&self.path).map_err(RunError::io("write", &self.path))
    }

    /// Records the environment of this process.
    pub fn write_environment(&self, environment: &impl Serialize) -> Result<(), RunError> {
        write_json(&self.lock, &self.path, ENVIRONMENT, environment)
    }

    /// Records the weights that the run starts from.
    pub fn write_init(&self, init: &impl Serialize) -> Result<(), RunError> {
        write_json(&self.lock, &self.path, INIT, init)
    }

    /// Records the paths of the configuration.
    pub fn write_paths(&self, paths: &impl Serialize) -> Result<(), RunError> {
        write_json(&self.lock, &self.path, PATHS, paths)
    }

    /// Records the names of the classes, by label.
    pub fn write_classes(&self, names: &[String]) -> Result<(), RunError> {
        write_json(&self.lock, &self.path, CLASSES, &names)
    }

    /// Records how this process ends.
    pub fn write_exit(&self, exit: &ExitRecord) -> Result<(), RunError> {
        write_json(&self.lock, &self.path, EXIT, exit)
    }

    fn remove_exit(&self) -> Result<(), RunError> {
        let path = self.path.join(EXIT);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RunError::io("remove", path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// How a process of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitReason {
    /// The last epoch is done.
    Finished,
    /// The requested steps are done, and more are left.
    Paused,
    /// A signal stopped the run; the state is saved.
    Interrupted,
    /// The loss or the gradient is no longer finite.
    Diverged,
    /// An error.
    Failed,
}

/// `exit.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Why the process ended.
    pub reason: ExitReason,
    /// Optimizer steps done.
    pub step: u64,
    /// The primary score, where known: on the test images under its name, as `top1`, and the best
    /// on the validation images, as `best_top1`.
    #[serde(flatten)]
    pub scores: Scores,
    /// The error, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The process's exit code.
    pub exit_code: u8,
}

impl ExitRecord {
    /// The record of a process that failed before training.
    pub fn failed(error: &dyn fmt::Display, exit_code: u8) -> Self {
        Self {
            reason: ExitReason::Failed,
            step: 0,
            scores: Scores::default(),
            error: Some(error.to_string()),
            exit_code,
        }
    }
}

/// Whether the folder holds a run; checkpoints without a configuration count as one.
fn holds_run(path: &Path) -> bool {
    path.join(CONFIG).is_file()
        || fs::read_dir(checkpoints_in(path)).is_ok_and(|mut inside| inside.next().is_some())
}

/// How the run in the folder `path` ended, if it is finished.
pub fn finished(path: &Path) -> Result<Option<ExitRecord>, RunError> {
    let path = path.join(EXIT);
    let exit: Option<ExitRecord> = match fs::read(&path) {
        // An unreadable record counts as none: the checkpoints decide.
        Ok(bytes) => serde_json::from_slice(&bytes).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(RunError::io("read", path)(error)),
    };
    Ok(exit.filter(|exit| exit.reason == ExitReason::Finished))
}

/// Records how the process in the folder `run` ends.
pub fn write_exit_in(run: &Path, exit: &ExitRecord) -> Result<(), RunError> {
    write_json(&Disk, run, EXIT, exit)
}

/// Renames the folder to the first free name of `<name>.old-1`, `<name>.old-2`, …
pub fn move_aside(path: &Path) -> Result<PathBuf, RunError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = (1..)
        .map(|number| path.with_file_name(format!("{name}.old-{number}")))
        .find(|candidate| !candidate.exists())
        .expect("invariant: the numbers do not end");
    Disk.rename(path, &aside).map_err(RunError::io("move aside", path))?;
    Ok(aside)
}
