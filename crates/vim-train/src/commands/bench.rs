//! `vim-train bench`: how fast whole models are, and in how much memory.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use vim_engine::Error;
use vim_engine::device::DeviceName;
use vim_engine::work::bench::compare::{self, CompareOptions};
use vim_engine::work::bench::phases::{self, PhasesOptions};
use vim_engine::work::bench::rows::{self, MeasureOptions};
use vim_engine::work::bench::scaling::{self, ScalingOptions};
use vim_engine::work::bench::{Mode, RankStepOptions};
use vim_engine::work::methods;
use vim_kernels::Discretization;

use crate::args::{Overrides, RankArg, count};
use crate::commands::verify::method;

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
    Scaling(ScalingArgs),
    Phases(PhasesArgs),
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

const SCALING_HELP: &str = "\
Examples:
  vim-train bench scaling configs/vim_tiny_imagenet.toml --gpus 1,2,4,8 --batch 128,512 --set train.precision=bf16
  vim-train bench scaling configs/debug.toml --device cpu --gpus 1,2 --batch 8 --steps 5

Each GPU takes --batch images a step, so that more GPUs make the whole batch larger. Processes start anew for each
number of GPUs, and each compiles; VIM_TRAIN_SHARE_GPU=1 lets several share a GPU, which shows that it works and not
how fast it is.

Columns:
  batch         images of a step on each GPU
  ms [p10 p90]  one step, the device waited for after it: median and spread
  img/s         steps queued one behind the other, one wait at the end; on all GPUs together
  efficiency    img/s over those of as many times one GPU
  MiB each      the most memory in use on a GPU, or in a process beyond what it held before

A row that does not run gives its reason; larger batches on as many GPUs are then not tried.";

/// Time a training step on several numbers of GPUs, each with as many images.
#[derive(Debug, Args)]
#[command(after_help = SCALING_HELP)]
struct ScalingArgs {
    #[command(flatten)]
    common: RankStepArgs,
    /// Numbers of GPUs, or, on a CPU, of processes.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = count,
        default_values_t = [1, 2])]
    gpus: Vec<usize>,
    /// Images of a step on each GPU.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = count,
        default_values_t = [128])]
    batch: Vec<usize>,
    /// Steps to time, one by one and queued.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = count)]
    steps: usize,
    /// Instead of the file's `[devices]`: cpu or cuda.
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Write the results to a file as JSON, after every number of GPUs.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const PHASES_HELP: &str = "\
Examples:
  vim-train bench phases configs/vim_tiny_imagenet.toml --set train.precision=bf16 --batch 128,512
  vim-train bench phases configs/debug.toml --steps 5 --trace trace.json
  vim-train bench phases configs/vim_tiny_imagenet.toml --batch 256 --ranks 2    two GPUs, 128 images each

Times the training step of `bench --mode train`, with the same columns: one by one, and queued, which gives img/s.
A third round waits for the device after each phase, which gives the phases' times (their sum is a little more than a
whole step); with train.accumulate, a phase is the sum over its parts.
Several ranks, by --ranks or by the configuration's devices.gpus, share each batch: `pack` puts a rank's gradients
behind each other, `exchange` sums them over the ranks, and has in it what rank 0 waits for slower ones; its share
is of a whole step. A step that is not finite is an error.
The trace opens in chrome://tracing or ui.perfetto.dev.";

/// Time a training step by its phases.
#[derive(Debug, Args)]
#[command(after_help = PHASES_HELP)]
pub(crate) struct PhasesArgs {
    #[command(flatten)]
    common: RankStepArgs,
    /// Images of a step; train.batch_size where left out.
    #[arg(long, value_name = "B,B", value_delimiter = ',', value_parser = count)]
    batch: Vec<usize>,
    /// Steps to time, one by one, queued, and by phases.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count)]
    steps: usize,
    /// Ranks that share each batch; one for each GPU of `devices.gpus` where left out.
    #[arg(long, value_name = "N", value_parser = count)]
    ranks: Option<usize>,
    /// Write the phases of every timed step as a Chrome trace.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
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
        Some(BenchCommand::Compare(args)) => compare::run(&CompareOptions {
            files: args.files.clone(),
            output: args.output.clone(),
            batch_size: args.batch_size,
            force: args.force,
        }),
        Some(BenchCommand::Scaling(args)) => scaling::run(&ScalingOptions {
            common: args.common.options(),
            gpus: args.gpus.clone(),
            batch: args.batch.clone(),
            steps: args.steps,
            device: args.device.clone(),
            output: args.output.clone(),
        }),
        Some(BenchCommand::Phases(args)) => phases(args, "bench phases"),
        None => rows::run(&args.measure.options()?),
    }
}

/// Times the phases, as the command that errors and documents call `name`.
pub(crate) fn phases(args: &PhasesArgs, name: &'static str) -> Result<(), Error> {
    let options = PhasesOptions {
        common: args.common.options(),
        batch: args.batch.clone(),
        steps: args.steps,
        ranks: args.ranks,
        trace: args.trace.clone(),
    };
    phases::run(&options, name)
}

impl MeasureArgs {
    fn options(&self) -> Result<MeasureOptions, Error> {
        let config = self.config.clone();
        Ok(MeasureOptions {
            config: config.ok_or_else(|| Error::internal("no configuration file"))?,
            sets: self.overrides.set.clone(),
            modes: self.mode.modes(),
            graph: self.graph,
            batches: self.batch.clone().unwrap_or_else(|| self.mode.batches()),
            methods: self.methods.as_ref().map(|methods| methods.0.clone()),
            image_size: self.image_size,
            picture: self.picture,
            classes: self.classes,
            warmup: self.warmup,
            steps: self.steps,
            budget: self.budget,
            device: self.device.clone(),
            output: self.output.clone(),
            force: self.force,
            json: self.json,
        })
    }
}

impl RankStepArgs {
    fn options(&self) -> RankStepOptions {
        RankStepOptions {
            config: self.config.clone(),
            sets: self.overrides.set.clone(),
            classes: self.classes,
            warmup: self.warmup,
            rank: self.rank.rank.clone(),
            force: self.force,
            json: self.json,
        }
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

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

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
