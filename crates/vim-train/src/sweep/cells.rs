//! From a file to the configurations of its runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vim_sweep::{Assignments, Candidate, SweepConfig, cells, check_matching, described};

use super::error::StudyError;
use crate::config::{Config, Origin, check_key, dotted_values, keys};
use crate::error::Error;
use crate::run_dir::is_free;

/// A file's sweep: its section, and every run's configuration.
pub(super) struct Cells {
    /// The section.
    pub(super) sweep: SweepConfig,
    /// The sweep's folder.
    pub(super) folder: PathBuf,
    /// The runs as the plan knows them.
    pub(super) runs: Vec<Candidate>,
    /// Their configurations.
    pub(super) configs: Vec<Config>,
}

/// The section of `path`, and the folder of its sweep.
pub(super) fn section(path: &Path, sets: &[String]) -> Result<(SweepConfig, PathBuf), Error> {
    // A template may name keys that only the grid sets: it is checked with each run's.
    let mut sets = sets.to_vec();
    sets.push("run.name=sweep".into());
    let base = Config::load_sweep(path, &sets)?;
    let sweep = base.sweep.ok_or_else(|| StudyError::NoSection { path: path.to_owned() })?;
    let folder = base.run.root.join(&sweep.name);
    Ok((sweep, folder))
}

impl Cells {
    /// Loads and checks every run of `path`, with `sets` over the file.
    ///
    /// # Errors
    ///
    /// The section's first mistake; of configurations all mistakes are printed first.
    pub(super) fn load(path: &Path, sets: &[String]) -> Result<Self, Error> {
        let (sweep, folder) = section(path, sets)?;
        // With a key that there is not, each run says so; that the baseline has another one is no news.
        let mut checked = sweep.clone();
        if sweep.grid.keys().any(|key| check_key(key).is_err()) {
            checked.report.baseline.clear();
        }
        let combinations = cells(&checked)?;
        check_sets(sets, &combinations)?;
        let mut problems: BTreeMap<String, usize> = BTreeMap::new();
        let (mut runs, mut configs) = (Vec::new(), Vec::new());
        for assignments in combinations {
            match load(path, sets, &assignments, &folder) {
                Ok((name, config)) => {
                    let values = dotted_values(&config);
                    runs.push(Candidate { assignments, name, values });
                    configs.push(config);
                }
                Err(problem) => *problems.entry(problem).or_default() += 1,
            }
        }
        if !problems.is_empty() {
            for (problem, runs) in &problems {
                let times = if *runs > 1 { format!(" ({runs} runs)") } else { String::new() };
                eprintln!("{problem}{times}");
            }
            let bad = problems.values().sum();
            let cells = runs.len() + bad;
            return Err(StudyError::Cells { path: path.to_owned(), cells, problems: bad }.into());
        }
        let named: Vec<(String, Assignments)> =
            runs.iter().map(|run| (run.name.clone(), run.values.clone())).collect();
        check_matching(&sweep.must_match, &named, &keys(), is_free)?;
        // No result depends on what SLURM is asked for, but speeds do, and an array asks once for all.
        check_matching(&["slurm".to_owned()], &named, &keys(), |_| false)?;
        Ok(Self { sweep, folder, runs, configs })
    }
}

/// A run's name and configuration, or what is wrong with it in a line.
fn load(
    path: &Path,
    sets: &[String],
    assignments: &Assignments,
    folder: &Path,
) -> Result<(String, Config), String> {
    let mut all = sets.to_vec();
    all.extend(as_sets(assignments));
    let loaded = Config::load_sweep(path, &all).and_then(|mut config| {
        config.sweep = None;
        config.run.root = folder.to_owned();
        Ok((config.run_name()?, config))
    });
    loaded.map_err(|error| {
        if let Origin::Set(set) = &error.origin
            && as_sets(assignments).contains(set)
        {
            return format!("{}: sweep.grid: {set}: {}", path.display(), error.problem);
        }
        format!("{{ {} }}: {error}", described(assignments))
    })
}

/// The assignments as `--set` has them.
fn as_sets(assignments: &Assignments) -> Vec<String> {
    assignments.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// What the grid varies is not set besides: the grid would silently win.
fn check_sets(sets: &[String], combinations: &[Assignments]) -> Result<(), StudyError> {
    let keys = sets.iter().filter_map(|set| Some(set.split_once('=')?.0.trim()));
    let varied = |key: &&str| combinations.first().is_some_and(|cell| cell.contains_key(*key));
    match keys.into_iter().find(varied) {
        Some(key) => Err(StudyError::SetInGrid { key: key.to_owned() }),
        None => Ok(()),
    }
}
