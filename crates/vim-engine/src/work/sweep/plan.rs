//! Which runs a sweep has, each checked.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;
use std::time::SystemTime;

use vim_run::rfc3339;
use vim_sweep::{
    Assignments, Candidate, Metric, SEED, SweepError, SweepPlan, cells, check_matching, described,
};

use super::folder::{Origins, Sweep, SweepFile, read_plan};
use super::planned::Planned;
use super::{SweepRunError, Which};
use crate::Error;
use crate::config::{
    Config, ConfigError, Loaded, Origin, Problem, VERSION, canonical, check_key, dotted_values,
    keys, meant_version,
};
use crate::run_folder::is_free;
use crate::task::kinds::{SCORES, scores_of};
use crate::work::training::preflight;

/// Adds to the `error` of a plan that changed that `file` says by the keys of another version what
/// the `known` plan meant, if so.
fn with_version(
    mut error: SweepError,
    file: &Path,
    known: &SweepPlan,
    runs: &[Candidate],
) -> SweepError {
    if let SweepError::Changed { folder, differences } = &mut error {
        let frozen = known.entries.iter().filter_map(|entry| Sweep::frozen(folder, entry));
        let planned = frozen.map(|values| meant_version(&values)).min().unwrap_or(VERSION);
        let now = runs.iter().map(|run| meant_version(&run.values)).min().unwrap_or(VERSION);
        if planned < now {
            differences.push(format!(
                "the plan is of version {planned}, and the file of version {now}: write \
                 `version = {planned}` in {} to go on with it",
                file.display()
            ));
        }
    }
    error
}

/// The planned sweep of `which`; a file's sweep is planned if it is new or has grown.
pub fn find_or_plan(which: &Which) -> Result<Sweep, Error> {
    if which.sweep.is_dir() {
        return Sweep::find(which);
    }
    let (file, sets) = (&which.sweep, &which.sets);
    let cells = Cells::load(file, sets)?;
    let plan = || cells.plan(file, sets, false);
    let planned = plan()?.write(false, plan)?;
    Sweep::open(&planned.folder)
}

/// A file's sweep, and every run's configuration.
pub struct Cells {
    base: SweepFile,
    runs: Vec<Candidate>,
    configs: Vec<Config>,
    /// Warnings about files that may be missing on the node.
    warnings: BTreeSet<String>,
}

impl SweepFile {
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
        // Of any task, as files of before name them; an error lists those of these runs.
        let metric = Metric::parse(name, &SCORES).or_else(|_| {
            let scores = scores_of(|kind| configs.iter().any(|config| config.task == kind));
            Metric::parse(name, &scores).map_err(|error| self.place(error))
        })?;
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
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, Error> {
        let base = SweepFile::load(path, sets)?;
        base.check_grid()?;
        let many = base.sweep.grid.contains_key("task");
        let scores = scores_of(|kind| many || kind == base.loaded.config.task);
        let combinations = cells(&base.sweep, &SCORES)
            .or_else(|_| cells(&base.sweep, &scores))
            .map_err(|error| base.place(error))?;
        check_sets(sets, &combinations)?;
        let all = combinations.len();
        let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut runs, mut configs) = (Vec::new(), Vec::new());
        let mut warnings = BTreeSet::new();
        for assignments in combinations {
            match check_run(path, sets, &assignments, &base) {
                Ok((name, config, absent)) => {
                    warnings.extend(absent);
                    let values = canonical(dotted_values(&config));
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
        // Seeds of version 1 differ in the images they hold out, and count as like for like.
        let is_old = runs.iter().all(|run| !run.values.contains_key("data.val_seed"));
        let values = |(run, config): (&Candidate, &Config)| {
            let values = if is_old { run.values.clone() } else { dotted_values(config) };
            (run.name.clone(), values)
        };
        let named: Vec<(String, Assignments)> = runs.iter().zip(&configs).map(values).collect();
        let matching = |rules: &[String], is_free: fn(&str) -> bool| {
            check_matching(rules, &named, &keys(), is_free).map_err(|error| base.place(error))
        };
        matching(&base.sweep.must_match, is_free)?;
        // SLURM requests affect speeds, not results, and an array has one request for all tasks.
        matching(&["slurm".to_owned()], |_: &str| false)?;
        Ok(Self { base, runs, configs, warnings })
    }

    /// Plans these runs of `file`, checked against an existing plan unless `fresh`.
    /// Fails if the existing plan differs.
    pub fn plan(&self, file: &Path, sets: &[String], fresh: bool) -> Result<Planned, Error> {
        let Self { base, runs, configs, warnings } = self;
        let folder = &base.folder;
        let known = if fresh { None } else { read_plan(folder)? };
        let before = known.as_ref().map_or(0, |known| known.entries.len());
        let recorded = |entry: &_| Sweep::frozen(folder, entry);
        let plan = match &known {
            None => SweepPlan::new(runs, is_free),
            Some(known) => known
                .extended(folder, runs, is_free, recorded)
                .map_err(|error| with_version(error, file, known, runs)),
        };
        let plan = plan.map_err(|error| base.place(error))?;
        let added = plan.entries.len() - before;
        let text = |name: &String| {
            let config = runs.iter().zip(configs).find(|(run, _)| run.name == *name);
            config.map(|(_, config)| config.to_toml()).unwrap_or_default()
        };
        // Those of planned runs too: keys without effect on results follow the file.
        let configs =
            plan.entries.iter().map(|entry| (entry.config.clone(), text(&entry.name))).collect();
        let origins = Origins {
            source: file.to_owned(),
            sets: sets.to_vec(),
            command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            planned: rfc3339(SystemTime::now()),
            sweep: base.sweep.clone(),
        };
        let (folder, warnings) = (folder.clone(), warnings.clone());
        Ok(Planned { folder, plan, added, origins, configs, warnings })
    }
}

/// A run's name, configuration and warnings, or its error in one line.
fn check_run(
    path: &Path,
    sets: &[String],
    assignments: &Assignments,
    base: &SweepFile,
) -> Result<(String, Config, Vec<String>), String> {
    let of_grid = as_sets(assignments);
    let loaded = || -> Result<_, ConfigError> {
        let mut loaded = Loaded::read(path, &[sets, of_grid.as_slice()].concat())?;
        loaded.config.sweep = None;
        loaded.config.fill_init().map_err(|error| loaded.place(error))?;
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
        Some(key) => Err(SweepRunError::SetInGrid(key.to_owned())),
        None => Ok(()),
    }
}
