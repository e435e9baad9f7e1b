//! `vim-train methods`.

use clap::Args;
use serde::Serialize;
use strum::VariantArray;
use vim_kernels::{Discretization, Series};

use crate::error::Error;
use crate::output::{print, print_json};

const EXAMPLES: &str = "\
Examples:
  vim-train methods           each method's coefficients, and what is special about it
  vim-train methods --json    the same for scripts";

/// `vim-train methods`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MethodsArgs {
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A discretization, as listed.
#[derive(Debug, Serialize)]
struct Row {
    method: Discretization,
    causal: bool,
    bounded_exact: bool,
    bounded_taylor: bool,
    formula: &'static str,
}

/// Prints the discretizations as a table, or as JSON.
pub fn run(args: &MethodsArgs) -> Result<(), Error> {
    let rows: Vec<Row> = Discretization::VARIANTS.iter().map(|&method| row(method)).collect();
    if args.json { print_json(&rows) } else { print(&table(&rows)) }
}

fn row(method: Discretization) -> Row {
    let form = method.form();
    Row {
        method,
        causal: !form.two_way,
        bounded_exact: method.bounded(Series::Exact),
        bounded_taylor: method.bounded(Series::Taylor),
        formula: form.formula,
    }
}

fn table(rows: &[Row]) -> String {
    let yes = |holds| if holds { "yes" } else { "no" };
    let mut text = format!(
        "{:<10} {:<7} {:<15} {:<16} {}\n",
        "method", "causal", "bounded, exact", "bounded, taylor", "a_bar | b_bar, with x = delta a"
    );
    for row in rows {
        text.push_str(&format!(
            "{:<10} {:<7} {:<15} {:<16} {}\n",
            row.method.to_string(),
            yes(row.causal),
            yes(row.bounded_exact),
            yes(row.bounded_taylor),
            row.formula
        ));
    }
    text.push_str(
        "\nbounded: whether the input gain stays bounded for large |x|, by ssm.series.\n",
    );
    text
}
