//! `vim-train methods`.

use clap::Args;
use serde::Serialize;
use strum::VariantArray;
use vim_engine::Error;
use vim_engine::output::{print, print_json};
use vim_kernels::{Discretization, Series};

const EXAMPLES: &str = "\
Examples:
  vim-train methods           each method's coefficients, and what is special about it
  vim-train methods --json    the same for scripts";

/// List the discretizations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MethodsArgs {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct MethodRow {
    method: Discretization,
    causal: bool,
    bounded_exact: bool,
    bounded_taylor: bool,
    formula: &'static str,
}

pub(crate) fn run(args: &MethodsArgs) -> Result<(), Error> {
    let rows: Vec<MethodRow> = Discretization::VARIANTS.iter().map(|&method| row(method)).collect();
    if args.json { print_json(&rows) } else { print(&table(&rows)) }
}

fn row(method: Discretization) -> MethodRow {
    let form = method.form();
    MethodRow {
        method,
        causal: !form.two_way,
        bounded_exact: method.bounded(Series::Exact),
        bounded_taylor: method.bounded(Series::Taylor),
        formula: form.formula,
    }
}

fn table(rows: &[MethodRow]) -> String {
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
