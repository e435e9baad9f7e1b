//! `vim-train eval`.

mod classes;
mod coco;
mod compare;
mod detection;
mod segmentation;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use vim_comm::Comm;
use vim_data::Split;
use vim_run::CONFIG;
use vim_run::checkpoint::{Selection, Weights};
use vim_run::metrics::Scores;
use vim_run::signals::{Interrupted, StopRequest};
use vim_run::storage::{Disk, replace};

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;
use crate::config::{Config, TaskKind};
use crate::device;
use crate::device::threads;
use crate::error::Error;
use crate::output::bar::Bar;
use crate::output::{check_free, print, print_json};
use crate::run_folder::check_same_model_and_data;
use crate::task::classification::check_image_size;
use crate::task::classification::evaluate::{SCORES, evaluate};
use crate::task::classification::predictions::Predictions;
use crate::task::{EvalSplit, Evaluation, loaders};
use crate::weights::place::{Place, selection};
use crate::weights::source::{WeightsSource, notes};
use classes::Confusion;

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
  vim-train eval vim-tiny-coco-zoh-s0 --detections detections.json      a detection: what is found, for COCO's server
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
    #[arg(conflicts_with_all = ["config", "checkpoint", "split", "batch", "predictions", "confusion", "multi_scale", "detections", "annotations"])]
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
    /// Images at a time, whatever training takes; it need not divide their number. Left out:
    /// `train.batch_size`.
    #[arg(long, value_name = "N", value_parser = count)]
    batch: Option<usize>,
    #[command(flatten)]
    take: TakeArgs,
    /// Write what the model says of each image to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
    /// Write the scores of each class to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    per_class: Option<PathBuf>,
    /// Write which classes are taken for which to this file, as a table (.csv) or a figure (.svg).
    #[arg(long, value_name = "FILE")]
    confusion: Option<PathBuf>,
    /// Of a segmentation: see each image at six sizes and mirrored, and average the probabilities.
    #[arg(long)]
    multi_scale: bool,
    /// Of a detection: write what is found to this file, as COCO's evaluation takes it.
    #[arg(long, value_name = "FILE.json")]
    detections: Option<PathBuf>,
    /// Of a detection: write what is annotated in the same images to this file, likewise.
    #[arg(long, value_name = "FILE.json")]
    annotations: Option<PathBuf>,
    /// Write over these files if they are there.
    #[arg(long)]
    force: bool,
    /// Print the result on stdout as JSON.
    #[arg(long)]
    json: bool,
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
            coco::run(evaluation, annotations, detections)
        }
        (None, Some(config), _) => evaluate_checkpoint(config, evaluation),
        (None, None, _) => Err(Error::internal("the parser let a missing argument pass")),
    }
}

/// Checks that the files to be written may be.
fn check_free_all(args: &EvalArgs) -> Result<(), Error> {
    let of_objects = [&args.detections, &args.annotations];
    let files = [&args.predictions, &args.per_class, &args.confusion].into_iter().chain(of_objects);
    files.flatten().try_for_each(|path| check_free(path, args.force))
}

