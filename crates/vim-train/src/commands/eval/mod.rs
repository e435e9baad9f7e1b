//! `vim-train eval`.

mod compare;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use vim_engine::Error;
use vim_engine::config::{Config, config_inputs, is_embedded};
use vim_engine::output::{check_free, check_no_input, confusion};
use vim_engine::run_folder::{as_recorded, with_parts};
use vim_engine::task::EvalSplit;
use vim_engine::task::named::EvalOptions;
use vim_engine::weights::place::Place;
use vim_engine::work::coco;
use vim_engine::work::evaluate::{Evaluate, evaluate};
use vim_run::CONFIG;
use vim_run::checkpoint::Selection;

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;

const EXAMPLES: &str = "\
Examples:
  vim-train eval configs/debug.toml
  vim-train eval zoh-s0                                a run: its folder, or its name in run.root
  vim-train eval data/runs/zoh-s0/checkpoints/last
  vim-train eval configs/debug.toml --checkpoint last --split val --json
  vim-train eval configs/debug.toml --checkpoint data/runs/zoh-s0/checkpoints/step-00000500
  vim-train eval configs/debug.toml --batch 512        a batch of its own, for speed: the numbers are the same
  vim-train eval configs/vim_tiny_cifar100.toml --checkpoint vim_t.pth --ema
  vim-train eval configs/debug.toml --predictions out.csv     a row for each image
  vim-train eval configs/debug.toml --per-class classes.csv --confusion confusion.svg
  vim-train eval compare zoh.csv foh.csv               which images one method alone gets right
  vim-train eval vim-tiny-coco-zoh-s0 --detections detections.json      the detections, for COCO's server
  vim-train eval --coco instances_val2017.json detections.json

The columns of predictions are index (of the image in its dataset), image (its file), label, predicted (the
likeliest class), probability (of that class), top5 (the five likeliest classes, the likeliest first), label_name
and predicted_name. Of an image that could not be read, what the model says is empty.
The columns of --per-class are class, name, images, correct, accuracy (correct / images) and predicted (images taken for
this class). --confusion has a row for each true class and a column for each predicted one.";

/// Evaluate a checkpoint of a run: loss and accuracy, mean IoU, or COCO's average precision.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvalArgs {
    /// Configuration file of the run, or the run itself, whose recorded configuration counts: its
    /// folder, its name in `run.root`, or one of its checkpoints.
    #[arg(value_name = "CONFIG|RUN", required_unless_present = "coco")]
    config: Option<PathBuf>,
    /// Compare a file of detections with one of annotations, both in COCO's format, by its twelve
    /// numbers: of boxes, of masks, or of both where the detections have both.
    #[arg(long, num_args = 2, value_names = ["ANNOTATIONS", "DETECTIONS"])]
    #[arg(conflicts_with_all = ["config", "checkpoint", "split", "batch", "predictions", "confusion", "multi_scale", "detections", "annotations", "ema", "no_ema", "allow", "allow_missing", "pos_embed", "device"])]
    coco: Option<Vec<PathBuf>>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceArg,
    /// Which weights: `best` or `last` of the run, another run's folder or name, a checkpoint's
    /// folder, or a file (.pth, .safetensors). Left out: the best, or the last where no held-out
    /// images choose a best one.
    #[arg(long, value_name = "best|last|PATH")]
    checkpoint: Option<PathBuf>,
    /// Which images.
    #[arg(long, value_enum, default_value_t)]
    split: EvalSplit,
    /// Images at a time, whatever training takes; it need not divide their number. Left out: those
    /// of a micro-batch of training; with segmentation, whose images differ in size, one.
    #[arg(long, value_name = "N", value_parser = count)]
    batch: Option<usize>,
    #[command(flatten)]
    take: TakeArgs,
    #[command(flatten)]
    options: FileArgs,
    /// Write over these files if they are there.
    #[arg(long)]
    force: bool,
    /// Print the result on stdout as JSON.
    #[arg(long)]
    json: bool,
}

