//! `vim-train sweep plan`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use vim_engine::Error;
use vim_engine::output::summary::counted;
use vim_engine::output::{columns, print, print_json};
use vim_engine::work::slurm::request::say_warnings;
use vim_engine::work::sweep::folder::state;
use vim_engine::work::sweep::plan::Cells;
use vim_sweep::{Assignments, RunState, SEED};

use crate::args::Overrides;

const EXAMPLES: &str = "\
Examples:
  vim-train sweep plan configs/ablation/shapes.toml
  vim-train sweep plan configs/ablation/cifar100.toml --set data.path=$SCRATCH/cifar-100-binary.tar.gz
  vim-train sweep plan configs/ablation/shapes.toml --set sweep.seeds=[0,1,2,3] --dry-run

Every run is checked as `train` checks it at its start, but for its images and the device. Planning
again changes nothing of what is planned, and adds runs that are new, such as further seeds.";

/// List the runs that a file asks for, and freeze their configurations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// Configuration file with a [sweep] section.
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Move a sweep in the sweep's folder aside, to NAME.old-N, and plan anew.
    #[arg(long)]
    fresh: bool,
    /// Check and list the runs, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PlanArgs) -> Result<(), Error> {
    let cells = Cells::load(&args.file, &args.overrides.set)?;
    let plan = || cells.plan(&args.file, &args.overrides.set, args.fresh);
    let mut planned = plan()?;
    say_warnings(&planned.warnings);
    if !args.dry_run {
        planned = planned.write(args.fresh, plan)?;
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
    eprintln!("{} in {folder}, {finished} finished; {added}", counted(all, "run"));
    Ok(())
}

/// A run's values of the grid's keys, under the last segments of the keys.
fn differing(assignments: &Assignments) -> String {
    let (seed, others): (Vec<_>, Vec<_>) = assignments.iter().partition(|(key, _)| *key == SEED);
    let part = |(key, value): (&String, &toml::Value)| {
        let name = key.rsplit('.').next().unwrap_or(key);
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name} {value}")
    };
    others.into_iter().chain(seed).map(part).collect::<Vec<_>>().join(", ")
}
