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
    /// Absent where no truncation is published.
    bounded_taylor: Option<bool>,
    /// Of one way over an input that is sampled at the tokens; 0 where it does not converge.
    order: u32,
    /// Whether a state reads the input of the token before.
    reads_previous: bool,
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
        bounded_taylor: form.published.then(|| method.bounded(Series::Taylor)),
        order: form.order,
        reads_previous: form.previous.is_some(),
        formula: form.formula,
    }
}

fn table(rows: &[MethodRow]) -> String {
    let yes = |holds| if holds { "yes" } else { "no" };
    let line = |[method, causal, order, exact, taylor, formula]: [&str; 6]| {
        format!("{method:<16} {causal:<7} {order:<6} {exact:<15} {taylor:<16} {formula}\n")
    };
    let heads = ["method", "causal", "order", "bounded, exact", "bounded, taylor"];
    let [method, causal, order, exact, taylor] = heads;
    let formula = "a_bar | b_bar, with x = delta a";
    let mut text = line([method, causal, order, exact, taylor, formula]);
    for row in rows {
        text.push_str(&line([
            row.method.into(),
            yes(row.causal),
            &row.order.to_string(),
            yes(row.bounded_exact),
            row.bounded_taylor.map_or("-", yes),
            row.formula,
        ]));
    }
    text.push_str(
        "\nbounded: whether the input gain stays bounded for large |x|, by ssm.series.\n\
         order: of convergence for an input that is sampled at the tokens; 0: none.\n",
    );
    text
}
