//! One run, read from its folder as far as possible.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use vim_data::{InputKind, read_input, read_text};
use vim_run::checkpoint::{self, State};
use vim_run::metrics::ScoreKind;
use vim_run::{
    CONFIG, ENVIRONMENT, EXIT, ExitReason, ExitRecord, LOCK, LOG, METRICS, TIMING, checkpoints_in,
    is_held,
};

use crate::config::{Config, dotted, upgrade};
use crate::output::as_shown;
use crate::run_folder::{holds_run, only_submitted};
use crate::train::history::{Best, History};

/// A run as `runs list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RunRow {
    /// Its folder's name, or path below the folder that is listed.
    pub(crate) name: String,
    #[serde(serialize_with = "as_shown")]
    pub(crate) path: PathBuf,
    pub(crate) status: Status,
    pub(crate) method: Option<String>,
    pub(crate) seed: Option<u64>,
    pub(crate) dataset: Option<String>,
    pub(crate) step: Option<u64>,
    pub(crate) total_steps: Option<u64>,
    /// The best evaluation on the validation images.
    pub(crate) best: Option<Best>,
    /// The score that it goes by.
    #[serde(skip)]
    pub(crate) primary: ScoreKind,
    /// The primary score of the test images, as `test_top1`.
    #[serde(flatten)]
    pub(crate) test: BTreeMap<String, Option<f64>>,
    /// Seconds since the last change.
    pub(crate) age_s: Option<u64>,
    /// Unreadable or missing files.
    pub(crate) problems: Vec<String>,
}

impl RunRow {
    pub(super) fn best_shown(&self) -> Option<String> {
        self.best_score().map(|score| self.primary.show(score))
    }

    pub(super) fn best_score(&self) -> Option<f64> {
        self.best.as_ref()?.score.get(self.primary.name)
    }

    pub(super) fn test_shown(&self) -> Option<String> {
        self.test_score().map(|score| self.primary.show(score))
    }

    pub(super) fn test_score(&self) -> Option<f64> {
        self.test.values().next().copied().flatten()
    }
}

/// Everything a folder records of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) row: RunRow,
    /// Every key of its configuration, by its path.
    pub(crate) config: BTreeMap<String, toml::Value>,
    /// `env.json`.
    pub(crate) environment: Value,
    pub(crate) exit: Option<ExitRecord>,
    pub(crate) history: History,
    /// Its checkpoints by ascending step.
    pub(crate) checkpoints: Vec<(u64, PathBuf)>,
}

impl Run {
    /// Reads the run in `folder` as `name`.
    pub(crate) fn read(folder: &Path, name: String) -> Self {
        let mut problems = Vec::new();
        let (config, method) = read_config(folder, &mut problems);
        let environment = read_environment(folder, &mut problems);
        let changed = changed(folder);
        let (status, exit) = read_status(folder, changed, &mut problems);
        let status = if holds_run(folder) { status } else { Status::Unknown };
        let history = History::read(folder, &mut problems);
        let checkpoints = checkpoint::list(&checkpoints_in(folder));
        let aside = checkpoint::count_set_aside(&checkpoints_in(folder));
        if aside > 0 {
            problems.push(format!("damaged checkpoints set aside: {aside}"));
        }
        let recorded = history.last_train.map(|train| train.step);
        let saved = checkpoints.last().map(|(step, _)| *step);
        let text = |key: &str| config.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        let primary = history.primary();
        let row = RunRow {
            name,
            path: folder.to_owned(),
            status,
            method: method.or_else(|| text("model.discretization")),
            seed: config.get("run.seed").and_then(|seed| u64::try_from(seed.as_integer()?).ok()),
            dataset: text("data.dataset"),
            step: recorded.max(saved).max(exit.as_ref().map(|exit| exit.step)),
            total_steps: total_steps(&environment, &config, &checkpoints),
            best: history.best(),
            primary,
            test: [(
                format!("test_{}", primary.name),
                history.test.as_ref().and_then(|test| test.score(primary.name)),
            )]
            .into(),
            age_s: age.map(|age| age.as_secs()),
            problems,
        };
        Self { row, config, environment, exit, history, checkpoints }
    }

    /// A value of `env.json` as text.
    pub(crate) fn environment(&self, key: &str) -> Option<String> {
        match self.environment.get(key)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Some(other.to_string())
            }
        }
    }
}

