//! `vim-train bench`: how fast whole models are, and in how much memory.
//!
//! `rows.rs` measures: one row for each method, mode and batch size, by the steps of
//! `train/measure.rs`; they go to a table and to a [`Document`] as they come. `compare/` turns
//! documents into tables and plots. `scaling.rs` measures a training step on several numbers of
//! GPUs, `phases.rs` its phases.

mod compare;
pub(crate) mod phases;
mod rows;
mod scaling;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};
use vim_kernels::Discretization;

use crate::args::{Overrides, count};
use crate::commands::verify::{method, methods};
use crate::device::DeviceName;
use crate::error::Error;
use crate::train::measure::{Latency, Throughput};
use crate::train::ranks::RankArg;

const EXAMPLES: &str = "\
Examples:
  vim-train bench configs/vim_tiny_imagenet.toml                     the file's method, both modes, batches 1 to 512
  vim-train bench configs/vim_tiny_imagenet.toml --methods all --mode infer -o infer.json
  vim-train bench configs/vim_tiny_imagenet.toml --image-size 1248 --batch 1,2,4,8 --device cuda:1
  vim-train bench configs/vim_tiny_imagenet.toml --mode infer --graph --batch 1,8      a forward pass as one launch
  vim-train bench configs/debug.toml --batch 1,8 --steps 5 --json    on any machine, in seconds
  vim-train bench configs/vim_tiny_ade20k_60k.toml --mode slide    windows over a picture of 683x512 px
  vim-train bench compare infer.json -o compared                     CSV files, a table in Markdown, plots
  vim-train bench scaling configs/vim_tiny_imagenet.toml --gpus 1,2  a training step on one GPU and on two
  vim-train bench phases configs/vim_tiny_imagenet.toml --batch 128  a training step by its phases

Weights are random, images are synthetic and on the device already: no data are read. `infer` is a forward pass in
evaluation; `train` is a step as training takes it: forward, loss, backward, norm of the gradient, clipping, AdamW.
With task = \"segmentation\", `infer` and `slide` go on to the class of each pixel; with \"detection\", `infer` goes on
to boxes and masks, which the host chooses, and a training image has nine objects. A random model finds little: --set
detection.score_threshold=0.0 lets it find as much as it may, as the operations are counted.

Columns:
  ms [p10 p90]  one step, the device waited for after it: median and spread
  ms/img        the median over the batch
  img/s         steps queued one behind the other, one wait at the end; divided by the images they really took
  GFLOP/s       operations by `vim-train flops` times img/s; a training step counts as three forward passes
  MiB           the most memory in use: of the GPU, or of this process beyond what it held before the first row

A row that does not run, for want of memory say, gives its reason, and the others go on; batches larger than one that did
not fit are not tried. docs/benchmarks.md says more.";

/// Time whole models: inference and training steps over batch sizes, for each method.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: Option<BenchCommand>,
    #[command(flatten)]
    measure: MeasureArgs,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Compare(CompareArgs),
    Scaling(scaling::ScalingArgs),
    Phases(phases::PhasesArgs),
}

#[derive(Debug, Args)]
struct MeasureArgs {
    /// Configuration file that describes the model and its training.
    #[arg(required = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// What to measure.
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    mode: ModeChoice,
    /// With --mode infer of a classifier: record the launches of a forward pass and replay them as
    /// one graph. A row that cannot be recorded, or whose logits differ from those of the launches
    /// in a bit, gives its reason instead of times.
    #[arg(long)]
    graph: bool,
    /// Images a step, as in 1,8,64. Left out: 1 to 512, and 1 with --mode slide, as an evaluation
    /// slides over each picture by itself.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = count)]
    batch: Option<Vec<usize>>,
    /// Instead of the file's method: `all`, or names as in zoh,foh.
    #[arg(long, value_name = "NAMES")]
    methods: Option<Methods>,
    /// Instead of the file's `model.image_size`: a square's side.
    #[arg(long, value_name = "PX", value_parser = count)]
    image_size: Option<usize>,
    /// With --mode slide: size of the pictures, in pixels.
    #[arg(long, value_name = "WxH", default_value = "683x512", value_parser = picture)]
    picture: [usize; 2],
    /// Classes of the head; no data are read that could tell. Left out: 1000, 150 with
    /// task = "segmentation", 80 with "detection".
    #[arg(long, value_name = "K", value_parser = count)]
    classes: Option<usize>,
    /// Steps before the clock starts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count)]
    warmup: usize,
    /// Steps to time, one by one and queued.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = count)]
    steps: usize,
    /// Seconds for each part of a row (warm-up from its third step, steps one by one, steps
    /// queued): after them no further step starts.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    budget: Duration,
    /// Instead of the file's `[devices]`: auto, cpu, cuda, cuda:N, wgpu or wgpu:N.
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Write the results to a file as JSON, after every row.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write over the output if it is there.
    #[arg(long)]
    force: bool,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What is timed on ranks, and how it is shown.
#[derive(Debug, Args)]
struct RankStepArgs {
    /// Configuration file that describes the model and its training.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Classes of the head. Left out: 1000, 150 with task = "segmentation", 80
    /// with "detection".
    #[arg(long, value_name = "K", value_parser = count)]
    classes: Option<usize>,
    /// Steps before the clock starts: the first few compile.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = count)]
    warmup: usize,
    #[command(flatten)]
    rank: RankArg,
    /// Write over the file that is there.
    #[arg(long)]
    force: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
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

/// Put results of `bench -o` side by side: CSV files, a table in Markdown, plots.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
struct CompareArgs {
    /// Results of `vim-train bench -o`.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder for the tables and plots; made if it is not there.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Batch size of benchmark_comparison.csv; left out: the smallest there is.
    #[arg(long, value_name = "N", value_parser = count)]
    batch_size: Option<usize>,
    /// Write over files that are there.
    #[arg(long)]
    force: bool,
}

/// A row that does not run is not an error; the row records the reason.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    match &args.what {
        Some(BenchCommand::Compare(args)) => compare::run(args),
        Some(BenchCommand::Scaling(args)) => scaling::run(args),
        Some(BenchCommand::Phases(args)) => phases::run(args, "bench phases"),
        None => rows::run(&args.measure),
    }
}

