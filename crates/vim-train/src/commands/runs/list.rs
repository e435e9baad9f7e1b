//! `vim-train runs list`.

use std::cmp::{Ordering, Reverse};
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::run::RunRow;
use super::{Status, UNKNOWN, all, score_label};
use crate::error::Error;
use crate::output::summary::duration;
use crate::output::{columns, print, print_json, terminal_width};

const EXAMPLES: &str = "\
Examples:
  vim-train runs list
  vim-train runs list /scratch/runs --sort best
  vim-train runs list --method rk4 --method foh --status stale --status failed
  vim-train runs list --json | jq -r '.[] | select(.status == \"stale\") | .path'

stale: it did not record its end, and no process is at work on it; `train … --resume auto` goes on
with it. Folders that hold no run, and what cannot be read of a run, are named below the table.";

/// Where runs are if nothing says otherwise.
const ROOT: &str = "data/runs";

/// List the runs in a folder: how far each is, how good, and how it ended.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Folder that holds the runs' folders.
    #[arg(value_name = "ROOT", default_value = ROOT)]
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

pub(crate) fn run(args: &ListArgs) -> Result<(), Error> {
    let is_asked = |row: &RunRow| {
        let method = row.method.as_ref().is_some_and(|method| args.method.contains(method));
        (args.method.is_empty() || method)
            && (args.status.is_empty() || args.status.contains(&row.status))
    };
    if args.root == Path::new(ROOT) && !args.root.exists() && !args.json {
        eprintln!("no runs in {ROOT} yet");
        return Ok(());
    }
    let mut rows: Vec<RunRow> = all(&args.root)?.into_iter().filter(is_asked).collect();
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
    let (text, left_out) = table(&rows, terminal_width(stdout()).unwrap_or(usize::MAX));
    print(&text)?;
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        eprintln!("note: left out for the terminal's width: {left_out} (--json has all)");
    }
    Ok(())
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

/// Columns that a narrow terminal goes without, the first one first.
const DISPENSABLE: [&str; 4] = ["dataset", "seed", "age", "method"];
/// Columns that are left-aligned.
const TEXTS: [&str; 4] = ["run", "status", "method", "dataset"];

/// Names are cut to no less.
const SHORTEST_NAME: usize = 12;

/// The runs as rows of at most `width` columns if possible, and which columns are left out for it.
fn table(rows: &[RunRow], width: usize) -> (String, Vec<&'static str>) {
    let is_scored = |row: &&RunRow| row.best_score().or(row.test_score()).is_some();
    let label = score_label(rows.iter().filter(is_scored).map(|row| row.primary));
    let [best, test] = ["best", "test"].map(|split| format!("{split} {label}"));
    let mut head = vec!["run", "status", "method", "dataset", "seed", "steps", &best, &test, "age"];
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
            or_unknown(row.test_shown()),
            or_unknown(row.age_s.map(|age| duration(Duration::from_secs(age)))),
        ]
    });
    let mut cells: Vec<Vec<String>> = cells.collect();
    // Runs in one folder differ at the end of their names.
    let cut = |cells: &mut [Vec<String>], by: usize| {
        let longest = cells.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
        let most = longest.saturating_sub(by).max(SHORTEST_NAME);
        for name in cells.iter_mut().map(|row| &mut row[0]) {
            let over = name.chars().count().saturating_sub(most);
            if over > 0 {
                *name = format!("…{}", name.chars().skip(over + 1).collect::<String>());
            }
        }
    };
    let drawn = |head: &[&str], cells: &[Vec<String>]| {
        let left = head.iter().filter(|name| TEXTS.contains(*name)).count();
        columns(head, cells.to_vec(), left)
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let (mut text, mut left_out) = (drawn(&head, &cells), Vec::new());
    for name in DISPENSABLE {
        if widest(&text) <= width {
            break;
        }
        if let Some(place) = head.iter().position(|other| *other == name) {
            head.remove(place);
            cells.iter_mut().for_each(|row| drop(row.remove(place)));
            left_out.push(name);
            text = drawn(&head, &cells);
        }
    }
    if widest(&text) > width {
        cut(&mut cells, widest(&text) - width);
        text = drawn(&head, &cells);
    }
    let problems = rows.iter().flat_map(|row| row.problems.iter().map(|why| (&row.name, why)));
    for (number, (name, why)) in problems.enumerate() {
        let gap = if number == 0 { "\n" } else { "" };
        text.push_str(&format!("{gap}{name}: {why}\n"));
    }
    (text, left_out)
}

/// `12/24`, as far as known.
pub(crate) fn steps(done: Option<u64>, total: Option<u64>) -> String {
    let number = |steps: Option<u64>| steps.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
    format!("{}/{}", number(done), number(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::runs::run::Run;

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_no_broken_row() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["cifar100-ablation/highorder-s0", "cifar100-ablation/highorder-s1"];
        let rows = names.map(|name| Run::read(folder.path(), name.to_owned()).row);
        let rows = rows.map(|row| RunRow {
            step: Some(117_000),
            total_steps: Some(117_000),
            problems: Vec::new(),
            ..row
        });
        for (width, left_out) in [
            (usize::MAX, &DISPENSABLE[..0]),
            (100, &DISPENSABLE[..1]),
            (80, &DISPENSABLE[..]),
            (60, &DISPENSABLE[..]),
        ] {
            let (text, found) = table(&rows, width);
            assert!(found.starts_with(left_out), "{width}: {found:?}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
            assert!(text.contains("order-s1"), "{text}");
        }
    }
}
