//! `vim-train flops`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use vim_engine::Error;
use vim_engine::config::Config;
use vim_engine::output::{print, print_json};
use vim_engine::task::kinds::cost;
use vim_model::{ComponentCost, Cost, ImageSize, VimConfig};

use crate::args::Overrides;
use crate::commands::models::known_model;

const CONVENTIONS: &str = "\
Examples:
  vim-train flops --preset tiny
  vim-train flops --preset small --set model.discretization=bilinear --set model.image_size=512
  vim-train flops --config configs/vim_tiny_cifar100.toml --classes 100 --json
  vim-train flops --config configs/vim_tiny_ade20k_60k.toml
  vim-train flops --config configs/vim_tiny_coco_100ep.toml

Conventions: one image, forward, evaluation.
  MAC   a product added to a sum: in linear maps, convolution, the scan's recurrence and its skip connection
  FLOP  one arithmetic operation: a MAC is two; an exponential, logarithm, root or reciprocal is one
Changes of sign, comparisons, choices and moves are free, and so is what depends on parameters alone. The
scan is counted as the reference computes it: coefficients of every token, channel and state, once;
where a method's value is chosen from two expressions, both; one recurrence for each way it scans.
Of a detector the heads see as many proposals, and find as many objects, as [detection] allows.
docs/models.md has the formulas. A full A (ssm.a) is not counted.";

/// Count parameters, multiply-adds and operations of a model, by component.
#[derive(Debug, Args)]
#[command(after_help = CONVENTIONS)]
pub(crate) struct FlopsArgs {
    /// Configuration file that describes the model; without it, and without --preset, the defaults.
    #[arg(long, value_name = "FILE.toml", conflicts_with = "preset")]
    config: Option<PathBuf>,
    /// A named size, as `vim-train models` lists them.
    #[arg(long, value_name = "NAME", value_parser = known_model)]
    preset: Option<String>,
    #[command(flatten)]
    overrides: Overrides,
    /// Classes of the head. Left out: 1000, or 150 with task = "segmentation", or 80 with
    /// "detection".
    #[arg(long, value_name = "K")]
    classes: Option<usize>,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &FlopsArgs) -> Result<(), Error> {
    let sets = match &args.preset {
        // `--set` overrides it.
        Some(preset) => {
            [vec![format!("model.preset={preset}")], args.overrides.set.clone()].concat()
        }
        None => args.overrides.set.clone(),
    };
    let config = match &args.config {
        Some(path) => Config::load(path, &sets)?,
        None => Config::from_defaults(&sets)?,
    };
    let classes = args.classes.unwrap_or(config.task.usual_classes());
    let (model, cost) = (&config.model, cost(&config, classes)?);
    if args.json {
        #[derive(Serialize)]
        struct FlopsReport<'a> {
            image_size: ImageSize,
            tokens: usize,
            num_classes: usize,
            discretization: String,
            series: String,
            parameters: u64,
            macs: u64,
            flops: u64,
            components: &'a [ComponentCost],
        }
        return print_json(&FlopsReport {
            image_size: model.image_size,
            tokens: model.num_tokens(),
            num_classes: classes,
            discretization: model.method_label(),
            series: model.ssm.series.to_string(),
            parameters: cost.parameters(),
            macs: cost.macs(),
            flops: cost.flops(),
            components: &cost.components,
        });
    }
    print(&table(model, classes, &cost))
}

fn table(model: &VimConfig, classes: usize, cost: &Cost) -> String {
    let mut text = format!(
        "{} px, {} tokens, {} classes, {} (series {})\n\n",
        model.image_size,
        model.num_tokens(),
        classes,
        model.method_label(),
        model.ssm.series
    );
    let mut line = |name: &str, parameters: u64, macs: u64, flops: u64, what: &str| {
        let line = format!("{name:<12} {parameters:>12} {macs:>14} {flops:>14}  {what}");
        text.push_str(line.trim_end());
        text.push('\n');
    };
    for component in &cost.components {
        let what = component.what;
        line(component.name, component.parameters, component.macs, component.flops, what);
    }
    line("total", cost.parameters(), cost.macs(), cost.flops(), "");
    let head = format!("{:<12} {:>12} {:>14} {:>14}\n", "component", "parameters", "MACs", "FLOPs");
    let (about, rows) = text.split_once("\n\n").unwrap_or_default();
    format!(
        "{about}\n\n{head}{rows}\n{:.3} GMACs, {:.3} GFLOPs\n",
        cost.macs() as f64 / 1e9,
        cost.flops() as f64 / 1e9
    )
}
