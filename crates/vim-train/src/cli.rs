//! The command line.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::bench::{BenchArgs, EXAMPLES as BENCH_EXAMPLES};
use crate::commands::completions::{COMPLETIONS_EXAMPLES, CompletionsArgs, MAN_EXAMPLES, ManArgs};
use crate::commands::config::{ConfigArgs, EXAMPLES as CONFIG_EXAMPLES};
use crate::commands::data::{DataCommand, EXAMPLES as DATA_EXAMPLES};
use crate::commands::doctor::{DoctorArgs, EXAMPLES as DOCTOR_EXAMPLES};
use crate::commands::eval_golden::{EXAMPLES as EVAL_GOLDEN_EXAMPLES, EvalGoldenArgs};
use crate::commands::export::{EXAMPLES as EXPORT_EXAMPLES, ExportArgs};
use crate::commands::flops::{CONVENTIONS, FlopsArgs};
use crate::commands::import::{EXAMPLES as IMPORT_EXAMPLES, ImportArgs, TakeArgs};
use crate::commands::predict::{EXAMPLES as PREDICT_EXAMPLES, PredictArgs};
use crate::commands::profile::{EXAMPLES as PROFILE_EXAMPLES, ProfileArgs, count};
use crate::commands::runs::{EXAMPLES as RUNS_EXAMPLES, RunsCommand};
use crate::commands::slurm::{EXAMPLES as SLURM_EXAMPLES, SlurmCommand};
use crate::commands::sweep::{EXAMPLES as SWEEP_EXAMPLES, SweepCommand};
use crate::commands::verify::{EXAMPLES as VERIFY_EXAMPLES, VerifyArgs};
use crate::run::checkpoint::Selection;
use crate::run::run_dir::Resume;
use crate::task::EvalSplit;
use crate::train::{WARMUP_EXAMPLES, WarmupArgs};

/// Train Vision Mamba under six discretizations, from a TOML file.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  the run failed, or a check of verify, doctor or eval-golden did; config diff found a difference
    2  bad command line
   65  data, a checkpoint or a script missing, damaged or unfit
   69  device not available, or lost; SLURM not available, or a job refused
   70  internal error
   71  the device ran out of memory
   73  the run folder is in use, or holds or awaits a run already; a file to be written is there already
   74  a file cannot be read or written
   75  interrupted and saved: the same command with --resume auto goes on
   76  training diverged
   78  bad configuration
  130  Ctrl-C, saved

Results go to stdout, everything else to stderr. An error is one line: what, where, what to do.";

const TRAIN_EXAMPLES: &str = "\
Examples:
  vim-train train configs/debug.toml
  vim-train train configs/debug.toml --set model.discretization=bilinear --set run.seed=1
  vim-train train configs/debug.toml --resume auto    start, or go on after an interruption
  vim-train train configs/debug.toml --dry-run        configuration, data, device: would it start?

SIGTERM, SIGUSR1 and SIGUSR2 save a checkpoint and exit 75; Ctrl-C saves and exits 130, a second
Ctrl-C exits at once. In a SLURM job, `slurm.on_interrupt` says whether the job then goes back into the
queue; scancel is final. `vim-train --help` lists all exit codes.";

const EVAL_EXAMPLES: &str = "\
Examples:
  vim-train eval configs/debug.toml
  vim-train eval configs/debug.toml --checkpoint last --split val --json
  vim-train eval configs/debug.toml --checkpoint data/runs/zoh-s0/checkpoints/step-00000500
  vim-train eval configs/debug.toml --batch 512        a batch of its own, for speed: the numbers are the same
  vim-train eval configs/vim_tiny_cifar100.toml --checkpoint vim_t.pth --ema
  vim-train eval configs/debug.toml --predictions out.csv     a row for each image

