//! The run's folder of a configuration: whether the run recorded there can go on under it.

use std::fs;
use std::path::Path;

use vim_run::{CONFIG, ExitRecord, Found, Opened, Resume, RunDir, RunError, finished};

use crate::config::{Config, Origin, dotted_values};
use crate::error::Error;

/// Keys that may differ when a run goes on, because no result depends on them.
///
/// An entry ending in a dot stands for a section. `run.name` is here because the folder was found
/// by it: another template that leads to the same folder is the same name.
const FREE_KEYS: [&str; 17] = [
    "run.root",
    "run.name",
    "log.",
    "slurm.",
    "devices.threads",
    "train.recompute",
    "data.workers",
    "data.readers",
    "data.prefetch",
    "data.path",
    "data.val_path",
    "data.val_labels",
    "data.index_cache",
    "data.stage",
    "checkpoint.every",
    "checkpoint.keep_last",
    "checkpoint.archive",
];

/// Keys that may differ when a run goes on although results depend on them: in rounding alone, as on another device.
///
/// A batch in parts sees the same images with the same draws, and its gradient is the same sum in another order.
const ROUNDING_KEYS: [&str; 1] = ["train.accumulate"];

/// [`RunDir::open`] of the run that `config` (effective) describes.
///
/// # Errors
///
/// As [`RunDir::open`], or if that run was recorded with another configuration.
pub fn open(config: &Config, resume: Resume, fresh: bool) -> Result<Opened, Error> {
    let check = |run: &Path| check_unchanged(run, config);
    RunDir::open(config.run_folder()?, &config.to_toml(), resume, fresh, check)
}

/// [`RunDir::look`] for the run that `config` (effective) describes.
///
/// # Errors
///
/// As [`open`], but for a folder that is in use.
pub(crate) fn look(config: &Config, resume: Resume, fresh: bool) -> Result<Found, Error> {
    let check = |run: &Path| check_unchanged(run, config);
    RunDir::look(config.run_folder()?, resume, fresh, check)
}

/// Whether a later process could go on in the folder of the run that `config` (effective) describes, or
/// start there; `Some` if that run is finished.
///
/// # Errors
///
/// If the run there was recorded with another configuration.
pub(crate) fn can_go_on(config: &Config) -> Result<Option<ExitRecord>, Error> {
    let path = config.run_folder()?;
    if !path.join(CONFIG).is_file() {
        return Ok(None);
    }
    check_unchanged(&path, config)?;
    Ok(finished(&path).unwrap_or(None))
}

/// The run in `run` can go on under `config`; returns what will make its numbers differ in rounding, a text each.
///
/// # Errors
///
/// [`RunError::ConfigChanged`] if a key differs that results depend on.
fn check_unchanged(run: &Path, config: &Config) -> Result<Vec<String>, Error> {
    check_recorded(run, config, |key| is_free(key) || ROUNDING_KEYS.contains(&key))?;
    differences(run, config, |key| !ROUNDING_KEYS.contains(&key))
}

/// Whether no result depends on `key`.
pub(crate) fn is_free(key: &str) -> bool {
    let under = |free: &str| key == free || (free.ends_with('.') && key.starts_with(free));
    FREE_KEYS.iter().any(|free| under(free))
}

/// The weights of the run in `run` mean what `config` says they mean.
///
/// # Errors
///
/// [`RunError::ConfigChanged`] if the run was recorded with another model, or with data that are split
/// or normalised otherwise.
pub fn check_same_model_and_data(run: &Path, config: &Config) -> Result<(), Error> {
    let matters = |key: &str| {
        let sections = ["model.", "ssm.", "data."];
        (sections.iter().any(|section| key.starts_with(section)) || key == "run.seed")
            && !["ssm.scan", "ssm.dt_b_init"].contains(&key)
            && !FREE_KEYS.contains(&key)
    };
    check_recorded(run, config, |key| !matters(key))
}

/// The configuration of the run in `run`.
///
/// # Errors
///
/// If it cannot be read, or is not understood.
pub fn recorded_config(run: &Path) -> Result<Config, Error> {
    let path = run.join(CONFIG);
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    Config::from_toml(&text).map_err(|error| error.at(Origin::File { path, position: None }).into())
}

/// The configuration recorded in `run` is `config`, but for keys that are free.
fn check_recorded(
    run: &Path,
    config: &Config,
    is_free: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let differences = differences(run, config, is_free)?;
    if differences.is_empty() {
        return Ok(());
    }
    Err(RunError::ConfigChanged { path: run.to_owned(), differences }.into())
}

/// Every key that is not free and differs, with both values.
fn differences(
    run: &Path,
    config: &Config,
    is_free: impl Fn(&str) -> bool,
) -> Result<Vec<String>, Error> {
    let recorded = recorded_config(run)?;
    let (recorded, now) = (dotted_values(&recorded), dotted_values(config));
    let mut keys: Vec<&String> = recorded.keys().chain(now.keys()).collect();
    keys.sort();
    keys.dedup();
    let differences = keys
        .into_iter()
        .filter(|key| !is_free(key) && recorded.get(*key) != now.get(*key))
        .map(|key| {
            let show = |value: Option<&toml::Value>| {
                value.map_or_else(|| "not set".to_owned(), toml::Value::to_string)
            };
            format!("{key} (recorded {}, now {})", show(recorded.get(key)), show(now.get(key)))
        });
    Ok(differences.collect())
}
