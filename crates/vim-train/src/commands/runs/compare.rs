//! `vim-train runs compare`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use vim_run::metrics::ScoreKind;

use super::list::steps;
use super::plot::PlotArgs;
use super::run::Run;
use super::show::plain;
use super::{RootArg, Status, UNKNOWN, one, score_label};
use crate::error::Error;
use crate::output::summary::{duration, rate};
use crate::output::{columns, print, print_json};
use crate::task::kinds::{SCORES, scores_beside};
use crate::train::history::Evaluated;

const EXAMPLES: &str = "\
Examples:
  vim-train runs compare zoh-s0 foh-s0
  vim-train runs compare zoh-s0 foh-s0 rk4-s0 --plot curves.svg
  vim-train runs compare /scratch/a/zoh-s0 /scratch/b/zoh-s0 --json

The figure has the training loss and the top-1 accuracy on the validation images over the steps, or on
the test images where those were watched. Of a curve with more than 1000 points, neighbours are drawn as their mean.";

/// Keys of a run's location or file format, not of its content.
const PLACE: [&str; 3] = ["run.name", "run.root", "version"];

/// Keys that runs of an ablation differ in.
const ABLATED: [&str; 2] = ["model.discretization", "run.seed"];

/// Set runs side by side: what differs in their configurations, their numbers, their curves.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// The runs: their folders, or their names in the root; one alone with --plot is its curve.
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    names: Vec<PathBuf>,
    #[command(flatten)]
    root: RootArg,
    #[command(flatten)]
    plot: PlotArgs,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CompareArgs) -> Result<(), Error> {
    args.plot.check()?;
    let runs = args.names.iter().map(|name| one(name, &args.root.root));
    let runs = runs.collect::<Result<Vec<Run>, Error>>()?;
    let names = distinct(&runs);
    args.plot.write(&runs, &names)?;
    let differences = differences(&runs);
    if args.json {
        return print_json(&json!({
            "runs": runs.iter().map(|run| json!({
                "run": run.row,
                "last_train": run.history.last_train,
                "last_val": run.history.last_val(),
                "test": run.history.test,
                "images_per_second": run.history.median_speed,
                "seconds": run.history.seconds,
            })).collect::<Vec<_>>(),
            "differences": differences,
        }));
    }
    for (run, name) in runs.iter().zip(&names) {
        for why in &run.row.problems {
            eprintln!("warning: {name}: {why}");
        }
    }
    print(&text(&runs, &names, &differences))
}

/// Unique names of the runs: folder names, else paths.
fn distinct(runs: &[Run]) -> Vec<String> {
    let names: Vec<String> = runs.iter().map(|run| run.row.name.clone()).collect();
    if names.iter().collect::<BTreeSet<_>>().len() == names.len() {
        return names;
    }
    runs.iter().map(|run| run.row.path.display().to_string()).collect()
}

/// The differing configuration keys, with every run's value.
type Differences = BTreeMap<String, Vec<Option<toml::Value>>>;

fn differences(runs: &[Run]) -> Differences {
    let keys: BTreeSet<&String> = runs.iter().flat_map(|run| run.config.keys()).collect();
    let values =
        |key: &String| runs.iter().map(|run| run.config.get(key).cloned()).collect::<Vec<_>>();
    keys.into_iter()
        .filter(|key| !PLACE.contains(&key.as_str()))
        .map(|key| (key.clone(), values(key)))
        .filter(|(_, values)| values.iter().any(|value| *value != values[0]))
        .collect()
}

fn text(runs: &[Run], names: &[String], differences: &Differences) -> String {
    let head = |first| [first].into_iter().chain(names.iter().map(String::as_str));
    let mut text = columns(&head("result").collect::<Vec<_>>(), results(runs), 1);
    text.push('\n');
    if differences.is_empty() {
        text.push_str("The configurations are the same.\n");
    } else {
        let rows = differences.iter().map(|(key, values)| {
            let value =
                |value: &Option<toml::Value>| value.as_ref().map_or("not set".into(), plain);
            [key.clone()].into_iter().chain(values.iter().map(value)).collect()
        });
        text.push_str(&columns(&head("configuration").collect::<Vec<_>>(), rows.collect(), 1));
    }
    let notes = notes(runs, names, differences);
    if !notes.is_empty() {
        text.push_str(&format!("\n{notes}"));
    }
    text
}

/// A line for each number, a column for each run.
fn results(runs: &[Run]) -> Vec<Vec<String>> {
    let row = |label: &str, value: &dyn Fn(&Run) -> Option<String>| -> Vec<String> {
        let values = runs.iter().map(|run| value(run).unwrap_or_else(|| UNKNOWN.to_owned()));
        [label.to_owned()].into_iter().chain(values).collect()
    };
    let loss = |loss: f64| format!("{loss:.4}");
    let of = |evaluated: Option<&Evaluated>, kind: &ScoreKind| {
        evaluated?.score(kind.name).map(|score| kind.show(score))
    };
    let mut rows = vec![
        row("status", &|run| Some(run.row.status.to_string())),
        row("steps", &|run| Some(steps(run.row.step, run.row.total_steps))),
        row("train loss, last", &|run| run.history.last_train?.loss.map(loss)),
    ];
    // Of the other tasks nothing is measured.
    let kinds: Vec<&ScoreKind> = SCORES.iter().filter(|kind| is_scored(runs, kind)).collect();
    rows.extend(kinds.iter().map(|kind| {
        row(&format!("val {}, last", kind.label), &|run| of(run.history.last_val(), kind))
    }));
    let label = score_label(runs.iter().map(|run| run.row.primary));
    rows.push(row(&format!("val {label}, best"), &|run| run.row.best_shown()));
    rows.push(row("  at step", &|run| run.row.best.as_ref().map(|best| best.step.to_string())));
    rows.extend(kinds.iter().map(|kind| {
        row(&format!("test {}", kind.label), &|run| of(run.history.test.as_ref(), kind))
    }));
    rows.extend([
        row("img/s, median", &|run| run.history.median_speed.map(rate)),
        row("time", &|run| {
            let time = Duration::try_from_secs_f64(run.history.seconds).ok()?;
            (!time.is_zero()).then(|| duration(time))
        }),
        row("device", &|run| run.environment("backend")),
        row("commit", &|run| {
            run.environment("commit").map(|commit| commit.chars().take(9).collect())
        }),
    ]);
    rows
}

/// Whether a run's task has this score.
fn is_scored(runs: &[Run], kind: &ScoreKind) -> bool {
    runs.iter().any(|run| scores_beside(run.row.primary).contains(kind))
}

/// Reasons why the numbers are not comparable.
fn notes(runs: &[Run], names: &[String], differences: &Differences) -> String {
    let mut notes = String::new();
    for (run, name) in runs.iter().zip(names).filter(|(run, _)| run.row.status != Status::Finished)
    {
        notes.push_str(&format!("note: {name} is not finished: {}\n", run.row.status));
    }
    let others: Vec<&str> =
        differences.keys().map(String::as_str).filter(|key| !ABLATED.contains(key)).collect();
    if !others.is_empty() {
        let keys = others.join(", ");
        notes.push_str(&format!("note: not method and seed alone differ: {keys}\n"));
    }
    notes
}
