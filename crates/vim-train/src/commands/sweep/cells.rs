//! Builds the configurations of a sweep file's runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vim_sweep::{
    Assignments, Candidate, Metric, SEED, SweepConfig, SweepError, cells, check_matching, described,
};

use super::error::SweepRunError;
use crate::commands::train::{SCORES, preflight};
use crate::config::{Config, ConfigError, Loaded, Origin, Problem, check_key, dotted_values, keys};
use crate::error::Error;
use crate::run_folder::is_free;

/// A file's sweep.
pub(super) struct Base {
    /// The file's configuration, without the grid.
    loaded: Loaded,
    /// The section.
    pub(super) sweep: SweepConfig,
    pub(super) folder: PathBuf,
}

/// A file's sweep, and every run's configuration.
pub(super) struct Cells {
    /// The file.
    pub(super) base: Base,
    /// The runs as planned.
    pub(super) runs: Vec<Candidate>,
    /// Their configurations.
    pub(super) configs: Vec<Config>,
    /// Warnings about files that may be missing on the node.
    pub(super) warnings: BTreeSet<String>,
}

impl Base {
    /// The sweep of `path` with `sets` over it.
    /// A file that describes a single run is an error.
    pub(super) fn load(path: &Path, sets: &[String]) -> Result<Self, Error> {
        // Templates may name keys that only the grid sets: they are checked with each run.
        let mut sets = sets.to_vec();
        sets.push("run.name=sweep".into());
        let mut loaded = Loaded::read(path, &sets)?;
        let sweep = loaded.config.sweep.take();
        let sweep = sweep.ok_or_else(|| SweepRunError::NoSection { path: path.to_owned() })?;
        let folder = loaded.config.run.root.join(&sweep.name);
        Ok(Self { loaded, sweep, folder })
    }

    /// The error at the section's line.
    pub(super) fn place(&self, error: SweepError) -> Error {
        match ConfigError::of_sweep(error) {
            Ok(error) => self.loaded.place(error).into(),
            Err(error) => error.into(),
        }
    }

    /// Checks that every key of the grid exists.
    fn check_grid(&self) -> Result<(), ConfigError> {
        for key in self.sweep.grid.keys() {
            check_key(key).map_err(|error| self.at_grid(key, *error.problem))?;
        }
        Ok(())
    }

    /// The error in a key of the grid or one of its values.
    fn at_grid(&self, key: &str, problem: Problem) -> ConfigError {
        let is_short = key == SEED && !self.sweep.seeds.is_empty();
        let key = if is_short { "sweep.seeds".into() } else { format!("sweep.grid.{key}") };
        self.loaded.place(ConfigError::new(key, problem))
    }

    /// Checks that some run has the reported metric.
    fn check_metric(&self, configs: &[Config]) -> Result<(), Error> {
        let name = &self.sweep.report.metric;
        let metric = Metric::parse(name, SCORES).map_err(|error| self.place(error))?;
        if !metric.is_of_average() || configs.iter().any(|config| config.train.ema.is_some()) {
            return Ok(());
        }
        let problem = Problem::Conflict {
            value: name.clone(),
            other: "train.ema, which no run sets".into(),
            reason: "set it, or report what the weights themselves reach".into(),
        };
        Err(self.loaded.place(ConfigError::new("sweep.report.metric", problem)).into())
    }
}

impl Cells {
    /// Loads and checks every run of `path`, with `sets` over the file.
    /// All configuration errors are printed before the command fails.
    pub(super) fn load(path: &Path, sets: &[String]) -> Result<Self, Error> {
        let base = Base::load(path, sets)?;
        base.check_grid()?;
        let combinations = cells(&base.sweep, SCORES).map_err(|error| base.place(error))?;
        check_sets(sets, &combinations)?;
        let all = combinations.len();
        let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut runs, mut configs) = (Vec::new(), Vec::new());
        let mut warnings = BTreeSet::new();
        for assignments in combinations {
            match run(path, sets, &assignments, &base) {
                Ok((name, config, absent)) => {
                    warnings.extend(absent);
                    let values = dotted_values(&config);
                    runs.push(Candidate { assignments, name, values });
                    configs.push(config);
                }
                Err(problem) => problems.entry(problem).or_default().push(described(&assignments)),
            }
        }
        if !problems.is_empty() {
            for (problem, runs) in &problems {
                eprintln!("{problem}{}", whose(runs, all));
            }
            let problems = all - runs.len();
            return Err(SweepRunError::Cells { path: path.to_owned(), cells: all, problems }.into());
        }
        base.check_metric(&configs)?;
        let named: Vec<(String, Assignments)> =
            runs.iter().map(|run| (run.name.clone(), run.values.clone())).collect();
        let matching = |rules: &[String], is_free: fn(&str) -> bool| {
            check_matching(rules, &named, &keys(), is_free).map_err(|error| base.place(error))
        };
        matching(&base.sweep.must_match, is_free)?;
        // SLURM requests affect speeds, not results, and an array has one request for all tasks.
        matching(&["slurm".to_owned()], |_: &str| false)?;
        Ok(Self { base, runs, configs, warnings })
    }
}

/// A run's name, configuration and warnings, or its error in one line.
fn run(
    path: &Path,
    sets: &[String],
    assignments: &Assignments,
    base: &Base,
) -> Result<(String, Config, Vec<String>), String> {
    let of_grid = as_sets(assignments);
    let loaded = || -> Result<_, ConfigError> {
        let mut loaded = Loaded::read(path, &[sets, of_grid.as_slice()].concat())?;
        loaded.config.sweep = None;
        loaded.config.run.root.clone_from(&base.folder);
        let absent = preflight(&loaded.config).map_err(|error| loaded.place(error))?;
        let name = loaded.config.run_name().map_err(|error| loaded.place(error))?;
        Ok((name, loaded.config, absent))
    };
    loaded().map_err(|error| {
        let Origin::Set(set) = &error.origin else { return error.to_string() };
        let place = of_grid.iter().position(|of_grid| of_grid == set);
        match place.and_then(|place| assignments.keys().nth(place)) {
            Some(key) => {
                let set = set.clone();
                let error = base.at_grid(key, *error.problem);
                format!("{}: sweep.grid: {set}: {}", error.origin, error.problem)
            }
            None => error.to_string(),
        }
    })
}

/// Names the runs with a problem, unless all have it.
fn whose(runs: &[String], all: usize) -> String {
    match runs {
        [] => String::new(),
        _ if runs.len() == all => String::new(),
        [one] => format!(" (the run {{ {one} }})"),
        [first, ..] => format!(" ({} runs, {{ {first} }} the first)", runs.len()),
    }
}

/// The assignments in `--set` form.
fn as_sets(assignments: &Assignments) -> Vec<String> {
    assignments.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Rejects `--set` of a key that the grid varies: the grid would silently win.
fn check_sets(sets: &[String], combinations: &[Assignments]) -> Result<(), SweepRunError> {
    let keys = sets.iter().filter_map(|set| Some(set.split_once('=')?.0.trim()));
    let varied = |key: &&str| combinations.first().is_some_and(|cell| cell.contains_key(*key));
    match keys.into_iter().find(varied) {
        Some(key) => Err(SweepRunError::SetInGrid { key: key.to_owned() }),
        None => Ok(()),
    }
}
