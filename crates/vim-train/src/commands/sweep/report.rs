//! `vim-train sweep status` and `vim-train sweep summarize`.

use std::fs;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use serde_json::json;
use strum::VariantArray;
use vim_engine::Error;
use vim_engine::output::summary::{counted, duration};
use vim_engine::output::{columns, print, print_json, say};
use vim_engine::program;
use vim_engine::run_folder::is_free;
use vim_engine::task::kinds::{SCORES, scores_of};
use vim_engine::work::runs::steps;
use vim_engine::work::sweep::SweepRunError;
use vim_engine::work::sweep::differences::{PREDICT, SCORE, find, find_classes, is_of, thumbnails};
use vim_engine::work::sweep::folder::{Sweep, outcomes_with_jobs, write_file};
use vim_kernels::Discretization;
use vim_run::{host_name, printable, rfc3339};
use vim_sweep::classes::{ClassDifferences, classes_csv};
use vim_sweep::differences::{Differences, images_csv, pairs_csv};
use vim_sweep::report::{Page, Provenance};
use vim_sweep::{
    Assignments, Metric, Pick, ReportConfig, RunOutcome, RunState, SEED, Summary, csv,
    detectable_legend, head, latex, markdown, report, rows, verdict,
};

use super::WhichArgs;

const STATUS_EXAMPLES: &str = "\
Examples:
  vim-train sweep status data/runs/shapes-ablation
  vim-train sweep status configs/ablation/shapes.toml
  vim-train sweep status data/runs/shapes-ablation --json | jq -r '.runs[] | select(.state != \"finished\") | .name'

interrupted: stopped or killed, and goes on where it was; failed: with its exit code (`vim-train --help`).";

/// Say how every run stands.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn status(args: &StatusArgs) -> Result<(), Error> {
    let sweep = Sweep::find(&args.which.which())?;
    let outcomes = outcomes_with_jobs(&sweep);
    let metric = Metric::parse(&sweep.origins.sweep.report.metric, &SCORES)?;
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
    let shown = |value: Option<f64>| value.map_or_else(unknown, |value| metric.show(value));
    let rows = outcomes.iter().map(|run| {
        vec![
            run.index.to_string(),
            run.id.clone(),
            run.name.clone(),
            run.state.to_string(),
            steps(run.step, run.total_steps),
            shown(last(run)),
            shown(best(run)),
            run.machine.job.clone().unwrap_or_else(unknown),
        ]
    });
    let unit = if metric.is_share() { ", %" } else { "" };
    let [last, best] = ["last", "best"].map(|which| format!("{}, {which}{unit}", metric.title()));
    let head = ["index", "id", "run", "state", "steps", &last, &best, "job"];
    print(&columns(&head, rows.collect(), 4))?;
    // A queued run goes on by itself: how its last attempt ended asks nothing of anybody.
    let is_well = |run: &&RunOutcome| matches!(run.state, RunState::Finished | RunState::Queued);
    for run in outcomes.iter().filter(|run| !is_well(run)) {
        if let Some(error) = &run.error {
            eprintln!("{}: {}", run.name, printable(error));
        }
    }
    eprintln!("{}", counts(&outcomes));
    Ok(())
}

fn exit_code(state: RunState) -> Option<u8> {
    if let RunState::Failed(code) = state { Some(code) } else { None }
}

/// Counts per state, in one line.
fn counts(outcomes: &[RunOutcome]) -> String {
    let words = ["finished", "running", "queued", "interrupted", "failed", "missing"];
    let count = |wanted: &str| outcomes.iter().filter(|run| run.state.name() == wanted).count();
    let numbers = words.into_iter().map(|wanted| (count(wanted), wanted));
    let parts: Vec<String> = numbers
        .filter(|(count, _)| *count > 0)
        .map(|(count, wanted)| format!("{count} {wanted}"))
        .collect();
    format!("{}: {}", counted(outcomes.len(), "run"), parts.join(", "))
}

const SUMMARIZE_EXAMPLES: &str = "\
Examples:
  vim-train sweep summarize data/runs/shapes-ablation
  vim-train sweep summarize data/runs/shapes-ablation --metric test/top1 --baseline zoh
  vim-train sweep summarize data/runs/shapes-ablation --md > table.md
  vim-train sweep summarize data/runs/shapes-ablation --latex > table.tex

It also writes summary.csv, summary.md and report.html, a page that needs no network, to the sweep's
folder, the page's figures as SVG to its figures/, and, of runs with predictions, pairs.csv (how many test images a run and the baseline's run of
the same seed get right, both or one alone) and differing_images.csv (on which images most pairs differ). Of
a segmentation or a detection it is classes.csv instead: the IoU or the AP of each class, and how far it is from
the baseline's.
docs/experiments.md says what the numbers mean.";

/// Put the runs together: means over seeds, differences, a table, a page.
#[derive(Debug, Args)]
#[command(after_help = SUMMARIZE_EXAMPLES)]
pub(crate) struct SummarizeArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// What to compare, over `sweep.report.metric`: val/top1, test/top1, val/loss, …
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    /// Which evaluation of a run counts, over `sweep.report.pick`.
    #[arg(long, value_enum, value_name = "WHICH")]
    pick: Option<PickArg>,
    /// What to compare with, over `sweep.report.baseline`: KEY=VALUE, or a value that only one key
    /// of the grid has.
    #[arg(long, value_name = "VALUE")]
    baseline: Vec<String>,
    /// Print the table as CSV, with all digits.
    #[arg(long, conflicts_with_all = ["md", "json"])]
    csv: bool,
    /// Print the table as Markdown.
    #[arg(long, conflicts_with = "json")]
    md: bool,
    /// Print the table as LaTeX, by the commands of its package booktabs.
    #[arg(long, conflicts_with_all = ["csv", "md", "json"])]
    latex: bool,
    /// Print the summary and every run as JSON.
    #[arg(long)]
    json: bool,
}

