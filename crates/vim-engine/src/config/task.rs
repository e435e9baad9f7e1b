//! The tasks, as a configuration names them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// What a run learns.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Display,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TaskKind {
    /// The class of an image.
    #[default]
    Classification,
    /// The class of each pixel (docs/segmentation.md).
    Segmentation,
    /// The class, box and mask of each object (docs/detection.md).
    Detection,
}

impl TaskKind {
    /// Whether it is the one that records leave out.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Classes where neither data nor a flag tell: ImageNet-1k's, ADE20K's, and COCO's.
    pub fn usual_classes(self) -> usize {
        match self {
            Self::Classification => 1000,
            Self::Segmentation => 150,
            Self::Detection => 80,
        }
    }
}
