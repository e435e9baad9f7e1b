//! COCO's scores of boxes and masks, for people and in files.

use std::collections::BTreeMap;

use serde::Serialize;
use vim_data::{COCO_NUMBERS, CocoClassScore, CocoScores, CocoUnusable};
use vim_run::printable;

use super::{columns, csv};
use crate::error::Error;

/// The twelve numbers, what of the truth they are not of, and the table by class of each kind.
pub(crate) fn tables(all: &[CocoScores]) -> Vec<String> {
    let each = all.iter().map(|scores| format!("\n{}\n{}", scores.kind, classes(scores)));
    std::iter::once(numbers(all)).chain(all.iter().filter_map(unusable)).chain(each).collect()
}

/// The objects that a kind's scores are not of.
fn unusable(scores: &CocoScores) -> Option<String> {
    let CocoUnusable { left_out, ignored, detail } = &scores.unusable;
    let detail = printable(detail.as_ref()?);
    Some(format!(
        "{}: of the annotated objects {left_out} are left out and {ignored} ignored ({detail})",
        scores.kind
    ))
}

/// The scores of a kind.
#[derive(Serialize)]
pub(crate) struct KindReport<'a> {
    #[serde(flatten)]
    numbers: BTreeMap<&'static str, Option<f64>>,
    classes: &'a [CocoClassScore],
    unusable: &'a CocoUnusable,
}

/// The scores of each kind by its name.
pub(crate) fn kind_reports(all: &[CocoScores]) -> BTreeMap<String, KindReport<'_>> {
    let each = all.iter().map(|scores| {
        let numbers = COCO_NUMBERS.into_iter().zip(scores.numbers).collect();
        let CocoScores { classes, unusable, .. } = scores;
        (scores.kind.to_string(), KindReport { numbers, classes, unusable })
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

/// The columns of the table, described in docs/detection.md.
const HEADER: [&str; 9] =
    ["kind", "class", "name", "objects", "detections", "ap", "ap50", "ap75", "ar100"];

/// A row for each kind and class, in CSV; empty where a class has no objects.
pub(crate) fn classes_csv(all: &[CocoScores]) -> Result<Vec<u8>, Error> {
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.6}"));
    let rows = all.iter().flat_map(|scores| {
        scores.classes.iter().map(move |class| {
            [
                scores.kind.to_string(),
                class.category.to_string(),
                class.name.clone(),
                class.objects.to_string(),
                class.detections.to_string(),
                share(class.ap),
                share(class.ap50),
                share(class.ap75),
                share(class.ar100),
            ]
        })
    });
    let rows: Vec<[String; 9]> = rows.collect();
    csv([HEADER.map(str::to_owned)].iter().chain(&rows))
}