/// Which evaluation of a run counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PickArg {
    /// The last: nothing was chosen.
    Last,
    /// The best: chosen on the split that it was measured on.
    Best,
}

pub(super) fn summarize(args: &SummarizeArgs) -> Result<(), Error> {
    let sweep = Sweep::find(&args.which.which())?;
    let outcomes = outcomes_with_jobs(&sweep);
    let asked = asked(&sweep, &outcomes, args)?;
    let scores = scores_of(|kind| outcomes.iter().any(|run| is_of(run, kind)));
    let summary = vim_sweep::summarize(&outcomes, &asked, &scores)?;
    let name = &sweep.origins.sweep.name;
    write_file(&sweep.folder, "summary.csv", &csv(&summary))?;
    write_file(&sweep.folder, "summary.md", &markdown(&summary, name))?;
    let classes = find_classes(&sweep, &outcomes, &summary);
    let differences = match &classes {
        Some(classes) => {
            write_file(&sweep.folder, "classes.csv", &classes_csv(classes))?;
            Differences::default()
        }
        None => {
            let found = find(&sweep, &summary);
            write_file(&sweep.folder, "pairs.csv", &pairs_csv(&found))?;
            write_file(&sweep.folder, "differing_images.csv", &images_csv(&found))?;
            found
        }
    };
    write_page(&sweep, &outcomes, &summary, &differences, classes.as_ref())?;
    if args.latex {
        return print(&latex(&summary, name));
    }
    if args.csv {
        return print(&csv(&summary));
    }
    if args.md {
        return print(&markdown(&summary, name));
    }
    if args.json {
        return print_json(&json!({
            "summary": summary,
            "pairs": differences.pairs,
            "runs": outcomes,
        }));
    }
    let head = head(&summary);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    print(&columns(&head, rows(&summary), 1))?;
    say(&format!("{}: {}", summary.metric, summary.choice));
    if let Some(verdict) = verdict(&summary) {
        say(&verdict);
        say(&detectable_legend());
    }
    for warning in report::warnings(&outcomes, &sweep.origins.sweep.must_match, is_free) {
        say(&format!("warning: {warning}"));
    }
    let folder = sweep.folder.display();
    let files = "report.html, figures/, summary.md, summary.csv";
    say(&format!("{}; {folder}/{files}", counts(&outcomes)));
    Ok(())
}

/// The report options: the section's, overridden by the command line.
fn asked(
    sweep: &Sweep,
    outcomes: &[RunOutcome],
    args: &SummarizeArgs,
) -> Result<ReportConfig, SweepRunError> {
    let mut asked = sweep.origins.sweep.report.clone();
    if let Some(metric) = &args.metric {
        asked.metric.clone_from(metric);
    }
    if let Some(pick) = args.pick {
        asked.pick = match pick {
            PickArg::Last => Pick::Last,
            PickArg::Best => Pick::Best,
        };
    }
    if !args.baseline.is_empty() {
        let parsed = args.baseline.iter().map(|text| baseline(text, outcomes));
        asked.baseline = parsed.collect::<Result<Assignments, SweepRunError>>()?;
    }
    Ok(asked)
}

/// A key of the grid and one of its values, as `--baseline` names them.
fn baseline(text: &str, outcomes: &[RunOutcome]) -> Result<(String, toml::Value), SweepRunError> {
    let is_it = |value: &toml::Value, word: &str| {
        value.as_str().map_or_else(|| value.to_string() == word, |name| name == word)
    };
    let (key, word) = match text.split_once('=') {
        Some((key, word)) => (Some(key.trim()), word.trim().trim_matches('"')),
        None => (None, text.trim()),
    };
    let all = outcomes.iter().flat_map(|run| &run.assignments);
    let mut found: Vec<(String, toml::Value)> = all
        .filter(|(name, value)| {
            *name != SEED && key.is_none_or(|key| key == *name) && is_it(value, word)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    found.dedup_by(|a, b| a.0 == b.0);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.dedup_by(|a, b| a.0 == b.0);
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(_) | None => Err(SweepRunError::Baseline(text.to_owned())),
    }
}

/// Writes the page and its figures.
fn write_page(
    sweep: &Sweep,
    outcomes: &[RunOutcome],
    summary: &Summary,
    differences: &Differences,
    classes: Option<&ClassDifferences>,
) -> Result<(), Error> {
    let methods = Discretization::VARIANTS.iter().map(ToString::to_string);
    let origins = &sweep.origins;
    let commit = program::commit().unwrap_or("not known");
    let page = Page {
        name: &origins.sweep.name,
        summary,
        outcomes,
        differences,
        thumbnails: &thumbnails(sweep, differences),
        classes,
        predict: if classes.is_some() { SCORE } else { PREDICT },
        coloured: "model.discretization",
        colours: &methods.collect::<Vec<_>>(),
        must_match: &origins.sweep.must_match,
        is_free: &is_free,
        duration: &|seconds| {
            let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            duration(time)
        },
        provenance: Provenance {
            folder: sweep.folder.display().to_string(),
            source: origins.source.display().to_string(),
            command: origins.command.join(" "),
            planned: origins.planned.clone(),
            made: rfc3339(SystemTime::now()),
            host: host_name(),
            version: format!("{} ({commit})", program::VERSION),
        },
    };
    write_file(&sweep.folder, "report.html", &report::html(&page))?;
    let folder = sweep.folder.join("figures");
    fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
    let mut all = report::figures(&page).into_iter();
    all.try_for_each(|(name, svg)| write_file(&folder, &format!("{name}.svg"), &svg))
}
