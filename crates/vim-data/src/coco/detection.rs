//! Detections of a model, as COCO's files have them.

use hotcoco::mask::rle_to_string;
use hotcoco::{Annotation, Segmentation};
use serde::Serialize;

use super::file::{CocoAnnotations, CocoDetections};
use crate::error::{DataError, Location};
use crate::objects::Mask;

/// An object that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// Number of the image.
    pub image: u64,
    /// Number of the category, one of [`ObjectClasses::categories`](crate::ObjectClasses).
    pub category: u64,
    /// How sure it is, 0 to 1.
    pub score: f64,
    /// x, y, width and height in pixels of the image.
    pub bbox: [f64; 4],
    /// Its pixels, if they were asked for.
    pub mask: Option<Mask>,
}

/// A detection as it is written.
#[derive(Serialize)]
struct Written<'a> {
    image_id: u64,
    category_id: u64,
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bbox: Option<[f64; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segmentation: Option<&'a Segmentation>,
}

impl CocoDetections {
    /// What was found in the images of `truths`.
    ///
    /// # Errors
    /// If an image or a category is none of `truths`, or a box or a mask does not fit its image.
    pub fn of(
        truths: &CocoAnnotations,
        found: impl IntoIterator<Item = Detection>,
    ) -> Result<Self, DataError> {
        let one = |found: Detection| Annotation {
            image_id: found.image,
            category_id: found.category,
            score: Some(found.score),
            bbox: Some(found.bbox),
            segmentation: found.mask.as_ref().map(compressed),
            ..Annotation::default()
        };
        let file = Location { path: "what was detected".into(), member: None };
        Self::new(found.into_iter().map(one).collect(), file, truths)
    }

    /// A file of the detections, which pycocotools reads as well.
    pub fn json(&self) -> Vec<u8> {
        let one = |found: &'_ Annotation| -> String {
            let written = Written {
                image_id: found.image_id,
                category_id: found.category_id,
                score: found.score,
                bbox: found.bbox,
                segmentation: found.segmentation.as_ref(),
            };
            serde_json::to_string(&written).expect("invariant: its numbers are finite")
        };
        let lines: Vec<String> = self.content.iter().map(one).collect();
        format!("[{}]\n", lines.join(",\n")).into_bytes()
    }
}

/// The mask with its runs as text, which is the one form that pycocotools takes of detections.
fn compressed(mask: &Mask) -> Segmentation {
    match mask {
        Mask::Runs(rle) => {
            Segmentation::CompressedRle { size: [rle.h, rle.w], counts: rle_to_string(rle) }
        }
        Mask::Polygons(_) => mask.segmentation(),
    }
}
