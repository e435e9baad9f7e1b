//! `vim-train sweep status`.

use clap::Args;
use serde_json::json;
use vim_sweep::{Metric, Pick, RunOutcome, RunState};

use super::WhichArgs;
use super::folder::Sweep;
use super::queue::outcomes_with_jobs;
use crate::commands::train::SCORES;
use crate::error::Error;
use crate::output::{columns, print, print_json};

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train sweep status data/runs/shapes-ablation
  vim-train sweep status configs/ablation/shapes.toml
  vim-train sweep status data/runs/shapes-ablation --json | jq -r '.runs[] | select(.state != \"finished\") | .name'

interrupted: stopped or killed, and goes on where it was; failed: with its exit code (`vim-train --help`).";

/// `vim-train sweep status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Which sweep.
    #[command(flatten)]
    pub which: WhichArgs,
    /// Print it as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &StatusArgs) -> Result<(), Error> {
    let sweep = Sweep::find(&args.which)?;
    let outcomes = outcomes_with_jobs(&sweep);
    let metric = Metric::parse(&sweep.origins.sweep.report.metric, SCORES)?;
    let last = |run: &RunOutcome| metric.value(run, Pick::Last);
    let best = |run: &RunOutcome| metric.value(run, Pick::Best);
    if args.json {
        let rows = outcomes.iter().map(|run| {
            json!({
                "index": run.index,
                "id": run.id,
                "name": run.name,
                "assignments": run.assignments,
                "state": run.state.name(),
                "exit_code": exit_code(run.state),
                "step": run.step,
                "total_steps": run.total_steps,
                "last": last(run),
                "best": best(run),
                "job": run.machine.job,
                "host": run.machine.host,
                "error": run.error,
            })
        });
        return print_json(&json!({
            "folder": sweep.folder,
            "metric": sweep.origins.sweep.report.metric,
            "runs": rows.collect::<Vec<_>>(),
        }));
    }
    let unknown = || "-".to_owned();
    let number = |value: Option<u64>| value.map_or_else(unknown, |value| value.to_string());
    let shown = |value: Option<f64>| value.map_or_else(unknown, |value| metric.show(value));
    let rows = outcomes.iter().map(|run| {
        vec![
            run.index.to_string(),
            run.id.clone(),
            run.name.clone(),
            run.state.to_string(),
            format!("{}/{}", number(run.step), number(run.total_steps)),
            shown(last(run)),
            shown(best(run)),
            run.machine.job.clone().unwrap_or_else(unknown),
        ]
    });
    let unit = if metric.is_share() { ", %" } else { "" };
    let [last, best] = ["last", "best"].map(|which| format!("{}, {which}{unit}", metric.title()));
    let head = ["index", "id", "run", "state", "steps", &last, &best, "job"];
    print(&columns(&head, rows.collect(), 4))?;
    for run in outcomes.iter().filter(|run| run.state != RunState::Finished) {
        if let Some(error) = &run.error {
            eprintln!("{}: {error}", run.name);
        }
    }
    eprintln!("{}", counts(&outcomes));
    Ok(())
}

fn exit_code(state: RunState) -> Option<u8> {
    match state {
        RunState::Failed(code) => Some(code),
        RunState::Finished
        | RunState::Running
        | RunState::Queued
        | RunState::Interrupted
        | RunState::Missing => None,
    }
}

/// Counts per state, in one line.
pub(super) fn counts(outcomes: &[RunOutcome]) -> String {
    let words = ["finished", "running", "queued", "interrupted", "failed", "missing"];
    let count = |wanted: &str| outcomes.iter().filter(|run| run.state.name() == wanted).count();
    let counted = words.into_iter().map(|wanted| (count(wanted), wanted));
    let parts: Vec<String> = counted
        .filter(|(count, _)| *count > 0)
        .map(|(count, wanted)| format!("{count} {wanted}"))
        .collect();
    format!("{} runs: {}", outcomes.len(), parts.join(", "))
}
