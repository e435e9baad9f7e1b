//! Histograms of intersections and unions, and what is computed from them.

use std::path::Path;

use serde_json::Value;
use vim_data::{ClassScore, Confusion, LabelRule};
use vim_engine::Error;

use super::super::arrays::Arrays;
use super::{Row, arrays_of, field, json, unlike};

/// The ratios are of exact sums, in f64 on both sides.
const TOLERANCE: f64 = 1e-12;

pub(super) fn check(path: &Path) -> Result<Vec<Row>, Error> {
    let cases: Value = json(path)?;
    let cases = cases.as_array().ok_or_else(|| unlike(path, "a list of cases is expected"))?;
    let mut arrays = Arrays::open(&arrays_of(path))?;
    let mut rows = Vec::new();
    for case in cases {
        let name: String = field(path, case, "name")?;
        let classes: usize = field(path, case, "classes")?;
        let images: usize = field(path, case, "images")?;
        let ignored: u8 = field(path, case, "ignore_index")?;
        if ignored != vim_data::IGNORED {
            return Err(unlike(path, "the ignored label is another than 255"));
        }
        let rule = LabelRule::new(field(path, case, "reduce_zero_label")?);
        let mut confusion = Confusion::new(classes);
        for image in 0..images {
            let (predicted, shape) = arrays.u8s(&format!("{name}.pred{image}"))?;
            let (mut labels, of_labels) = arrays.u8s(&format!("{name}.gt{image}"))?;
            if shape != of_labels {
                return Err(unlike(
                    path,
                    &format!("{name}: the maps of image {image} differ in size"),
                ));
            }
            rule.apply(&mut labels);
            confusion.add(&predicted, &labels);
        }
        let scores = confusion.class_scores();
        let of = |count: fn(&ClassScore) -> Option<f64>| -> Vec<f64> {
            scores.iter().map(|score| count(score).unwrap_or(f64::NAN)).collect()
        };
        for (what, ours, tolerance) in [
            ("intersect", of(|score| Some(score.correct as f64)), 0.0),
            ("union", of(|score| Some(score.union() as f64)), 0.0),
            ("predicted", of(|score| Some(score.predicted as f64)), 0.0),
            ("labelled", of(|score| Some(score.labelled as f64)), 0.0),
            ("IoU", of(ClassScore::iou), TOLERANCE),
            ("Acc", of(ClassScore::accuracy), TOLERANCE),
        ] {
            let theirs = arrays.doubles(&format!("{name}.{what}"))?;
            rows.push(Row::new(format!("metrics {name}.{what}"), &ours, &theirs, tolerance));
        }
        for (what, ours) in [
            ("aAcc", confusion.accuracy()),
            ("mIoU", confusion.mean_iou()),
            ("mAcc", confusion.mean_accuracy()),
        ] {
            let theirs: f64 = field(path, case, what)?;
            rows.push(Row::new(format!("metrics {name}.{what}"), &[ours], &[theirs], TOLERANCE));
        }
    }
    Ok(rows)
}
