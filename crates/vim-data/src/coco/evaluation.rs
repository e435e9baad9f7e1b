//! COCO's evaluation: average precision and recall of detections.

use std::fmt;

use hotcoco::{AccumulatedEval, Annotation, COCO, COCOeval, Dataset, IouType, Segmentation};
use serde::Serialize;

use super::fault::{NO_MASK, Tally, box_fault, mask_fault};
use super::file::{CocoAnnotations, CocoDetections, name, sizes};
use crate::error::{DataError, SourceError};

/// What two objects are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CocoKind {
    /// Their boxes.
    Bbox,
    /// Their masks.
    Segm,
}

impl fmt::Display for CocoKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bbox => "bbox",
            Self::Segm => "segm",
        })
    }
}

/// Names of COCO's numbers in its order: average precision over ten thresholds, at two of them and
/// over objects of three sizes; recall of 1, 10 and 100 detections an image, and by size.
pub const COCO_NUMBERS: [&str; 12] = [
    "AP",
    "AP50",
    "AP75",
    "AP_small",
    "AP_medium",
    "AP_large",
    "AR1",
    "AR10",
    "AR100",
    "AR_small",
    "AR_medium",
    "AR_large",
];

/// Why there are no scores of annotations that are [federated](crate::ObjectClasses), as LVIS's.
pub const FEDERATED: &str = "each image is annotated with some of the classes only, as LVIS's \
     are: its federated AP is not computed here, and COCO's would count right detections as wrong; \
     the package `lvis` has it";

/// The scores of detections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CocoScores {
    /// What was compared.
    pub kind: CocoKind,
    /// In the order of [`COCO_NUMBERS`]; `None` where there is no object to be found.
    pub numbers: [Option<f64>; 12],
    /// The scores of each class.
    pub classes: Vec<CocoClassScore>,
    /// What of the truth could not be compared.
    pub unusable: CocoUnusable,
}

/// Objects of the truth that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CocoUnusable {
    /// Those left out, for their boxes.
    pub left_out: usize,
    /// Where masks are compared, those without one that can be used: a detection in the box of one
    /// is neither right nor wrong, as in a crowd.
    pub ignored: usize,
    /// Their kinds and the first of them, if there are some.
    pub detail: Option<String>,
}

/// The scores of one class, over objects of all sizes and at most 100 detections an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CocoClassScore {
    /// Number of its category.
    pub category: u64,
    /// Its name.
    pub name: String,
    /// Objects of the class, crowds aside.
    pub objects: usize,
    /// Detections of the class.
    pub detections: usize,
    /// Average precision over all thresholds; `None` without objects.
    pub ap: Option<f64>,
    /// At an overlap of one half.
    pub ap50: Option<f64>,
    /// At three quarters.
    pub ap75: Option<f64>,
    /// Recall, averaged over the thresholds.
    pub ar100: Option<f64>,
}

/// Places in the accumulated arrays of objects of all sizes and of 100 detections.
const ALL_SIZES: usize = 0;
const MOST_DETECTIONS: usize = 2;
/// Places among the thresholds of one half and of three quarters.
const HALF: usize = 0;
const THREE_QUARTERS: usize = 5;

/// Detections compared with the truth.
pub struct CocoEvaluation {
    kind: CocoKind,
    eval: COCOeval,
    unusable: CocoUnusable,
}

