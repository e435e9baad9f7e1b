//! COCO's files of annotations and of detections, and the twelve numbers by which it compares them.
//!
//! Formats, run lengths and the evaluation are `hotcoco`'s, which follows pycocotools to the last
//! bit; files are read here, as far as they are used, and what hotcoco takes in good faith is
//! checked first. A file that is damaged as a whole is an error that names the place; an object
//! that cannot be used is left out and counted.

mod detection;
mod evaluation;
mod fault;
mod file;
mod images;
mod parse;
mod scalars;
mod segmentation;

pub use detection::Detection;
pub use evaluation::{
    COCO_NUMBERS, CocoClassScore, CocoEvaluation, CocoKind, CocoScores, CocoUnusable, FEDERATED,
};
pub use file::{CocoAnnotations, CocoDetections};

pub(crate) use fault::Tally;
pub(crate) use images::object;
