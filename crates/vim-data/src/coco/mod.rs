//! COCO's files of annotations and of detections, and the twelve numbers by which it compares them.
//!
//! Formats, run lengths and the evaluation are `hotcoco`'s, which follows pycocotools to the last
//! bit; what it takes in good faith is checked here first, so that a damaged file is an error that
//! names the place, and never a warning or a score of 0.

mod detection;
mod evaluation;
mod fault;
mod file;
mod images;

pub use detection::Detection;
pub use evaluation::{COCO_NUMBERS, CocoClassScore, CocoEvaluation, CocoKind, CocoScores};
pub use file::{CocoAnnotations, CocoDetections};

pub(crate) use fault::fault;