impl fmt::Debug for CocoEvaluation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CocoEvaluation").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl CocoEvaluation {
    /// Compares `detections` with `truths`, which they were checked against.
    ///
    /// # Errors
    /// If masks are to be compared and the truths have none, most of a file's objects cannot be
    /// used, or the annotations are federated as LVIS's.
    pub fn new(
        truths: &CocoAnnotations,
        detections: &CocoDetections,
        kind: CocoKind,
    ) -> Result<Self, DataError> {
        let wrong = |what, file: &crate::error::Location, why: String| -> DataError {
            SourceError::Coco { file: file.clone(), what, why }.into()
        };
        if truths.is_federated {
            return Err(wrong("annotations", &truths.file, FEDERATED.into()));
        }
        // Of checked data a few images may have none, and then all of them are ignored.
        let has_objects = truths.is_given && !truths.content.annotations.is_empty();
        if kind == CocoKind::Segm && has_objects && !truths.has_masks() {
            return Err(wrong("annotations", &truths.file, "they have no masks to compare".into()));
        }
        let iou_type = match kind {
            CocoKind::Bbox => IouType::Bbox,
            CocoKind::Segm => IouType::Segm,
        };
        let (content, unusable) =
            usable(truths, kind).map_err(|why| wrong("annotations", &truths.file, why))?;
        let of_truths = COCO::from_dataset(content);
        let found = of_truths.load_res_anns(detections.content.clone());
        let found =
            found.map_err(|error| wrong("detections", &detections.file, error.to_string()))?;
        let mut eval = COCOeval::new(of_truths, found, iou_type);
        eval.evaluate().map_err(|error| wrong("annotations", &truths.file, error.to_string()))?;
        eval.accumulate();
        Ok(Self { kind, eval, unusable })
    }

    /// The numbers.
    pub fn scores(&mut self) -> CocoScores {
        self.eval.summarize_lines();
        let stats = self.eval.stats().unwrap_or_default();
        let numbers = std::array::from_fn(|place| stats.get(place).copied().and_then(score));
        let unusable = self.unusable.clone();
        CocoScores { kind: self.kind, numbers, classes: self.classes(), unusable }
    }

    /// Interpolated precision at each threshold, recall, class, size and limit, `[T, R, K, A, M]`,
    /// and recall at each threshold, class, size and limit, `[T, K, A, M]`; −1 where there are no
    /// objects.
    pub fn curves(&self) -> [&[f64]; 2] {
        self.eval.accumulated().map_or([&[], &[]], |all| [&all.precision, &all.recall])
    }

    fn classes(&self) -> Vec<CocoClassScore> {
        let Some(all) = self.eval.accumulated() else { return Vec::new() };
        let (truths, found) = (self.eval.coco_gt(), self.eval.coco_dt());
        let row = |(k, &category): (usize, &u64)| {
            let of_class = |one: &&hotcoco::Annotation| one.category_id == category;
            let objects = truths.dataset.annotations.iter().filter(of_class);
            let precision = |thresholds| mean(&precisions(all, thresholds, k));
            let recalls = (0..all.shape.t)
                .map(|t| all.recall[all.recall_idx(t, k, ALL_SIZES, MOST_DETECTIONS)]);
            CocoClassScore {
                category,
                name: truths.cat_name(category),
                objects: objects.filter(|one| !one.iscrowd).count(),
                detections: found.dataset.annotations.iter().filter(of_class).count(),
                ap: precision(0..all.shape.t),
                ap50: precision(HALF..HALF + 1),
                ap75: precision(THREE_QUARTERS..THREE_QUARTERS + 1),
                ar100: mean(&recalls.collect::<Vec<_>>()),
            }
        };
        all.cat_ids.iter().enumerate().map(row).collect()
    }
}

/// What of `truths` can be compared by `kind`, and what cannot.
fn usable(truths: &CocoAnnotations, kind: CocoKind) -> Result<(Dataset, CocoUnusable), String> {
    let mut content = truths.content.clone();
    let sizes = sizes(&content.images);
    let (mut tally, mut unusable) = (Tally::default(), CocoUnusable::default());
    content.annotations.retain_mut(|annotation| {
        let (of_box, of_mask) =
            (box_fault(annotation), mask_fault(annotation, sizes[&annotation.image_id]));
        let of_kind = of_mask.as_ref().filter(|_| kind == CocoKind::Segm);
        let fault = of_box.as_ref().or(of_kind);
        let described =
            || format!("{}, which {}", name(annotation), fault.map_or("", |fault| &fault.why));
        tally.count(fault.map(|fault| fault.kind), described);
        unusable.left_out += usize::from(of_box.is_some());
        unusable.ignored += usize::from(of_box.is_none() && of_kind.is_some());
        let is_kept = of_box.is_none();
        match of_mask {
            Some(_) if kind == CocoKind::Segm => ignore_mask(annotation),
            Some(fault) if fault.kind != NO_MASK => annotation.segmentation = None,
            Some(_) | None => {}
        }
        is_kept
    });
    if truths.is_given {
        tally.check()?;
    }
    unusable.detail = (tally.bad > 0).then(|| tally.detail());
    Ok((content, unusable))
}

/// Nobody knows what the object covers: it is a crowd in its box.
fn ignore_mask(annotation: &mut Annotation) {
    annotation.segmentation = annotation.bbox.map(Segmentation::Rect);
    annotation.iscrowd = true;
}

/// The precision of class `k` at every recall of these thresholds.
fn precisions(all: &AccumulatedEval, thresholds: std::ops::Range<usize>, k: usize) -> Vec<f64> {
    let at = |t, r| all.precision[all.precision_idx(t, r, k, ALL_SIZES, MOST_DETECTIONS)];
    thresholds.flat_map(|t| (0..all.shape.r).map(move |r| at(t, r))).collect()
}

/// The mean of the scores among `values`.
fn mean(values: &[f64]) -> Option<f64> {
    let scores: Vec<f64> = values.iter().copied().filter_map(score).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}

/// −1 stands for none.
fn score(value: f64) -> Option<f64> {
    (value > -1.0).then_some(value)
}