/// The configuration's keys, and the discretization's description if this version can parse it.
fn read_config(
    folder: &Path,
    problems: &mut Vec<String>,
) -> (BTreeMap<String, toml::Value>, Option<String>) {
    let text = match read_text(&folder.join(CONFIG), InputKind::Script) {
        Ok(text) => text,
        Err(error) => {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            problems.push(match (missing, holds_run(folder)) {
                (true, true) => format!("{CONFIG} is missing"),
                (true, false) if only_submitted(folder) => {
                    "not begun: `vim-train slurm status` says how its job is".to_owned()
                }
                (true, false) => format!("no run: no {CONFIG}, no {METRICS}, no checkpoints"),
                (false, _) => format!("{CONFIG} cannot be read: {error}"),
            });
            return (BTreeMap::new(), None);
        }
    };
    let mut table = match text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => {
            problems.push(format!("{CONFIG} is not TOML: {}", first_line(error.message())));
            return (BTreeMap::new(), None);
        }
    };
    // Keys of other versions can still be shown and compared.
    let label = match Config::from_toml(&text) {
        Ok(config) => Some(config.model.method_label()),
        Err(error) => {
            let error = first_line(&error.to_string());
            problems.push(format!("{CONFIG} is not of this version: {error}"));
            None
        }
    };
    upgrade(&mut table);
    (dotted(table), label)
}

fn read_environment(folder: &Path, problems: &mut Vec<String>) -> Value {
    let read = read_input(&folder.join(ENVIRONMENT), InputKind::Record);
    let Ok(text) = read else { return Value::Null };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        problems.push(format!("{ENVIRONMENT} cannot be understood: {error}"));
        Value::Null
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Time of the last change in the run.
fn changed(folder: &Path) -> Option<SystemTime> {
    let names = [CONFIG, ENVIRONMENT, METRICS, TIMING, LOG, EXIT];
    let times =
        names.iter().filter_map(|name| fs::metadata(folder.join(name)).ok()?.modified().ok());
    times.max().or_else(|| fs::metadata(folder).ok()?.modified().ok())
}

/// Total steps of the run: as recorded at its start, else from the newest checkpoint.
fn total_steps(
    environment: &Value,
    config: &BTreeMap<String, toml::Value>,
    checkpoints: &[(u64, PathBuf)],
) -> Option<u64> {
    if let Some(steps) = environment.get("total_steps").and_then(Value::as_u64) {
        return Some(steps);
    }
    let text = read_input(&checkpoints.last()?.1.join("state.json"), InputKind::Record).ok()?;
    let state: State = serde_json::from_slice(&text).ok()?;
    let epochs = u64::try_from(config.get("train.epochs")?.as_integer()?).ok()?;
    Some(state.steps_per_epoch * epochs).filter(|&steps| steps > 0)
}

/// How a run stands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum, strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Status {
    /// A process is at work on it.
    Running,
    /// The last epoch is done.
    Finished,
    /// It was asked for a number of steps, and did them.
    Paused,
    /// A signal stopped it; the state is saved.
    Interrupted,
    /// The loss or the gradient was no longer finite.
    Diverged,
    /// An error ended it.
    Failed,
    /// It did not record its end, and no process is at work on it: it was killed, or the machine
    /// stopped.
    Stale,
    /// The folder does not say, or holds no run.
    Unknown,
}

impl From<ExitReason> for Status {
    fn from(reason: ExitReason) -> Self {
        match reason {
            ExitReason::Finished => Self::Finished,
            ExitReason::Paused => Self::Paused,
            ExitReason::Interrupted => Self::Interrupted,
            ExitReason::Diverged => Self::Diverged,
            ExitReason::Failed => Self::Failed,
        }
    }
}

/// Without locks, a run with a change this recent counts as running.
const RECENT: Duration = Duration::from_secs(600);

/// The status of the run in `folder` that was last changed at `changed`, and the record of its end.
fn read_status(
    folder: &Path,
    changed: Option<SystemTime>,
    problems: &mut Vec<String>,
) -> (Status, Option<ExitRecord>) {
    // Check the lock first: a resumed run may be about to remove its last exit record.
    let held = is_held(&folder.join(LOCK));
    if held == Some(true) {
        return (Status::Running, None);
    }
    match read_input(&folder.join(EXIT), InputKind::Record) {
        Ok(text) => match serde_json::from_slice::<ExitRecord>(&text) {
            Ok(exit) => (exit.reason.into(), Some(exit)),
            Err(error) => {
                problems.push(format!("{EXIT} cannot be understood: {error}"));
                (Status::Unknown, None)
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_recent = changed
                .and_then(|changed| SystemTime::now().duration_since(changed).ok())
                .is_some_and(|age| age < RECENT);
            let at_work = held.is_none() && is_recent;
            (if at_work { Status::Running } else { Status::Stale }, None)
        }
        Err(error) => {
            problems.push(format!("{EXIT} cannot be read: {error}"));
            (Status::Unknown, None)
        }
    }
}
