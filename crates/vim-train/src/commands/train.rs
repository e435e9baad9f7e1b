//! The commands that train.

use std::path::Path;

use vim_run::{CONFIG, LOCK, Resume};

use super::new;
use crate::config::{Config, ConfigError, Origin, Problem, RecordedPaths, is_embedded};
use crate::error::Error;
use crate::run_folder::holds_run;
use crate::task::kinds::with_task;
use crate::train::{self, TrainArgs, WarmupArgs};
use crate::weights::place::Place;

pub(crate) fn run(args: &TrainArgs) -> Result<(), Error> {
    let path = &args.config;
    if path.is_dir() && !is_embedded(path) && !holds_run(path) {
        return Err(new::in_place_of(path));
    }
    let config = Config::load(path, &args.sets())?;
    RecordedPaths::moved(path, &config)?.iter().for_each(|line| eprintln!("note: {line}"));
    check_at_home(args, &config)?;
    with_task!(config.task, T => train::run::<T>(args))
}

/// A run's own file begins no other run of its name, only because it is called from elsewhere.
fn check_at_home(args: &TrainArgs, config: &Config) -> Result<(), Error> {
    let (file, folder) = (&args.config, config.run_folder()?);
    let is_set = args.sets().iter().any(|set| set.starts_with("run.root"));
    let is_record = file.ends_with(CONFIG) && file.with_file_name(LOCK).exists();
    let home = file.canonicalize().ok().filter(|_| is_record && !is_set);
    let home = home.as_deref().and_then(Path::parent);
    let (Some(home), name) = (home, config.run_name()?) else { return Ok(()) };
    let Some(root) = home.ends_with(&name).then(|| home.ancestors().nth(parts(&name))).flatten()
    else {
        return Ok(());
    };
    if holds_run(&folder) || args.resume == Resume::Never && (args.fresh || args.dry_run) {
        return Ok(());
    }
    let (home, folder, root) = (home.display(), folder.display(), root.display());
    let what = format!(
        "the file is of the run in {home}, but from here it names {folder}, where there is no run: \
         --set run.root={root} goes on with that one"
    );
    if args.resume == Resume::Never {
        eprintln!("note: {what}; another one is begun");
        return Ok(());
    }
    let origin = Origin::File { path: file.clone(), position: None };
    Err(ConfigError::new("run.root", Problem::Type(what)).at(origin).into())
}

/// Of how many folders a name is.
fn parts(name: &str) -> usize {
    Path::new(name).components().count()
}

/// `train --resume auto`, also of a run by its folder or name.
pub(crate) fn resume(args: &TrainArgs) -> Result<(), Error> {
    let resume = if args.resume == Resume::Must { Resume::Must } else { Resume::Auto };
    let place = Place::find(&args.config, &args.overrides.run_root()?, None);
    let run_found = place.ok().and_then(|place| place.run());
    let config = run_found.map_or_else(|| args.config.clone(), |run| run.join(CONFIG));
    run(&TrainArgs { resume, config, ..args.clone() })
}

pub(crate) fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    let task = Config::load_base(&args.config, &args.overrides.set)?.task;
    with_task!(task, T => train::warmup::<T>(args))
}

/// As [`train::preflight`].
pub(crate) fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    with_task!(config.task, T => train::preflight::<T>(config))
}
