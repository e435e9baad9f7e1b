//! `eval` of a detection: COCO's numbers of boxes and masks, and of each class.

use std::collections::BTreeMap;

use serde::Serialize;
use vim_comm::Comm;
use vim_run::signals::{Interrupted, StopRequest};
use vim_run::storage::{Disk, replace};

use super::coco::{KindReport, kind_reports, print_scores};
use super::{EvalArgs, Subject, check_weights_of_run};
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::output::{print, print_json};
use crate::task::detection::classes::classes_csv;
use crate::task::detection::evaluate::{Evaluated, Loading, evaluate};
use crate::task::detection::{ObjectDetector, loading, viewer};
use crate::task::{EvalSplit, Objective};
use crate::weights::source::WeightsSource;

#[derive(Serialize)]
struct Report<'a> {
    checkpoint: String,
    weights: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    split: &'static str,
    images: usize,
    detections: usize,
    #[serde(flatten)]
    kinds: BTreeMap<String, KindReport<'a>>,
}

/// Evaluates the weights of `subject`, whose task is detection.
pub(super) fn run(args: &EvalArgs, subject: Subject) -> Result<(), Error> {
    for (flag, is_given) in
        [("--predictions", args.predictions.is_some()), ("--confusion", args.confusion.is_some())]
    {
        if is_given {
            return Err(Error::failed(format!(
                "{flag} is of tasks with one class for each image or pixel, and this is a \
                 detection: --detections FILE.json writes what is found in each image"
            )));
        }
    }
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let Subject { config, run, weights } = subject;
    threads::start(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    let splits = vim_data::open::<vim_data::ImageObjects>(&config.data, config.run.seed)?;
    let split = match args.split {
        EvalSplit::Test => splits.test,
        EvalSplit::Val => splits.val.ok_or_else(super::no_validation)?,
    };
    check_weights_of_run(args, &run, &config)?;
    let weights = WeightsSource::open(&weights, args.take.section())?;
    let objective = ObjectDetector::new(&config, split.num_classes())?;
    let (model, _) = weights.load_detector(objective.init(&chosen.device)?)?;
    if let Some(note) = &weights.note {
        eprintln!("note: {note}");
    }
    stop.defer();
    let bar = Bar::of_images(split.len(), args.split.name());
    let mut each = |_: &_, _: &_| {
        bar.advance(1);
        Ok(())
    };
    let loading = loading(&config);
    let loading = Loading { batch: args.batch.unwrap_or(loading.batch), ..loading };
    let (viewer, comm) = (viewer(&config, &split), Comm::single());
    let how = (&viewer, loading);
    let evaluated = evaluate(&model, &split, how, &chosen.device, (&comm, &stop), &mut each)?;
    drop(bar);
    let Some(Evaluated { truths, found, scores, images }) = evaluated else {
        let stop = stop.get().expect("invariant: only a request to stop ends an evaluation early");
        return Err(Interrupted { stop }.into());
    };
    if let Some(path) = &args.per_class {
        replace(&Disk, path, &classes_csv(&scores)?).map_err(Error::io("write", path))?;
    }
    if let Some(path) = &args.detections {
        replace(&Disk, path, &found.json()).map_err(Error::io("write", path))?;
    }
    if let Some(path) = &args.annotations {
        replace(&Disk, path, &truths.json()).map_err(Error::io("write", path))?;
    }
    let (split, step) = (args.split.name(), weights.step);
    if args.json {
        return print_json(&Report {
            checkpoint: weights.name,
            weights: weights.weights.name(),
            step,
            split,
            images,
            detections: found.len(),
            kinds: kind_reports(&scores),
        });
    }
    let step = step.map_or_else(String::new, |step| format!(" (step {step})"));
    print(&format!("checkpoint {}{step}", weights.name))?;
    print(&format!("{split} images {images}, {} detections", found.len()))?;
    print_scores(&scores)
}
