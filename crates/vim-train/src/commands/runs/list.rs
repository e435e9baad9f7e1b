//! `vim-train runs list`.

use std::cmp::{Ordering, Reverse};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::run::{Run, RunRow};
use super::{Status, UNKNOWN, all};
use crate::commands::train::PRIMARY;
use crate::error::Error;
use crate::output::summary::duration;
use crate::output::{columns, print, print_json};

const EXAMPLES: &str = "\
Examples:
  vim-train runs list
  vim-train runs list /scratch/runs --sort best
  vim-train runs list --method rk4 --method foh --status stale --status failed
  vim-train runs list --json | jq -r '.[] | select(.status == \"stale\") | .path'

stale: it did not record its end, and no process is at work on it; `train … --resume auto` goes on
with it. Folders that hold no run, and what cannot be read of a run, are named below the table.";

/// List the runs in a folder: how far each is, how good, and how it ended.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Folder that holds the runs' folders.
    #[arg(value_name = "ROOT", default_value = "data/runs")]
    root: PathBuf,
    /// Only runs of this discretization; may be repeated.
    #[arg(long, value_name = "METHOD")]
    method: Vec<String>,
    /// Only runs that stand so; may be repeated.
    #[arg(long, value_enum, value_name = "STATUS")]
    status: Vec<Status>,
    /// By what to sort: accuracies and steps from the highest on, ages from the newest on.
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t)]
    sort: SortBy,
    /// Sort the other way round.
    #[arg(long)]
    reverse: bool,
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// By name.
    #[default]
    Name,
    /// By status.
    Status,
    /// By discretization, then seed.
    Method,
    /// By steps done.
    Steps,
    /// By the best accuracy on the validation images.
    Best,
    /// By the accuracy on the test images.
    Test,
    /// By the time since the last change.
    Age,
}

pub(super) fn run(args: &ListArgs) -> Result<(), Error> {
    let rows = all(&args.root)?.into_iter().map(|Run { row, .. }| row);
    let is_asked = |row: &RunRow| {
        let method = row.method.as_ref().is_some_and(|method| args.method.contains(method));
        (args.method.is_empty() || method)
            && (args.status.is_empty() || args.status.contains(&row.status))
    };
    let mut rows: Vec<RunRow> = rows.filter(is_asked).collect();
    rows.sort_by(|a, b| order(args.sort, a, b));
    if args.reverse {
        rows.reverse();
    }
    if args.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        eprintln!("no such runs in {}", args.root.display());
        return Ok(());
    }
    print(&table(&rows))
}

fn order(by: SortBy, a: &RunRow, b: &RunRow) -> Ordering {
    /// Unknown values come last.
    fn down<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Ordering {
        b.partial_cmp(&a).unwrap_or(Ordering::Equal)
    }
    match by {
        SortBy::Name => a.name.cmp(&b.name),
        SortBy::Status => a.status.cmp(&b.status),
        SortBy::Method => {
            (a.method.is_none(), &a.method, a.seed).cmp(&(b.method.is_none(), &b.method, b.seed))
        }
        SortBy::Steps => down(a.step, b.step),
        SortBy::Best => down(a.best_score(), b.best_score()),
        SortBy::Test => down(a.test_score(), b.test_score()),
        SortBy::Age => down(a.age_s.map(Reverse), b.age_s.map(Reverse)),
    }
}

fn table(rows: &[RunRow]) -> String {
    let [best, test] = ["best", "test"].map(|split| format!("{split} {}", PRIMARY.label));
    let head = ["run", "status", "method", "dataset", "seed", "steps", &best, &test, "age"];
    let cells = rows.iter().map(|row| {
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        vec![
            row.name.clone(),
            row.status.to_string(),
            or_unknown(row.method.clone()),
            or_unknown(row.dataset.clone()),
            or_unknown(row.seed.map(|seed| seed.to_string())),
            steps(row.step, row.total_steps),
            or_unknown(row.best_shown()),
            or_unknown(row.test_score().map(|score| PRIMARY.show(score))),
            or_unknown(row.age_s.map(|age| duration(Duration::from_secs(age)))),
        ]
    });
    let mut text = columns(&head, cells.collect(), 4);
    let problems = rows.iter().flat_map(|row| row.problems.iter().map(|why| (&row.name, why)));
    for (number, (name, why)) in problems.enumerate() {
        let gap = if number == 0 { "\n" } else { "" };
        text.push_str(&format!("{gap}{name}: {why}\n"));
    }
    text
}

/// `12/24`, as far as known.
pub(crate) fn steps(done: Option<u64>, total: Option<u64>) -> String {
    let number = |steps: Option<u64>| steps.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
    format!("{}/{}", number(done), number(total))
}
