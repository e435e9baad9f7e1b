//! `eval` of a segmentation: scores of all pixels and of each class.

use serde::Serialize;
use vim_comm::Comm;
use vim_run::metrics::Scores;
use vim_run::signals::{Interrupted, StopRequest};
use vim_run::storage::{Disk, replace};

use super::classes::Confusion;
use super::{EvalArgs, Subject, check_weights_of_run};
use crate::device::{self, threads};
use crate::error::Error;
use crate::output::bar::Bar;
use crate::output::{print, print_json};
use crate::task::segmentation::classes::{ClassRow, class_rows, classes_csv};
use crate::task::segmentation::evaluate::{SCORES, evaluate, scores};
use crate::task::segmentation::inference::Viewer;
use crate::task::segmentation::{PixelClassifier, loading, viewer};
use crate::task::{EvalSplit, Evaluation, Objective};
use crate::weights::source::WeightsSource;

/// Evaluates the weights of `subject`, whose task is segmentation.
pub(super) fn run(args: &EvalArgs, subject: Subject) -> Result<(), Error> {
    if args.predictions.is_some() {
        return Err(Error::failed(
            "--predictions has a class for each image, and this is a segmentation: `vim-train \
             predict --maps FOLDER` writes a map of classes for each",
        ));
    }
    let stop = StopRequest::install().map_err(Error::io("install", "signal handlers"))?;
    let Subject { config, run, weights } = subject;
    threads::start(config.devices.threads)?;
    let chosen = device::choose(&config.devices)?;
    let splits = vim_data::open::<vim_data::LabelMap>(&config.data, config.run.seed)?;
    let split = match args.split {
        EvalSplit::Test => splits.test,
        EvalSplit::Val => splits.val.ok_or_else(super::no_validation)?,
    };
    check_weights_of_run(args, &run, &config)?;
    let weights = WeightsSource::open(&weights, args.take.section())?;
    let objective = PixelClassifier::new(&config, split.num_classes(), &Comm::single())?;
    let (model, _) = weights.load_segmenter(objective.init(&chosen.device)?)?;
    if let Some(note) = &weights.note {
        eprintln!("note: {note}");
    }
    stop.defer();
    let bar = Bar::of_images(split.len(), args.split.name());
    let mut each = |_: &vim_data::EvalPair, _: &[u8]| {
        bar.advance(1);
        Ok(())
    };
    let viewer = Viewer { multi_scale: args.multi_scale, ..viewer(&config, &split) };
    let (how, comm) = ((&viewer, loading(&config)), Comm::single());
    let counted = evaluate(&model, &split, how, &chosen.device, (&comm, &stop), &mut each)?;
    drop(bar);
    let Some((confusion, images)) = counted else {
        let stop = stop.get().expect("invariant: only a request to stop ends an evaluation early");
        return Err(Interrupted { stop }.into());
    };
    let classes = class_rows(split.class_names(), &confusion);
    if let Some(path) = &args.per_class {
        replace(&Disk, path, &classes_csv(&classes)?).map_err(Error::io("write", path))?;
    }
    if let Some(path) = &args.confusion {
        let title = format!("{}, {}, {images} images, pixels", weights.name, args.split.name());
        let rows = confusion.rows().flatten().copied().collect();
        Confusion::of_counts(split.class_names(), rows).write_matrix(path, &title)?;
    }
    let Evaluation { scores, .. } = scores(&confusion, images);
    let (name, step) = (args.split.name(), weights.step);
    if args.json {
        #[derive(Serialize)]
        struct Report {
            checkpoint: String,
            weights: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            step: Option<u64>,
            split: &'static str,
            #[serde(flatten)]
            scores: Scores,
            images: usize,
            classes: Vec<ClassRow>,
        }
        let (checkpoint, kind) = (weights.name, weights.weights.name());
        let report =
            Report { checkpoint, weights: kind, step, split: name, scores, images, classes };
        return print_json(&report);
    }
    let step = step.map_or_else(String::new, |step| format!(" (step {step})"));
    print(&format!("checkpoint {}{step}", weights.name))?;
    print(&table(&classes))?;
    let shown = SCORES
        .iter()
        .filter_map(|kind| Some(format!("{} {}", kind.label, kind.show(scores.get(kind.name)?))));
    print(&format!("{name} images {images}, {}", shown.collect::<Vec<_>>().join(", ")))
}

/// The table by class for people.
fn table(classes: &[ClassRow]) -> String {
    let width = classes.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(5);
    let share = |share: Option<f64>| {
        share.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", 100.0 * share))
    };
    let mut lines = vec![format!("{:<width$}  {:>9}  {:>9}", "class", "IoU", "accuracy")];
    lines.extend(classes.iter().map(|row| {
        format!("{:<width$}  {:>9}  {:>9}", row.name, share(row.iou), share(row.accuracy))
    }));
    lines.join("\n")
}
