//! Evaluates weights on a split of a dataset.

use serde::Serialize;
use vim_comm::Comm;
use vim_data::BadRule;
use vim_run::checkpoint::Weights;
use vim_run::signals::{Interrupted, StopRequest};

use crate::config::Config;
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::output::{print, print_json};
use crate::task::EvalSplit;
use crate::task::backends::{self, Work};
use crate::task::classes::as_trained;
use crate::task::kinds::with_task;
use crate::task::known::check_split;
use crate::task::named::{EvalOptions, Evaluating, NamedTask, Report as _, check_flags};
use crate::weights::place::Place;
use crate::weights::provenance::{Remarks, Use};
use crate::weights::record::{Recorded, RecordedData};
use crate::weights::source::{Take, WeightsSource};

/// What is evaluated, and how it is told.
#[derive(Debug)]
pub struct Evaluate {
    /// Of the model and the data.
    pub config: Config,
    /// The weights.
    pub weights: Place,
    /// Which images.
    pub split: EvalSplit,
    /// Images at a time; `None` leaves it to the task.
    pub batch: Option<usize>,
    /// What is taken of the weights.
    pub take: Take,
    /// What is written beside the scores.
    pub options: EvalOptions,
    /// Whether the result is printed as JSON.
    pub json: bool,
}

/// Evaluates, prints the scores and writes the files asked for.
pub fn evaluate(asked: Evaluate) -> Result<(), Error> {
    with_task!(asked.config.task, T => evaluate_as::<T>(asked))
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

fn evaluate_as<T: NamedTask>(asked: Evaluate) -> Result<(), Error> {
    let Evaluate { config, weights, split: which, batch, take, options: files, json } = asked;
    check_flags::<T>(&files.given())?;
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    threads::start(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    backends::check(config.task, Work::Eval, &chosen)?;
    let source = WeightsSource::open(&weights, take.section)?;
    let options = take.fit;
    let (splits, note) = as_trained(T::splits(&config)?, &source, options.head)?;
    let now = Recorded::of_run(&config, &[], RecordedData::of(&config.data, &splits));
    let held_out = which == EvalSplit::Val || splits.test_fraction > 0.0;
    let what = Use::Evaluate { held_out };
    let mut remarks = source.check_use(&now, what, &take.allowed)?;
    remarks.assumed.extend(note);
    let classes = splits.train.num_classes();
    let split = match which {
        EvalSplit::Test => splits.test,
        EvalSplit::Val => splits.val.ok_or_else(no_validation)?,
    };
    remarks.classes_without_images = split.empty_classes();
    let what = if which == EvalSplit::Val { "validation images" } else { "test images" };
    let rule = BadRule::Test(config.data.bad_test);
    for note in check_split(&split, what, rule, &config, &Comm::single())? {
        eprintln!("note: {note}");
    }
    let described = source.described::<T::Heads>(Some(&config), Some(classes))?;
    let (model, loaded) = source.model(&described, &chosen.device, options)?;
    source.say_notes(&loaded, options);
    stop.defer();
    let bar = Bar::of_images(split.len(), which.name());
    let evaluated = T::report(
        model,
        &Evaluating {
            config: &config,
            split: &split,
            batch,
            multi_scale: files.multi_scale,
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
    let (name, WeightsSource { name: checkpoint, weights, step, .. }) = (which.name(), &source);
    let title = format!("{checkpoint}, {name}, {} images", report.images());
    report.write(&split, &files, &title)?;
    if json {
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