/// What `eval` does and writes beside its scores.
#[derive(Debug, Args)]
struct FileArgs {
    /// Write what the model says of each image to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
    /// Write the scores of each class to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    per_class: Option<PathBuf>,
    /// Write which classes are taken for which to this file, as a table (.csv) or a figure (.svg).
    #[arg(long, value_name = "FILE")]
    confusion: Option<PathBuf>,
    /// Segmentation only: see each image at six sizes and mirrored, and average the probabilities.
    #[arg(long)]
    multi_scale: bool,
    /// Detection only: write the detections to this file, as COCO's evaluation takes them.
    #[arg(long, value_name = "FILE.json")]
    detections: Option<PathBuf>,
    /// Detection only: write the annotations of the same images to this file, likewise.
    #[arg(long, value_name = "FILE.json")]
    annotations: Option<PathBuf>,
}

impl FileArgs {
    fn options(&self) -> EvalOptions {
        let Self { predictions, per_class, confusion, multi_scale, detections, annotations } = self;
        EvalOptions {
            predictions: predictions.clone(),
            per_class: per_class.clone(),
            confusion: confusion.clone(),
            multi_scale: *multi_scale,
            detections: detections.clone(),
            annotations: annotations.clone(),
        }
    }
}

/// Evaluate a checkpoint of a run, or compare two by their predictions.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct EvalCommandArgs {
    #[command(subcommand)]
    command: Option<EvalCommand>,
    #[command(flatten)]
    evaluation: EvalArgs,
}

#[derive(Debug, Subcommand)]
enum EvalCommand {
    Compare(compare::CompareArgs),
}

pub(crate) fn run(args: &EvalCommandArgs) -> Result<(), Error> {
    let EvalCommandArgs { command, evaluation } = args;
    match (command, &evaluation.config, evaluation.coco.as_deref()) {
        (Some(EvalCommand::Compare(args)), _, _) => compare::run(args),
        (None, _, Some([annotations, detections])) => {
            check_free_all(evaluation)?;
            check_no_inputs(evaluation, &[annotations.clone(), detections.clone()])?;
            let per_class = evaluation.options.per_class.as_deref();
            coco::compare(annotations, detections, per_class, evaluation.json)
        }
        (None, Some(config), _) => evaluate_checkpoint(config, evaluation),
        (None, None, _) => Err(Error::internal("the parser let a missing argument pass")),
    }
}

/// Checks that the files to be written may be.
fn check_free_all(args: &EvalArgs) -> Result<(), Error> {
    args.options.options().files().try_for_each(|path| check_free(path, args.force))
}

/// Checks that none of the files to be written is read, too.
fn check_no_inputs(args: &EvalArgs, read: &[PathBuf]) -> Result<(), Error> {
    let options = args.options.options();
    options.files().try_for_each(|path| check_no_input(path, read.iter().map(PathBuf::as_path)))
}

fn evaluate_checkpoint(path: &Path, args: &EvalArgs) -> Result<(), Error> {
    check_free_all(args)?;
    if let Some(path) = &args.options.confusion {
        confusion::check_extension(path)?;
    }
    let subject = subject(path, args)?;
    let Subject { config, weights } = &subject;
    let own = path.is_file().then(|| path.to_owned());
    let own = config_inputs(&own);
    let read = weights.inputs().into_iter().chain(config.data_inputs()).chain(own);
    check_no_inputs(args, &read.collect::<Vec<_>>())?;
    let Subject { config, weights } = subject;
    evaluate(Evaluate {
        config,
        weights,
        split: args.split,
        batch: args.batch,
        take: args.take.take(),
        options: args.options.options(),
        json: args.json,
    })
}

/// What is evaluated.
struct Subject {
    config: Config,
    weights: Place,
}

/// The configuration in the file at `path`, or recorded in the run that `path` names.
fn subject(path: &Path, args: &EvalArgs) -> Result<Subject, Error> {
    let sets = &args.device.over(&args.overrides.set);
    let named = if path.extension().is_some_and(|extension| extension == "toml") {
        None
    } else {
        match Place::find(path, &args.overrides.run_root()?, None) {
            Ok(place) => place.run().map(|run| (run, place)),
            Err(_) if is_embedded(path) => None,
            Err(error) => return Err(error),
        }
    };
    let (config, run, weights) = match named {
        Some((run, place)) => (as_recorded(&run.join(CONFIG), sets)?, run, place),
        None => {
            let config = with_parts(as_recorded(path, sets)?, false);
            let run = config.run_folder()?;
            let best = Place::Run(run.clone(), Selection::Best);
            (config, run, best)
        }
    };
    let weights = match &args.checkpoint {
        Some(which) => Place::find(which, &config.run.root, Some(&run))?,
        None => weights,
    };
    Ok(Subject { config, weights })
}
