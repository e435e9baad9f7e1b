//! The folder of a configured run, and whether the run recorded there can resume under it.

use std::io;
use std::path::Path;

use vim_data::{DataParts, InputKind, parts_of, read_input, read_text};
use vim_run::{
    CLASSES, CONFIG, ENVIRONMENT, EXIT, ExitRecord, Found, METRICS, Opened, Resume, RunDir,
    RunError, checkpoints_in, finished,
};
use vim_slurm::submissions;

use crate::config::{BatchSize, Config, Origin, RecordedPaths, dotted_values};
use crate::error::Error;

/// Keys that may differ on resume, because no result depends on them.
///
/// An entry ending in a dot stands for a section. `run.name` is listed because the folder was found
/// by it: another template that yields the same folder is the same name.
const FREE_KEYS: [&str; 25] = [
    "run.root",
    "run.name",
    "run.page",
    "log.",
    "slurm.",
    "devices.threads",
    // The bytes depend on `train.shards` alone.
    "devices.gpus",
    "devices.timeout",
    "devices.rendezvous",
    "devices.graph",
    "train.recompute",
    // They allow what is then said, and change nothing by themselves.
    "train.init_allow",
    "train.allow_changed_data",
    "data.workers",
    "data.readers",
    "data.prefetch",
    "data.path",
    "data.val_path",
    "data.val_labels",
    "data.index_cache",
    "data.stage",
    // Evaluations of the test images change no weights.
    "data.watch_test",
    "checkpoint.every",
    "checkpoint.keep_last",
    "checkpoint.archive",
];

/// Keys that may differ on resume although they change results in rounding, as another device does.
///
/// Micro-batches use the same images and random draws; the gradient is the same sum in another
/// order.
const ROUNDING_KEYS: [&str; 1] = ["train.accumulate"];

/// Whether `folder` holds any file of a run. A submission freezes the configuration of a run to be
/// in its folder `slurm`, which is none.
pub fn holds_run(folder: &Path) -> bool {
    let is_submissions = folder.ends_with(submissions::FOLDER);
    let configured = !is_submissions && folder.join(CONFIG).is_file();
    let names = [METRICS, EXIT, ENVIRONMENT];
    configured
        || names.iter().any(|name| folder.join(name).is_file())
        || checkpoints_in(folder).is_dir()
}

/// Whether a run was submitted in `folder` to SLURM and has not begun.
pub(crate) fn only_submitted(folder: &Path) -> bool {
    let is_sweep = || folder.join(vim_sweep::PLAN).is_file();
    submissions::path(folder).is_file() && !holds_run(folder) && !is_sweep()
}

/// [`RunDir::open`] for the run of the effective `config`; the recorded configuration must match.
pub fn open(config: &Config, resume: Resume, fresh: bool) -> Result<Opened, Error> {
    let check = |run: &Path| check_unchanged(run, config);
    let opened = RunDir::open(config.run_folder()?, &config.to_toml(), resume, fresh, check)?;
    if let Opened::Run(run) = &opened {
        run.write_paths(&RecordedPaths::of(config))?;
    }
    Ok(opened)
}

/// [`RunDir::look`] for the run of the effective `config`.
pub(crate) fn look(config: &Config, resume: Resume, fresh: bool) -> Result<Found, Error> {
    let check = |run: &Path| check_unchanged(run, config);
    RunDir::look(config.run_folder()?, resume, fresh, check)
}

/// Checks that a configuration or a script, which are UTF-8, can name `path`.
pub fn check_nameable(path: &Path) -> Result<(), Error> {
    if path.to_str().is_some() {
        return Ok(());
    }
    let why = io::Error::other("it is not UTF-8; use a folder whose whole path is");
    Err(Error::io("record the path", path)(why))
}

/// Checks that a later process can resume or start the run of the effective `config`; returns the
/// exit record if the run is finished, and an error if it was recorded with another configuration.
pub fn can_go_on(config: &Config) -> Result<Option<ExitRecord>, Error> {
    let path = config.run_folder()?;
    if !path.join(CONFIG).is_file() {
        return Ok(None);
    }
    check_unchanged(&path, config)?;
    Ok(finished(&path).unwrap_or(None))
}

/// Checks that the run in `run` can resume under `config`; returns one text per key that changes
/// rounding.
fn check_unchanged(run: &Path, config: &Config) -> Result<Vec<String>, Error> {
    check_recorded(run, config, |key| is_free(key) || ROUNDING_KEYS.contains(&key))?;
    differences(run, config, |key| !ROUNDING_KEYS.contains(&key))
}

/// Whether no result depends on `key`.
pub fn is_free(key: &str) -> bool {
    let under = |free: &str| key == free || (free.ends_with('.') && key.starts_with(free));
    FREE_KEYS.iter().any(|free| under(free))
}

