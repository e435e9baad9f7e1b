//! `vim-train eval`.

mod coco;
mod compare;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use vim_comm::Comm;
use vim_data::BadRule;
use vim_run::CONFIG;
use vim_run::checkpoint::{Selection, Weights};
use vim_run::signals::{Interrupted, StopRequest};

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;
use crate::config::{Config, RecordedPaths, config_inputs, is_embedded};
use crate::device;
use crate::device::threads;
use crate::error::Error;
use crate::output::bar::Bar;
use crate::output::{check_free, check_no_input, confusion, print, print_json};
use crate::run_folder::with_parts;
use crate::task::EvalSplit;
use crate::task::backends::{self, Work};
use crate::task::classes::as_trained;
use crate::task::kinds::with_task;
use crate::task::known::check_split;
use crate::task::named::{EvalOptions, Evaluating, NamedTask, Report as _, check_flags};
use crate::weights::place::Place;
use crate::weights::provenance::{Remarks, Use};
use crate::weights::record::{Recorded, RecordedData};
use crate::weights::source::WeightsSource;

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
    options: EvalOptions,
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
            check_no_inputs(evaluation, &[annotations.clone(), detections.clone()])?;
            coco::run(evaluation, annotations, detections)
        }
        (None, Some(config), _) => evaluate_checkpoint(config, evaluation),
        (None, None, _) => Err(Error::internal("the parser let a missing argument pass")),
    }
}

/// Checks that the files to be written may be.
fn check_free_all(args: &EvalArgs) -> Result<(), Error> {
    args.options.files().try_for_each(|path| check_free(path, args.force))
}

/// Checks that none of the files to be written is read, too.
fn check_no_inputs(args: &EvalArgs, read: &[PathBuf]) -> Result<(), Error> {
    let mut files = args.options.files();
    files.try_for_each(|path| check_no_input(path, read.iter().map(PathBuf::as_path)))
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
    with_task!(subject.config.task, T => evaluate::<T>(args, subject))
}

/// What `--json` prints.
#[derive(Serialize)]
struct EvalReport<'a, R> {
    checkpoint: &'a str,
    weights: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    split: &'static str,
    #[serde(flatten)]
    report: &'a R,
    #[serde(flatten)]
    remarks: &'a Remarks,
}

fn evaluate<T: NamedTask>(args: &EvalArgs, subject: Subject) -> Result<(), Error> {
    check_flags::<T>(&args.options.given())?;
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let Subject { config, weights } = subject;
    threads::start(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    backends::check(config.task, Work::Eval, &chosen)?;
    let source = WeightsSource::open(&weights, args.take.section())?;
    let options = args.take.options();
    let (splits, note) = as_trained(T::splits(&config)?, &source, options.head)?;
    let now = Recorded::of_run(&config, &[], RecordedData::of(&config.data, &splits));
    let held_out = args.split == EvalSplit::Val || splits.test_fraction > 0.0;
    let what = Use::Evaluate { held_out };
    let mut remarks = source.check_use(&now, what, &args.take.allowed())?;
    remarks.assumed.extend(note);
    let classes = splits.train.num_classes();
    let split = match args.split {
        EvalSplit::Test => splits.test,
        EvalSplit::Val => splits.val.ok_or_else(no_validation)?,
    };
    remarks.classes_without_images = split.empty_classes();
    let what = if args.split == EvalSplit::Val { "validation images" } else { "test images" };
    let rule = BadRule::Test(config.data.bad_test);
    for note in check_split(&split, what, rule, &config, &Comm::single())? {
        eprintln!("note: {note}");
    }
    let described = source.described::<T::Heads>(Some(&config), Some(classes))?;
    let (model, loaded) = source.model(&described, &chosen.device, options)?;
    source.say_notes(&loaded, options);
    stop.defer();
    let bar = Bar::of_images(split.len(), args.split.name());
    let evaluated = T::report(
        model,
        &Evaluating {
            config: &config,
            split: &split,
            batch: args.batch,
            multi_scale: args.options.multi_scale,
            device: &chosen.device,
            comm: &Comm::single(),
            stop: &stop,
            advance: &|images| bar.advance(images),
        },
    )?;
    drop(bar);
    let Some(report) = evaluated else {
        let stop = stop.get().expect("invariant: only a request to stop ends an evaluation early");
        return Err(Interrupted { stop }.into());
    };
    let (name, WeightsSource { name: checkpoint, weights, step, .. }) =
        (args.split.name(), &source);
    let title = format!("{checkpoint}, {name}, {} images", report.images());
    report.write(&split, &args.options, &title)?;
    if args.json {
        let (weights, step) = (weights.name(), *step);
        let (split, report, remarks) = (name, &report, &remarks);
        return print_json(&EvalReport { checkpoint, weights, step, split, report, remarks });
    }
    let step = step.map_or_else(String::new, |step| format!(" (step {step})"));
    let average = match weights {
        Weights::Model => "",
        Weights::Ema => ", moving average of the weights",
    };
    print(&format!("checkpoint {checkpoint}{step}{average}"))?;
    let mut lines = report.lines(name);
    // The last such line has the score that counts.
    if let Some(result) = lines.iter_mut().rfind(|line| line.starts_with(name)) {
        result.push_str(&remarks.suffix());
    }
    lines.iter().try_for_each(|line| print(line))
}

/// There is nothing to evaluate on.
fn no_validation() -> Error {
    Error::failed(
        "there are no validation images: hold some out by data.val_fraction, or use --split test",
    )
}

/// What is evaluated.
struct Subject {
    config: Config,
    weights: Place,
}

/// The configuration in `file`; where a run recorded it and its data are elsewhere, that is said.
fn as_recorded(file: &Path, sets: &[String]) -> Result<Config, Error> {
    let config = Config::load(file, sets)?;
    RecordedPaths::moved(file, &config)?.iter().for_each(|line| eprintln!("note: {line}"));
    Ok(config)
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
