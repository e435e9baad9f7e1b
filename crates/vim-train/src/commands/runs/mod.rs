//! `vim-train runs`: inspects the folders of runs.
//!
//! Read-only: the run may be active. Unreadable files are reported; the rest is shown.

mod compare;
mod list;
mod plot;
mod run;
mod show;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Subcommand};
use vim_run::MAX_DEPTH;
use vim_run::metrics::ScoreKind;
use vim_sweep::PLAN;

use crate::error::Error;
use crate::run_folder::holds_run;
use crate::task::kinds::PRIMARY;
use crate::weights::place::Place;

pub(crate) use crate::train::history::Evaluated;
pub(crate) use compare::{CompareArgs, run as compare};
pub(crate) use list::{ListArgs, run as list, steps};
use run::RunRow;
pub(crate) use run::{Run, Status};

const EXAMPLES: &str = "\
Examples:
  vim-train runs list                                  the runs in data/runs
  vim-train runs list /scratch/runs --method rk4 --status stale
  vim-train runs show zoh-s0                           a name in data/runs, or a run's folder
  vim-train runs show zoh-s0 --plot curves.svg         its loss and score as a figure
  vim-train runs compare zoh-s0 foh-s0 --plot curves.svg

docs/runs.md says what a run's folder holds.";

/// Look at runs: list them, show one, compare several.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum RunsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Compare(compare::CompareArgs),
}

/// Where runs named by name are.
#[derive(Debug, Args)]
pub(crate) struct RootArg {
    /// Folder that holds the runs' folders, `run.root` of their configurations.
    #[arg(long, value_name = "DIR", default_value = "data/runs")]
    pub(crate) root: PathBuf,
}

pub(crate) fn run(command: &RunsCommand) -> Result<(), Error> {
    match command {
        RunsCommand::List(args) => list::run(args),
        RunsCommand::Show(args) => show::run(args),
        RunsCommand::Compare(args) => compare::run(args),
    }
}

/// Placeholder for unknown values.
const UNKNOWN: &str = "-";

/// Folders of a sweep that hold no runs.
const SWEEP_FOLDERS: [&str; 3] = ["configs", "logs", vim_slurm::submissions::FOLDER];

/// The runs in `root` by name, and folders without runs, so that none is overlooked.
fn all(root: &Path) -> Result<Vec<RunRow>, Error> {
    let inside = folders(root).map_err(Error::io("list", root))?;
    if holds_run(root) {
        return Ok(vec![named(root).row]);
    }
    let mut found = Vec::new();
    for folder in inside {
        collect(&folder, MAX_DEPTH, &mut found);
    }
    let mut runs: Vec<RunRow> = found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            Run::read(&path, name).row
        })
        .collect();
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runs)
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let before = found.len();
    if !holds_run(folder) && depth > 1 {
        // An unreadable folder is listed with its error.
        for inside in folders(folder).unwrap_or_default() {
            let below = found.len();
            collect(&inside, depth - 1, found);
            // Of nested folders without runs, list only the outermost.
            if found.len() == below + 1 && found.last() == Some(&inside) && !holds_run(&inside) {
                found.pop();
            }
        }
    }
    if found.len() == before {
        found.push(folder.to_owned());
    }
}

/// The subfolders of `folder`, without hidden ones and a sweep's own.
fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let holds_sweep = folder.join(PLAN).is_file();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        let is_sweeps = holds_sweep && SWEEP_FOLDERS.iter().any(|folder| name == *folder);
        if !hidden && !is_sweeps && entry.path().is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Resolves `name` to a run, as all commands do ([`Place::find`]).
fn one(name: &Path, root: &Path) -> Result<Run, Error> {
    let run = Place::find(name, root, None)?.run();
    let path = run.ok_or_else(|| {
        Error::data(format!("{} is no run: give its folder, or its name in a root", name.display()))
    })?;
    Ok(named(&path))
}

fn named(path: &Path) -> Run {
    // The canonical path gives `.` a name.
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned();
    Run::read(path, name)
}

/// What the scores of several runs are called: by their name, if it is one.
fn score_label(mut kinds: impl Iterator<Item = ScoreKind>) -> &'static str {
    let Some(first) = kinds.next() else { return PRIMARY[0].label };
    if kinds.all(|kind| kind == first) { first.label } else { "score" }
}