fn evaluate_checkpoint(path: &Path, args: &EvalArgs) -> Result<(), Error> {
    check_free_all(args)?;
    if let Some(path) = &args.confusion {
        classes::check_extension(path)?;
    }
    let subject = subject(path, args)?;
    match subject.config.task {
        task if args.multi_scale && task != TaskKind::Segmentation => {
            return Err(Error::failed(format!(
                "--multi-scale is of a segmentation, and this is a {task}"
            )));
        }
        task if task != TaskKind::Detection
            && (args.detections.is_some() || args.annotations.is_some()) =>
        {
            return Err(Error::failed(format!(
                "--detections and --annotations are of a detection, and this is a {task}"
            )));
        }
        TaskKind::Classification => {}
        TaskKind::Segmentation => return segmentation::run(args, subject),
        TaskKind::Detection => return detection::run(args, subject),
    }
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let Subject { config, run, weights } = subject;
    threads::start(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    let splits = vim_data::open::<vim_data::Class>(&config.data, config.run.seed)?;
    let split = match args.split {
        EvalSplit::Test => splits.test,
        EvalSplit::Val => splits.val.ok_or_else(no_validation)?,
    };
    let statistics = split.statistics(config.data.normalize);
    let classes = splits.train.num_classes();
    let model = config.model.with_classes(classes)?;
    check_image_size(&model, &config.augment, &split)?;
    check_weights_of_run(args, &run, &config)?;
    let weights = WeightsSource::open(&weights, args.take.section())?;
    let options = args.take.options();
    let model = model.init(&chosen.device, 0)?.with_precision(config.train.precision)?;
    let (model, report) = weights.load(model, options)?;
    for note in weights.note.iter().cloned().chain(notes(&report, options)) {
        eprintln!("note: {note}");
    }
    stop.defer();
    let comm = Comm::single();
    let mut loading = loaders::evaluation(&config, model.config().image_size, &comm);
    loading.batch_size = args.batch.unwrap_or(loading.batch_size);
    let files = [&args.predictions, &args.per_class, &args.confusion];
    let mut predictions = files.iter().any(|path| path.is_some()).then(|| Predictions::of(&split));
    let bar = Bar::of_images(split.len(), args.split.name());
    let mut each = |place, logits: &[f32], is_read: bool| {
        bar.advance(1);
        if let Some(predictions) = &mut predictions {
            predictions.add(place, logits, is_read);
        }
    };
    let (device, ranks) = (&chosen.device, (&comm, &stop));
    let evaluation = evaluate(&model, &split, statistics, loading, device, ranks, &mut each)?;
    drop(bar);
    let Some(Evaluation { scores, images }) = evaluation else {
        let stop = stop.get().expect("invariant: only a request to stop ends an evaluation early");
        return Err(Interrupted { stop }.into());
    };
    if let (Some(path), Some(predictions)) = (&args.predictions, &predictions) {
        replace(&Disk, path, &predictions.csv()?).map_err(Error::io("write", path))?;
    }
    if let Some(predictions) = &predictions {
        let title = format!("{}, {}, {images} images", weights.name, args.split.name());
        let confusion = confusion(&split, predictions);
        args.per_class.iter().try_for_each(|path| confusion.write_classes(path))?;
        args.confusion.iter().try_for_each(|path| confusion.write_matrix(path, &title))?;
    }
    if args.json {
        #[derive(Serialize)]
        struct EvalReport {
            checkpoint: String,
            weights: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            step: Option<u64>,
            split: &'static str,
            #[serde(flatten)]
            scores: Scores,
            images: usize,
        }
        let (split, step) = (args.split.name(), weights.step);
        return print_json(&EvalReport {
            checkpoint: weights.name,
            weights: weights.weights.name(),
            step,
            split,
            scores,
            images,
        });
    }
    let name = args.split.name();
    let step = weights.step.map_or_else(String::new, |step| format!(" (step {step})"));
    let average = match weights.weights {
        Weights::Model => "",
        Weights::Ema => ", moving average of the weights",
    };
    print(&format!("checkpoint {}{step}{average}", weights.name))?;
    // One line per score, the primary one last.
    let shown = |is_share: bool| {
        let kinds = SCORES.iter().filter(move |kind| kind.is_share == is_share);
        let shown = kinds.filter_map(|kind| {
            Some(format!("{} {}", kind.label, kind.show(scores.get(kind.name)?)))
        });
        shown.collect::<Vec<_>>()
    };
    print(&format!("{name} images {images}, {}", shown(false).join(", ")))?;
    shown(true).iter().rev().try_for_each(|share| print(&format!("{name} {share}")))
}

/// There is nothing to evaluate on.
fn no_validation() -> Error {
    Error::failed(
        "there are no validation images: hold some out by data.val_fraction, or use --split test",
    )
}

/// Checks that the weights of a run are evaluated as they were trained: another method,
/// normalisation or seed changes the result but not the weights' shapes. For a checkpoint given by
/// its folder the caller is responsible.
fn check_weights_of_run(args: &EvalArgs, run: &Path, config: &Config) -> Result<(), Error> {
    let is_of_run = args.checkpoint.as_ref().is_none_or(|which| selection(which).is_some());
    if is_of_run && run.is_dir() {
        check_same_model_and_data(run, config)?;
    }
    Ok(())
}

/// What is evaluated.
struct Subject {
    config: Config,
    /// The folder of the run that the configuration is of.
    run: PathBuf,
    weights: Place,
}

/// The configuration in the file at `path`, or recorded in the run that `path` names.
fn subject(path: &Path, args: &EvalArgs) -> Result<Subject, Error> {
    let sets = &args.device.over(&args.overrides.set);
    let named = if path.extension().is_some_and(|extension| extension == "toml") {
        None
    } else {
        let place = Place::find(path, &args.overrides.run_root()?, None)?;
        place.run().map(|run| (run, place))
    };
    let (config, run, weights) = match named {
        Some((run, place)) => (Config::load(&run.join(CONFIG), sets)?, run, place),
        None => {
            let config = Config::load(path, sets)?;
            let run = config.run_folder()?;
            let best = Place::Run(run.clone(), Selection::Best);
            (config, run, best)
        }
    };
    let weights = match &args.checkpoint {
        Some(which) => Place::find(which, &config.run.root, Some(&run))?,
        None => weights,
    };
    Ok(Subject { config, run, weights })
}

/// Which classes were taken for which.
fn confusion(split: &Split, predictions: &Predictions) -> Confusion {
    let mut confusion = Confusion::of(split.class_names());
    predictions.each(|label, predicted| confusion.add(label, predicted));
    confusion
}
