//! The command line of `bench`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use strum::VariantArray;
use vim_kernels::Discretization;

use super::record::Mode;
use crate::args::{Overrides, count};
use crate::commands::verify::{method, methods};
use crate::device::DeviceName;

const EXAMPLES: &str = "\
Examples:
  vim-train bench configs/vim_tiny_imagenet.toml                     the file's method, both modes, batches 1 to 512
  vim-train bench configs/vim_tiny_imagenet.toml --methods all --mode infer -o infer.json
  vim-train bench configs/vim_tiny_imagenet.toml --image-size 1248 --batch 1,2,4,8 --device cuda:1
  vim-train bench configs/debug.toml --batch 1,8 --steps 5 --json    on any machine, in seconds
  vim-train bench compare infer.json -o compared                     CSV files, a table in Markdown, plots

Weights are random, images are synthetic and on the device already: no data are read. `infer` is a forward pass in
evaluation; `train` is a step as training takes it: forward, loss, backward, norm of the gradient, clipping, AdamW.

Columns:
  ms [p10 p90]  one step, the device waited for after it: median and spread
  ms/img        the median over the batch
  img/s         steps queued one behind the other, one wait at the end; divided by the images they really took
  GFLOP/s       operations by `vim-train flops` times img/s; a training step counts as three forward passes
  MiB           the most memory in use: of the GPU, or of this process beyond what it held before the first row

A row that does not run, for want of memory say, gives its reason, and the others go on; batches larger than one that did
not fit are not tried. docs/benchmarks.md says more.";

/// `vim-train bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchArgs {
    /// Something else than to measure.
    #[command(subcommand)]
    pub what: Option<BenchCommand>,
    /// What to measure.
    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// What can be done with measurements.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Put results of `bench -o` side by side: CSV files, a table in Markdown, plots.
    #[command(after_help = COMPARE_HELP)]
    Compare(CompareArgs),
}

/// What to measure.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Configuration file that describes the model and its training.
    #[arg(required = true)]
    pub config: Option<PathBuf>,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// What to measure.
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    pub mode: ModeChoice,
    /// Images a step, as in 1,8,64.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = count,
        default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])]
    pub batch: Vec<usize>,
    /// Instead of the file's method: `all`, or names as in zoh,foh.
    #[arg(long, value_name = "NAMES")]
    pub methods: Option<Methods>,
    /// Instead of the file's `model.image_size`: a square's side.
    #[arg(long, value_name = "PX", value_parser = count)]
    pub image_size: Option<usize>,
    /// Classes of the head; no data are read that could tell.
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = count)]
    pub classes: usize,
    /// Steps before the clock starts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count)]
    pub warmup: usize,
    /// Steps to time, one by one and queued.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = count)]
    pub steps: usize,
    /// Seconds for each part of a row (warm-up from its third step, steps one by one, steps
    /// queued): after them no further step starts.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub budget: f64,
    /// Instead of the file's `[devices]`: auto, cpu, cuda, cuda:N, wgpu or wgpu:N.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceName>,
    /// Write the results to a file as JSON, after every row.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write over the output if it is there.
    #[arg(long)]
    pub force: bool,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

const COMPARE_HELP: &str = "\
Examples:
  vim-train bench compare zoh.json foh.json bilinear.json -o compared
  vim-train bench compare before.json after.json -o compared        same methods: rows are named after the files
  vim-train bench compare all.json -o compared --batch-size 64 --force

Writes, for inference under these names and for training with `_train` behind them:
  benchmark_comparison.csv                               methods at one batch size
  benchmark_comparison_all_methods_all_batch_sizes.csv   all rows
  benchmark_pivot_latency.csv                            ms per image, methods by batch sizes
  benchmark_pivot_throughput.csv                         img/s, methods by batch sizes
  latency.svg, throughput.svg                            the same as plots
and benchmark.md, which is also printed. The columns are those of the original's analysis; docs/benchmarks.md
says what each holds. What did not run is an empty cell, and is listed with its reason in benchmark.md.";

/// `vim-train bench compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Results of `vim-train bench -o`.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Folder for the tables and plots; made if it is not there.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Batch size of benchmark_comparison.csv; left out: the smallest there is.
    #[arg(long, value_name = "N", value_parser = count)]
    pub batch_size: Option<usize>,
    /// Write over files that are there.
    #[arg(long)]
    pub force: bool,
}

/// Which modes to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeChoice {
    /// A whole training step.
    Train,
    /// A forward pass in evaluation.
    Infer,
    /// Both.
    #[default]
    Both,
}

impl ModeChoice {
    /// The selected modes.
    pub fn modes(self) -> &'static [Mode] {
        match self {
            Self::Train => &[Mode::Train],
            Self::Infer => &[Mode::Infer],
            Self::Both => Mode::VARIANTS,
        }
    }
}

/// The methods that a flag names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Methods(pub Vec<Discretization>);

impl FromStr for Methods {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(methods(&[])));
        }
        let named: Vec<_> = text.split(',').map(method).collect::<Result<_, _>>()?;
        Ok(Self(methods(&named)))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        Ok(_) | Err(_) => Err(format!("`{text}` is no number of seconds above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_by_name() {
        let parsed = |text: &str| text.parse::<Methods>().map(|methods| methods.0);
        assert_eq!(parsed("all"), Ok(Discretization::VARIANTS.to_vec()));
        // In the order of their definition, each once.
        let two = [Discretization::Zoh, Discretization::Rk4];
        assert_eq!(parsed("rk4,zoh,rk4"), Ok(two.to_vec()));
        assert!(parsed("rk4,euler").is_err_and(|error| error.contains("the methods are zoh, foh")));
        assert!(parsed("").is_err());
    }
}
