//! `eval --coco`: a file of detections by COCO's numbers.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use vim_data::{
    COCO_NUMBERS, CocoAnnotations, CocoClassScore, CocoDetections, CocoEvaluation, CocoKind,
    CocoScores,
};
use vim_run::storage::{Disk, replace};

use super::EvalArgs;
use crate::error::Error;
use crate::output::{columns, print, print_json};
use crate::task::detection::classes::classes_csv;

/// Compares the detections in one file with the annotations in the other, by boxes, by masks, or by
/// both where they have both.
pub(super) fn run(args: &EvalArgs, annotations: &Path, detections: &Path) -> Result<(), Error> {
    let truths = CocoAnnotations::read(annotations)?;
    let found = CocoDetections::read(detections, &truths)?;
    let compared = kinds(&truths, &found).into_iter().map(|kind| {
        let evaluation = CocoEvaluation::new(&truths, &found, kind);
        Ok(evaluation?.scores())
    });
    let all = compared.collect::<Result<Vec<CocoScores>, Error>>()?;
    if let Some(path) = &args.per_class {
        replace(&Disk, path, &classes_csv(&all)?).map_err(Error::io("write", path))?;
    }
    if args.json {
        return print_json(&report(&truths, &found, &all));
    }
    print(&format!("{} detections, {} images", found.len(), truths.num_images()))?;
    print_scores(&all)
}

/// Prints the twelve numbers, and the table by class of each kind.
pub(super) fn print_scores(all: &[CocoScores]) -> Result<(), Error> {
    print(&numbers(all))?;
    all.iter().try_for_each(|scores| print(&format!("\n{}\n{}", scores.kind, classes(scores))))
}

/// What the detections can be compared by; no detections, by all that the annotations have.
fn kinds(truths: &CocoAnnotations, found: &CocoDetections) -> Vec<CocoKind> {
    let has_boxes = found.is_empty() || found.has_boxes();
    let has_masks = if found.is_empty() { truths.has_masks() } else { found.has_masks() };
    let kinds = [(CocoKind::Bbox, has_boxes), (CocoKind::Segm, has_masks)];
    kinds.into_iter().filter_map(|(kind, is_there)| is_there.then_some(kind)).collect()
}

#[derive(Serialize)]
struct Report<'a> {
    images: usize,
    detections: usize,
    #[serde(flatten)]
    kinds: BTreeMap<String, KindReport<'a>>,
}

/// The scores of a kind.
#[derive(Serialize)]
pub(super) struct KindReport<'a> {
    #[serde(flatten)]
    numbers: BTreeMap<&'static str, Option<f64>>,
    classes: &'a [CocoClassScore],
}

fn report<'a>(
    truths: &CocoAnnotations,
    found: &CocoDetections,
    all: &'a [CocoScores],
) -> Report<'a> {
    Report { images: truths.num_images(), detections: found.len(), kinds: kind_reports(all) }
}

/// The scores of each kind by its name.
pub(super) fn kind_reports(all: &[CocoScores]) -> BTreeMap<String, KindReport<'_>> {
    let each = all.iter().map(|scores| {
        let numbers = COCO_NUMBERS.into_iter().zip(scores.numbers).collect();
        (scores.kind.to_string(), KindReport { numbers, classes: &scores.classes })
    });
    each.collect()
}

/// A share for people.
fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", 100.0 * share))
}

/// The twelve numbers, a column for each kind.
fn numbers(all: &[CocoScores]) -> String {
    let kinds: Vec<String> = all.iter().map(|scores| scores.kind.to_string()).collect();
    let head: Vec<&str> = std::iter::once("").chain(kinds.iter().map(String::as_str)).collect();
    let row = |(place, name): (usize, &&str)| {
        let values = all.iter().map(|scores| share(scores.numbers[place]));
        std::iter::once((*name).to_owned()).chain(values).collect()
    };
    columns(&head, COCO_NUMBERS.iter().enumerate().map(row).collect(), 1)
}

/// The table by class for people.
fn classes(scores: &CocoScores) -> String {
    let row = |class: &CocoClassScore| {
        let shares = [class.ap, class.ap50, class.ap75, class.ar100].map(share);
        let counts = [class.objects.to_string(), class.detections.to_string()];
        std::iter::once(class.name.clone()).chain(counts).chain(shares).collect()
    };
    let head = ["class", "objects", "detections", "AP", "AP50", "AP75", "AR100"];
    columns(&head, scores.classes.iter().map(row).collect(), 1)
}
