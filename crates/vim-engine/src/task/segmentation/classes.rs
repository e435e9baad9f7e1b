//! The scores of each class, as a table.

use serde::Serialize;
use vim_data::{ClassScore, Confusion};

use crate::error::Error;
use crate::output::csv;

/// The columns of the table, described in docs/segmentation.md.
const HEADER: [&str; 7] = ["class", "name", "labelled", "predicted", "correct", "iou", "accuracy"];

/// The scores of a class.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClassRow {
    pub(crate) class: usize,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) score: ClassScore,
    pub(crate) iou: Option<f64>,
    pub(crate) accuracy: Option<f64>,
}

/// A row for each class, in the order of `names`.
pub(crate) fn class_rows(names: &[String], confusion: &Confusion) -> Vec<ClassRow> {
    let row = |((class, name), score): ((usize, &String), ClassScore)| ClassRow {
        class,
        name: name.clone(),
        iou: score.iou(),
        accuracy: score.accuracy(),
        score,
    };
    names.iter().enumerate().zip(confusion.class_scores()).map(row).collect()
}

/// The rows in CSV; empty where a class has no score.
pub(crate) fn classes_csv(classes: &[ClassRow]) -> Result<Vec<u8>, Error> {
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.6}"));
    let row = |row: &ClassRow| {
        let ClassScore { labelled, predicted, correct } = row.score;
        [
            row.class.to_string(),
            row.name.clone(),
            labelled.to_string(),
            predicted.to_string(),
            correct.to_string(),
            share(row.iou),
            share(row.accuracy),
        ]
    };
    let rows: Vec<[String; 7]> = classes.iter().map(row).collect();
    csv([HEADER.map(str::to_owned)].iter().chain(&rows))
}
