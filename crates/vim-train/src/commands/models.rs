//! `vim-train models`.

use clap::Args;
use serde::Serialize;
use strum::VariantArray;
use vim_engine::Error;
use vim_engine::output::{print, print_json};
use vim_kernels::Discretization;
use vim_model::{ImageSize, Preset, REGISTERED, VimConfig};

const EXAMPLES: &str = "\
Examples:
  vim-train models            what model.preset may be
  vim-train models --json     the same for scripts";

/// List the named models: parameters, multiply-adds, input size, and the original's names for
/// them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelsArgs {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct PresetRow {
    name: String,
    image_size: ImageSize,
    num_classes: usize,
    tokens: usize,
    parameters: u64,
    gmacs: f64,
    gflops: f64,
    registered: Vec<Name>,
}

/// A name that the original uses for a preset.
#[derive(Debug, Serialize)]
struct Name {
    name: &'static str,
    discretization: Discretization,
}

/// `name`, which `model.preset` takes.
pub(crate) fn known_model(name: &str) -> Result<String, String> {
    Preset::named(name).map(|_| name.to_owned())
}

/// Prints the named sizes and the original's names for them as tables, or as JSON.
pub(crate) fn run(args: &ModelsArgs) -> Result<(), Error> {
    let rows: Result<Vec<PresetRow>, Error> =
        Preset::VARIANTS.iter().map(|&preset| row(preset)).collect();
    let rows = rows?;
    if args.json { print_json(&rows) } else { print(&table(&rows)) }
}

fn row(preset: Preset) -> Result<PresetRow, Error> {
    let config = VimConfig::preset(preset);
    let cost = config.cost()?;
    let of_it = REGISTERED.iter().filter(|model| model.preset == preset);
    Ok(PresetRow {
        name: preset.to_string(),
        image_size: config.image_size,
        num_classes: config.num_classes,
        tokens: config.num_tokens(),
        parameters: cost.parameters(),
        gmacs: cost.macs() as f64 / 1e9,
        gflops: cost.flops() as f64 / 1e9,
        registered: of_it
            .map(|model| Name { name: model.name, discretization: model.discretization })
            .collect(),
    })
}

fn table(rows: &[PresetRow]) -> String {
    let mut text = format!(
        "{:<14} {:>6} {:>8} {:>12} {:>7} {:>7}\n",
        "name", "pixels", "tokens", "parameters", "GMACs", "GFLOPs"
    );
    for row in rows {
        text.push_str(&format!(
            "{:<14} {:>6} {:>8} {:>12} {:>7.3} {:>7.3}\n",
            row.name,
            row.image_size.to_string(),
            row.tokens,
            row.parameters,
            row.gmacs,
            row.gflops
        ));
    }
    text.push_str("\nat 1000 classes, zoh; `vim-train flops --help` says what is counted.\n");
    text.push_str("\nmodel.preset takes these names of the original, too:\n");
    for row in rows {
        for model in &row.registered {
            let stands_for = format!("{}, {}", row.name, model.discretization);
            text.push_str(&format!("{stands_for:<24} {}\n", model.name));
        }
    }
    text
}