/// The configuration in `file`; where a run recorded it and its data are elsewhere, that is said.
pub fn as_recorded(file: &Path, sets: &[String]) -> Result<Config, Error> {
    let config = Config::load(file, sets)?;
    RecordedPaths::moved(file, &config)?.iter().for_each(|line| eprintln!("note: {line}"));
    Ok(config)
}

/// The configuration of the run in `run`.
pub fn recorded_config(run: &Path) -> Result<Config, Error> {
    let path = run.join(CONFIG);
    let text = read_text(&path, InputKind::Script).map_err(Error::input(&path))?;
    Config::from_record(&text, &RecordedPaths::beside(&path)?)
        .map_err(|error| error.at(Origin::File { path, position: None }).into())
}

/// The class names that the run in `run` recorded, by label; none in runs of earlier versions.
pub fn recorded_classes(run: &Path) -> Result<Vec<String>, Error> {
    let path = run.join(CLASSES);
    let bytes = match read_input(&path, InputKind::Record) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        let path = path.display();
        Error::data(format!("{path} is damaged: {error}; remove it to go on without names"))
    })
}

/// Checks that the configuration recorded in `run` equals `config` except for free keys.
fn check_recorded(
    run: &Path,
    config: &Config,
    is_free: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let differences = differences(run, config, is_free)?;
    if differences.is_empty() {
        return Ok(());
    }
    let instead = longer(run, config)?;
    Err(RunError::ConfigChanged { path: run.to_owned(), differences, instead }.into())
}

/// How to train on from the run in `run`, if it is finished and `config` has more epochs or steps
/// than it made.
/// The rate is a function of the step and of their number: a longer run is another one.
fn longer(run: &Path, config: &Config) -> Result<Option<String>, Error> {
    let (recorded, now) = (recorded_config(run)?.train, &config.train);
    let Some(exit) = finished(run)? else { return Ok(None) };
    let grows = match (now.steps, recorded.steps) {
        (Some(steps), _) => steps > exit.step,
        (None, None) => now.epochs > recorded.epochs,
        (None, Some(_)) => false,
    };
    if !grows {
        return Ok(None);
    }
    let name = config.run_name()?;
    Ok(Some(format!(
        "it is finished: to train on from its weights, begin another run by --set \
         run.name={name}-longer --set train.init={} (docs/resume.md, Train longer)",
        run.display()
    )))
}

/// `config` with the parts of the data that it leaves open put in: those of the run in its folder,
/// unless that is to be `fresh`, or else those that are there. Where none can be told it is as it
/// was: opening the data says why.
pub fn with_parts(config: Config, fresh: bool) -> Config {
    if config.data.parts != Some(DataParts::Auto) {
        return config;
    }
    let folder = config.run_folder().ok().filter(|_| !fresh);
    let recorded = folder.and_then(|folder| recorded_config(&folder).ok()?.data.parts);
    let parts = recorded.or_else(|| parts_of(&config.data).ok()?);
    parts.map_or_else(|| config.clone(), |parts| with_those(&config, parts))
}

fn with_those(config: &Config, parts: DataParts) -> Config {
    let mut config = config.clone();
    config.data.parts = Some(parts);
    // What does not go with them is refused where the data are opened.
    if config.validate().is_ok() { config.effective() } else { config }
}

/// Every differing key that is not free, with both values.
fn differences(
    run: &Path,
    config: &Config,
    is_free: impl Fn(&str) -> bool,
) -> Result<Vec<String>, Error> {
    let recorded = recorded_config(run)?;
    let paths = RecordedPaths::beside(&run.join(CONFIG))?;
    // Left open, the parts of the data are those that the run began with.
    let is_open = config.data.parts == Some(DataParts::Auto);
    let as_begun = recorded.data.parts.filter(|_| is_open).map(|parts| with_those(config, parts));
    let (recorded, now) =
        (dotted_values(&recorded), dotted_values(as_begun.as_ref().unwrap_or(config)));
    let is_same = |key: &str| match (recorded.get(key), now.get(key)) {
        // The record has the number that was sought.
        _ if key == "train.batch_size" && config.train.batch_size == BatchSize::Auto => true,
        (Some(recorded), Some(now)) => recorded == now || paths.are_one(key, recorded, now),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let mut keys: Vec<&String> = recorded.keys().chain(now.keys()).collect();
    keys.sort();
    keys.dedup();
    let differences = keys.into_iter().filter(|key| !is_free(key) && !is_same(key)).map(|key| {
        let show = |value: Option<&toml::Value>| {
            value.map_or_else(|| "not set".to_owned(), toml::Value::to_string)
        };
        format!("{key} (recorded {}, now {})", show(recorded.get(key)), show(now.get(key)))
    });
    Ok(differences.collect())
}
