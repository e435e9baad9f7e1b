//! `eval --coco`: a file of detections by COCO's numbers.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use vim_data::{CocoAnnotations, CocoDetections, CocoEvaluation, CocoKind, CocoScores};
use vim_run::printable;
use vim_run::storage::{Disk, replace};

use crate::error::Error;
use crate::output::coco::{KindReport, classes_csv, kind_reports, tables};
use crate::output::{print, print_json};

/// Compares the detections in one file with the annotations in the other, by boxes, by masks, or by
/// both where they have both.
///
/// With the scores of each class in the file `per_class`, and the document on stdout where `json`
/// is set.
pub fn compare(
    annotations: &Path,
    detections: &Path,
    per_class: Option<&Path>,
    json: bool,
) -> Result<(), Error> {
    let truths = CocoAnnotations::read(annotations)?;
    truths.notes().iter().for_each(|note| eprintln!("note: {}", printable(note)));
    let found = CocoDetections::read(detections, &truths)?;
    let compared = kinds(&truths, &found).into_iter().map(|kind| {
        let evaluation = CocoEvaluation::new(&truths, &found, kind);
        Ok(evaluation?.scores())
    });
    let all = compared.collect::<Result<Vec<CocoScores>, Error>>()?;
    if let Some(path) = per_class {
        replace(&Disk, path, &classes_csv(&all)?).map_err(Error::io("write", path))?;
    }
    let (images, detections) = (truths.num_images(), found.len());
    if json {
        return print_json(&Report { images, detections, kinds: kind_reports(&all) });
    }
    print(&format!("{detections} detections, {images} images"))?;
    tables(&all).iter().try_for_each(|table| print(table))
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
