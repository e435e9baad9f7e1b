//! One run, read from its folder as far as possible.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;
use vim_run::checkpoint::{self, State};
use vim_run::{CONFIG, ENVIRONMENT, EXIT, ExitRecord, LOG, METRICS, TIMING, checkpoints_in};

use super::history::{Best, History};
use super::status::{self, Status};
use crate::commands::train::PRIMARY;
use crate::config::{Config, dotted};

/// A run as `runs list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its folder's name, or path below the folder that is listed.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// The run's status.
    pub status: Status,
    /// The discretization.
    pub method: Option<String>,
    /// The random seed.
    pub seed: Option<u64>,
    /// The dataset.
    pub dataset: Option<String>,
    /// Optimizer steps done.
    pub step: Option<u64>,
    /// Total number of steps.
    pub total_steps: Option<u64>,
    /// The best evaluation on the validation images.
    pub best: Option<Best>,
    /// The primary score of the test images, as `test_top1`.
    #[serde(flatten)]
    pub test: BTreeMap<String, Option<f64>>,
    /// Seconds since the last change.
    pub age_s: Option<u64>,
    /// Unreadable or missing files.
    pub problems: Vec<String>,
}

impl Row {
    /// The best primary score, formatted.
    pub(super) fn best_shown(&self) -> Option<String> {
        self.best_score().map(|score| PRIMARY.show(score))
    }

    /// The best primary score.
    pub(super) fn best_score(&self) -> Option<f64> {
        self.best.as_ref()?.score.get(PRIMARY.name)
    }

    /// The primary score of the test images.
    pub(super) fn test_score(&self) -> Option<f64> {
        self.test.values().next().copied().flatten()
    }
}

/// Everything a folder records of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The summary.
    pub row: Row,
    /// Every key of its configuration, by its path.
    pub config: BTreeMap<String, toml::Value>,
    /// `env.json`.
    pub environment: Value,
    /// The exit record.
    pub exit: Option<ExitRecord>,
    /// The metrics.
    pub history: History,
    /// Its checkpoints by ascending step.
    pub checkpoints: Vec<(u64, PathBuf)>,
}

impl Run {
    /// Reads the run in `folder` as `name`.
    pub fn read(folder: &Path, name: String) -> Self {
        let mut problems = Vec::new();
        let (config, method) = read_config(folder, &mut problems);
        let environment = read_environment(folder, &mut problems);
        let changed = changed(folder);
        let (status, exit) = status::read(folder, changed, &mut problems);
        let status = if holds_run(folder) { status } else { Status::Unknown };
        let history = History::read(folder, &mut problems);
        let checkpoints = checkpoint::list(&checkpoints_in(folder));
        let aside = checkpoint::count_set_aside(&checkpoints_in(folder));
        if aside > 0 {
            problems.push(format!("damaged checkpoints set aside: {aside}"));
        }
        let recorded = history.train.last().map(|train| train.step);
        let saved = checkpoints.last().map(|(step, _)| *step);
        let text = |key: &str| config.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        let row = Row {
            name,
            path: folder.to_owned(),
            status,
            method: method.or_else(|| text("model.discretization")),
            seed: config
                .get("run.seed")
                .and_then(toml::Value::as_integer)
                .and_then(|seed| u64::try_from(seed).ok()),
            dataset: text("data.dataset"),
            step: recorded.max(saved).max(exit.as_ref().map(|exit| exit.step)),
            total_steps: total_steps(&environment, &config, &checkpoints),
            best: history.best(),
            test: [(
                format!("test_{}", PRIMARY.name),
                history.test.as_ref().and_then(|test| test.score(PRIMARY.name)),
            )]
            .into(),
            age_s: age.map(|age| age.as_secs()),
            problems,
        };
        Self { row, config, environment, exit, history, checkpoints }
    }

    /// A value of `env.json` as text.
    pub fn environment(&self, key: &str) -> Option<String> {
        match self.environment.get(key)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Some(other.to_string())
            }
        }
    }
}

/// Whether `folder` holds any file of a run.
pub(crate) fn holds_run(folder: &Path) -> bool {
    let names = [CONFIG, METRICS, EXIT, ENVIRONMENT];
    names.iter().any(|name| folder.join(name).is_file()) || checkpoints_in(folder).is_dir()
}

/// The configuration's keys, and the discretization's description if this version can parse it.
fn read_config(
    folder: &Path,
    problems: &mut Vec<String>,
) -> (BTreeMap<String, toml::Value>, Option<String>) {
    let text = match fs::read_to_string(folder.join(CONFIG)) {
        Ok(text) => text,
        Err(error) => {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            problems.push(match (missing, holds_run(folder)) {
                (true, true) => format!("{CONFIG} is missing"),
                (true, false) => format!("no run: no {CONFIG}, no {METRICS}, no checkpoints"),
                (false, _) => format!("{CONFIG} cannot be read: {error}"),
            });
            return (BTreeMap::new(), None);
        }
    };
    let table = match text.parse::<toml::Table>() {
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
    (dotted(table), label)
}

fn read_environment(folder: &Path, problems: &mut Vec<String>) -> Value {
    let Ok(text) = fs::read(folder.join(ENVIRONMENT)) else { return Value::Null };
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
    let text = fs::read(checkpoints.last()?.1.join("state.json")).ok()?;
    let state: State = serde_json::from_slice(&text).ok()?;
    let epochs = u64::try_from(config.get("train.epochs")?.as_integer()?).ok()?;
    Some(state.steps_per_epoch * epochs).filter(|&steps| steps > 0)
}