/// Which modes to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ModeChoice {
    /// A whole training step.
    Train,
    /// A forward pass in evaluation.
    Infer,
    /// Both.
    #[default]
    Both,
    /// With task = "segmentation": windows of the model's size over larger pictures.
    Slide,
}

impl ModeChoice {
    /// Batch sizes where none are asked for.
    fn batches(self) -> Vec<usize> {
        match self {
            Self::Train | Self::Infer | Self::Both => (0..10).map(|power| 1 << power).collect(),
            Self::Slide => vec![1],
        }
    }

    fn modes(self) -> &'static [Mode] {
        match self {
            Self::Train => &[Mode::Train],
            Self::Infer => &[Mode::Infer],
            Self::Both => &[Mode::Infer, Mode::Train],
            Self::Slide => &[Mode::Slide],
        }
    }
}

/// The methods that a flag names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Methods(Vec<Discretization>);

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

/// Height and width of WIDTHxHEIGHT.
fn picture(text: &str) -> Result<[usize; 2], String> {
    let (width, height) = text.split_once('x').ok_or("WIDTHxHEIGHT in pixels, as in 683x512")?;
    Ok([count(height)?, count(width)?])
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|&number| number > 0.0);
    let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    time.ok_or_else(|| format!("`{text}` is no number of seconds above 0"))
}

#[derive(
    Clone,
    Copy,
    Debug,
    Display,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
enum Mode {
    /// A forward pass in evaluation.
    Infer,
    /// Forward, loss, backward, norm, clipping, update.
    Train,
    /// Windows over larger pictures.
    Slide,
}

impl Mode {
    /// Operations of a step in forward passes: backward counts as two, the update as none.
    ///
    /// `None` of windows, whose number the model's operations do not tell.
    fn passes(self) -> Option<u64> {
        match self {
            Self::Infer => Some(1),
            Self::Train => Some(3),
            Self::Slide => None,
        }
    }
}

/// What `bench` writes and `bench compare` reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Document {
    command: String,
    config: String,
    /// The preset, or the base preset.
    model: String,
    num_classes: usize,
    warmup: usize,
    /// Steps to time within the budget.
    steps: usize,
    /// Seconds for each part of a row.
    budget_s: f64,
    /// Name of the processor or the GPU.
    hardware: Option<String>,
    /// The program and machine, as in a run's `env.json`.
    environment: serde_json::Value,
    /// Keys given by `--set`.
    overrides: Vec<String>,
    /// A row for each method, mode and batch size.
    results: Vec<Row>,
}

/// One method in one mode at one batch size.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    /// The discretization, or one per direction.
    method: String,
    mode: Mode,
    /// Whether the step replays a graph of recorded launches.
    #[serde(default)]
    graph: bool,
    batch: usize,
    /// A square's side, or height and width; of `slide`, the picture's.
    image_size: serde_json::Value,
    tokens: usize,
    dtype: String,
    parameters: u64,
    /// Multiply–adds of one image, forward; absent where they are not counted (a full A).
    macs_per_image: Option<u64>,
    /// Operations of one image, forward, two for each multiply–add.
    flops_per_image: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throughput: Option<Throughput>,
    /// Operations per second: per image × img/s, × 3 in training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flop_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peak_memory_bytes: Option<u64>,
    /// `device`, or `host` where the device uses the process's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
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
