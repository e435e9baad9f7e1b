//! `vim-train sweep plan`.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use vim_run::{move_aside, rfc3339};
use vim_sweep::{Assignments, RunState, SEED, SweepPlan};

use super::WhichArgs;
use super::cells::Cells;
use super::error::SweepRunError;
use super::folder::{self, Origins, Sweep, read_plan};
use super::outcomes::state;
use crate::args::Overrides;
use crate::error::Error;
use crate::output::{columns, print, print_json};
use crate::run_folder::is_free;

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train sweep plan configs/ablation/shapes.toml
  vim-train sweep plan configs/ablation/cifar100.toml --set data.path=$SCRATCH/cifar-100-binary.tar.gz
  vim-train sweep plan configs/ablation/shapes.toml --set sweep.seeds=[0,1,2,3] --dry-run

Every run is checked as `train` checks it at its start, but for its images and the device. Planning
again changes nothing of what is planned, and adds runs that are new, such as further seeds.";

/// `vim-train sweep plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Configuration file with a [sweep] section.
    pub file: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Move a sweep in the sweep's folder aside, to NAME.old-N, and plan anew.
    #[arg(long)]
    pub fresh: bool,
    /// Check and list the runs, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A checked sweep, ready to be written.
pub(super) struct Planned {
    pub(super) folder: PathBuf,
    plan: SweepPlan,
    /// Runs that were not planned before.
    added: usize,
    origins: Origins,
    /// Path and content of each run's file.
    configs: Vec<(String, String)>,
    /// Warnings about files that may be missing on the node.
    warnings: BTreeSet<String>,
}

pub(super) fn run(args: &PlanArgs) -> Result<(), Error> {
    let planned = plan(&args.file, &args.overrides.set, args.fresh)?;
    for warning in &planned.warnings {
        eprintln!("warning: {warning}");
    }
    if !args.dry_run {
        if args.fresh {
            set_aside(&planned.folder)?;
        }
        planned.write()?;
    }
    let states: Vec<RunState> = planned
        .plan
        .entries
        .iter()
        .map(|entry| match args.fresh {
            true => RunState::Missing,
            false => state(&planned.folder.join(&entry.name)),
        })
        .collect();
    let runs = planned.plan.entries.iter().zip(&states);
    if args.json {
        let rows = runs.map(|(entry, state)| {
            json!({
                "index": entry.index,
                "id": entry.id,
                "name": entry.name,
                "assignments": entry.assignments,
                "config": entry.config,
                "state": state.to_string(),
            })
        });
        return print_json(&json!({
            "folder": planned.folder,
            "added": planned.added,
            "runs": rows.collect::<Vec<_>>(),
        }));
    }
    let rows = runs.map(|(entry, state)| {
        vec![
            entry.index.to_string(),
            entry.id.clone(),
            entry.name.clone(),
            differing(&entry.assignments),
            state.to_string(),
        ]
    });
    print(&columns(&["index", "id", "run", "differs in", "state"], rows.collect(), 5))?;
    let finished = states.iter().filter(|state| **state == RunState::Finished).count();
    let (all, folder) = (states.len(), planned.folder.display());
    let added = if args.dry_run { "nothing written".to_owned() } else { planned.added_in_words() };
    eprintln!("{all} runs in {folder}, {finished} finished; {added}");
    Ok(())
}

/// A run's values of the grid's keys, under the last segments of the keys.
pub(super) fn differing(assignments: &Assignments) -> String {
    let (seed, others): (Vec<_>, Vec<_>) = assignments.iter().partition(|(key, _)| *key == SEED);
    let part = |(key, value): (&String, &toml::Value)| {
        let name = key.rsplit('.').next().unwrap_or(key);
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name} {value}")
    };
    others.into_iter().chain(seed).map(part).collect::<Vec<_>>().join(", ")
}

/// Plans `file`, checked against an existing plan unless `fresh`.
/// Fails if the existing plan differs.
pub(super) fn plan(file: &Path, sets: &[String], fresh: bool) -> Result<Planned, Error> {
    let Cells { base, runs, configs, warnings } = Cells::load(file, sets)?;
    let folder = &base.folder;
    let known = if fresh { None } else { read_plan(folder)? };
    let before = known.as_ref().map_or(0, |known| known.entries.len());
    let recorded = |entry: &_| Sweep::frozen(folder, entry);
    let plan = match known {
        None => SweepPlan::new(&runs, is_free),
        Some(known) => known.extended(folder, &runs, is_free, recorded),
    };
    let plan = plan.map_err(|error| base.place(error))?;
    let added = plan.entries.len() - before;
    let text = |name: &String| {
        let config = runs.iter().zip(&configs).find(|(run, _)| run.name == *name);
        config.map(|(_, config)| config.to_toml()).unwrap_or_default()
    };
    // Also rewrites planned runs: keys without effect on results follow the file.
    let configs =
        plan.entries.iter().map(|entry| (entry.config.clone(), text(&entry.name))).collect();
    let origins = Origins {
        source: file.to_owned(),
        sets: sets.to_vec(),
        command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        planned: rfc3339(SystemTime::now()),
        sweep: base.sweep,
    };
    Ok(Planned { folder: base.folder, plan, added, origins, configs, warnings })
}

impl Planned {
    /// Writes it.
    pub(super) fn write(&self) -> Result<(), Error> {
        folder::write(&self.folder, &self.plan, &self.origins, &self.configs)
    }

    fn added_in_words(&self) -> String {
        match self.added {
            0 => "nothing new".to_owned(),
            1 => "1 is new".to_owned(),
            added => format!("{added} are new"),
        }
    }
}

/// Moves an existing sweep in `folder` aside, unless a process works on it.
fn set_aside(folder: &Path) -> Result<(), Error> {
    if !folder.exists() {
        return Ok(());
    }
    let plan = read_plan(folder)?.unwrap_or_default();
    let at_work = |name: &str| state(&folder.join(name)) == RunState::Running;
    if let Some(entry) = plan.entries.iter().find(|entry| at_work(&entry.name)) {
        let (folder, name) = (folder.to_owned(), entry.name.clone());
        return Err(SweepRunError::AtWork { folder, name }.into());
    }
    let aside = move_aside(folder)?;
    eprintln!("moved the sweep that was there to {}", aside.display());
    Ok(())
}

/// The planned sweep of `which`; a file's sweep is planned if it is new or has grown.
pub(super) fn find_or_plan(which: &WhichArgs) -> Result<Sweep, Error> {
    if which.sweep.is_dir() {
        return Sweep::find(which);
    }
    let planned = plan(&which.sweep, &which.overrides.set, false)?;
    planned.write()?;
    Sweep::open(&planned.folder)
}