The columns of predictions are index (of the image in its dataset), image (its file), label, predicted (the
likeliest class), probability (of that class), and top5 (the five likeliest classes, the likeliest first).
The last three are empty for an image that could not be read.";

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model, or go on with a run that was interrupted.
    #[command(after_help = TRAIN_EXAMPLES)]
    Train(TrainArgs),
    /// Compile beforehand all that a run on a GPU compiles at its first step.
    #[command(after_help = WARMUP_EXAMPLES)]
    Warmup(WarmupArgs),
    /// Train many runs from one file: every method with every seed, and a table and a page of what came of it.
    #[command(subcommand, after_help = SWEEP_EXAMPLES)]
    Sweep(SweepCommand),
    /// Evaluate a checkpoint of a run: loss, top-1 and top-5 accuracy.
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(EvalArgs),
    /// Classify images: the likeliest classes by name.
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(PredictArgs),
    /// Read a checkpoint of PyTorch: check it, say what it is, keep it in this program's format.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Write weights as PyTorch's, under the original's names.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Check, show and compare configurations, and make them of the original's scripts.
    #[command(after_help = CONFIG_EXAMPLES)]
    Config(ConfigArgs),
    /// Look after the images: scan, check, pack, time and show them.
    #[command(subcommand, after_help = DATA_EXAMPLES)]
    Data(DataCommand),
    /// Look at runs: list them, show one, compare several.
    #[command(subcommand, after_help = RUNS_EXAMPLES)]
    Runs(RunsCommand),
    /// Submit runs to SLURM, and look after their jobs.
    #[command(subcommand, after_help = SLURM_EXAMPLES)]
    Slurm(SlurmCommand),
    /// List the discretizations.
    #[command(after_help = METHODS_EXAMPLES)]
    Methods(MethodsArgs),
    /// List the named models: parameters, multiply-adds, input size, and the original's names for them.
    #[command(after_help = MODELS_EXAMPLES)]
    Models(MethodsArgs),
    /// Count parameters, multiply-adds and operations of a model, by component.
    #[command(after_help = CONVENTIONS)]
    Flops(FlopsArgs),
    /// Compare a checkpoint of the original with arrays that the original computed with it.
    #[command(after_help = EVAL_GOLDEN_EXAMPLES)]
    EvalGolden(EvalGoldenArgs),
    /// Check every method and implementation on a device against loops in f64.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Check this machine: CPU, GPU, libraries, kernels, disks, SLURM; each line says what to do.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Time the scan, the operations that a layer is made of, or a step of training by its phases.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(ProfileArgs),
    /// Time whole models: inference and training steps over batch sizes, for each method.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Print completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command.
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

/// `vim-train train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Configuration file.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Where the order of the images comes from, `keyed` or `reference` (the original's samplers): short for
    /// `--set augment.order=KIND`.
    #[arg(long, value_name = "KIND")]
    pub data_order: Option<String>,
    /// What to do if the run's folder holds a run.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, conflicts_with = "fresh")]
    pub resume: Resume,
    /// Stop after so many steps, with a checkpoint to go on from.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Move a run in the run's folder aside, to NAME.old-N, and start anew.
    #[arg(long)]
    pub fresh: bool,
    /// Check all that can be wrong, print what would be done, and make no folder.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the run's result on stdout as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `vim-train eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// Configuration file of the run.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Which weights: the run's `best` or `last`, a checkpoint's or run's folder, or a file (.pth, .safetensors).
    #[arg(long, value_name = "best|last|PATH", default_value = "best", value_parser = selection)]
    pub checkpoint: Selection,
    /// Which images.
    #[arg(long, value_enum, default_value_t)]
    pub split: EvalSplit,
    /// Images at a time, whatever training takes; it need not divide their number. Left out: `train.batch_size`.
    #[arg(long, value_name = "N", value_parser = count)]
    pub batch: Option<usize>,
    /// What to take from a file of weights, and what may be amiss.
    #[command(flatten)]
    pub take: TakeArgs,
    /// Write what the model says of each image to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    pub predictions: Option<PathBuf>,
    /// Write over the file of predictions if it is there.
    #[arg(long, requires = "predictions")]
    pub force: bool,
    /// Print the result on stdout as JSON.
    #[arg(long)]
    pub json: bool,
}

const METHODS_EXAMPLES: &str = "\
Examples:
  vim-train methods           each method's coefficients, and what is special about it
  vim-train methods --json    the same for scripts";

const MODELS_EXAMPLES: &str = "\
Examples:
  vim-train models            what model.preset may be
  vim-train models --json     the same for scripts";

/// `vim-train methods` and `vim-train models`.
#[derive(Debug, Args)]
pub struct MethodsArgs {
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Values over those of the configuration file.
#[derive(Debug, Default, Args)]
pub struct Overrides {
    /// Set a key over the file, as in `--set optim.lr=5e-4`; may be repeated, the last one counts.
    ///
    /// VALUE is TOML; what is not TOML is taken as text, so that `--set data.path=/scratch/x` needs
    /// no quotes.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

pub(crate) fn selection(text: &str) -> Result<Selection, Infallible> {
    Ok(match text {
        "best" => Selection::Best,
        "last" => Selection::Last,
        path => Selection::Path(path.into()),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
