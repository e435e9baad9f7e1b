//! A sweep's folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vim_run::storage::{Disk, replace};
use vim_sweep::{Assignments, PLAN, PlannedRun, SweepConfig, SweepError, SweepPlan};

use super::WhichArgs;
use super::cells::Base;
use super::error::SweepRunError;
use crate::config::dotted;
use crate::error::Error;

/// Name of the section's copy.
const SECTION: &str = "sweep.toml";

/// `sweep.toml`: the plan's source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Origins {
    /// The file.
    pub(super) source: PathBuf,
    /// The `--set` overrides.
    pub(super) sets: Vec<String>,
    /// The command line.
    pub(super) command: Vec<String>,
    /// When.
    pub(super) planned: String,
    /// The section.
    pub(super) sweep: SweepConfig,
}

/// A planned sweep.
pub(super) struct Sweep {
    pub(super) folder: PathBuf,
    /// Its runs.
    pub(super) plan: SweepPlan,
    /// Source of the plan.
    pub(super) origins: Origins,
}

impl Sweep {
    /// The sweep in `folder`.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let Some(plan) = read_plan(folder)? else {
            return Err(SweepRunError::NoSweep { path: folder.to_owned() }.into());
        };
        let path = folder.join(SECTION);
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let origins = toml::from_str(&text).map_err(|error| {
            let problem = error.message().replace('\n', ", ");
            SweepError::Damaged { path, problem }
        })?;
        Ok(Self { folder: folder.to_owned(), plan, origins })
    }

    /// Opens the planned sweep in a folder, or in the folder of a file's sweep.
    pub(super) fn find(which: &WhichArgs) -> Result<Self, Error> {
        Self::open(&folder_of(which)?)
    }

    /// The configuration that a run was frozen with, by keys.
    pub(super) fn frozen(folder: &Path, entry: &PlannedRun) -> Option<Assignments> {
        let text = fs::read_to_string(folder.join(&entry.config)).ok()?;
        Some(dotted(text.parse::<toml::Table>().ok()?))
    }

    /// The run's folder.
    pub(super) fn run(&self, entry: &PlannedRun) -> PathBuf {
        self.folder.join(&entry.name)
    }
}

fn folder_of(which: &WhichArgs) -> Result<PathBuf, Error> {
    if which.sweep.is_dir() {
        return match which.overrides.set[..] {
            [] => Ok(which.sweep.clone()),
            [_, ..] => Err(SweepRunError::Frozen { path: which.sweep.clone() }.into()),
        };
    }
    Ok(Base::load(&which.sweep, &which.overrides.set)?.folder)
}

/// The plan in `folder`, if there is one.
pub(super) fn read_plan(folder: &Path) -> Result<Option<SweepPlan>, Error> {
    let path = folder.join(PLAN);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(SweepPlan::parse(&path, &text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Writes the files of a sweep; the plan is last, so that every file it names exists.
pub(super) fn write(
    folder: &Path,
    plan: &SweepPlan,
    origins: &Origins,
    configs: &[(String, String)],
) -> Result<(), Error> {
    let inside = folder.join("configs");
    fs::create_dir_all(&inside).map_err(Error::io("make", &inside))?;
    for (name, text) in configs {
        write_file(folder, name, text)?;
    }
    let text =
        toml::to_string(origins).map_err(|error| Error::internal(format!("{SECTION}: {error}")))?;
    write_file(folder, SECTION, &text)?;
    write_file(folder, PLAN, &plan.to_jsonl())
}

/// Writes a file of a sweep atomically.
pub(super) fn write_file(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(name);
    replace(&Disk, &path, text.as_bytes()).map_err(Error::io("write", path))
}
