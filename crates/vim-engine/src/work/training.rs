//! Training of the task that a configuration names.

use std::path::Path;

use vim_run::{CONFIG, LOCK, Resume};

use crate::config::{Config, ConfigError, Origin, Problem};
use crate::error::Error;
use crate::run_folder::{as_recorded, holds_run};
use crate::task::kinds::with_task;
use crate::train::{self, TrainOptions};

/// `vim-train train`.
pub fn run(options: &TrainOptions) -> Result<(), Error> {
    let config = as_recorded(&options.config, &options.sets)?;
    check_at_home(options, &config)?;
    with_task!(config.task, T => train::run::<T>(options))
}

/// A run's own file begins no other run of its name, only because it is called from elsewhere.
fn check_at_home(options: &TrainOptions, config: &Config) -> Result<(), Error> {
    let (file, folder) = (&options.config, config.run_folder()?);
    let is_set = options.sets.iter().any(|set| set.starts_with("run.root"));
    let is_record = file.ends_with(CONFIG) && file.with_file_name(LOCK).exists();
    let home = file.canonicalize().ok().filter(|_| is_record && !is_set);
    let home = home.as_deref().and_then(Path::parent);
    let (Some(home), name) = (home, config.run_name()?) else { return Ok(()) };
    let Some(root) = home.ends_with(&name).then(|| home.ancestors().nth(parts(&name))).flatten()
    else {
        return Ok(());
    };
    let is_anew = options.fresh || options.dry_run;
    if holds_run(&folder) || options.resume == Resume::Never && is_anew {
        return Ok(());
    }
    let (home, folder, root) = (home.display(), folder.display(), root.display());
    let what = format!(
        "the file is of the run in {home}, but from here it names {folder}, where there is no run: \
         --set run.root={root} goes on with that one"
    );
    if options.resume == Resume::Never {
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

/// `vim-train warmup`, as [`train::warmup`].
pub fn warmup(path: &Path, sets: &[String], parent: Option<u32>, json: bool) -> Result<(), Error> {
    let task = Config::load_base(path, sets)?.task;
    with_task!(task, T => train::warmup::<T>(path, sets, parent, json))
}

/// Runs the start-up checks of `train` that need neither images nor the device; returns a text for
/// each file missing on this machine.
pub fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    with_task!(config.task, T => train::preflight::<T>(config))
}
