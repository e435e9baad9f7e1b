//! What of a configuration weights depend on: each key that they record, and its part.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of what weights record, which a use of them may be allowed to leave.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    ValueEnum,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Part {
    /// The layers with a number for each class: a classifier's `head`, a segmenter's `conv_seg`, a
    /// detector's `cls_score` and mask predictor.
    Head,
    /// Tensors that the model does not have.
    Extra,
    /// The discretization, or its series.
    Method,
    /// Other keys of the model and its heads that its forward pass depends on.
    Model,
    /// The size of the images.
    Size,
    /// The statistics that images are normalised by.
    Normalization,
    /// How evaluation shows an image to the model, and which of its findings count.
    View,
    /// Which images were held out of training.
    Split,
}

impl Part {
    /// Those that the start of a training sees.
    pub const OF_INIT: [Self; 4] = [Self::Method, Self::Model, Self::Normalization, Self::Split];

    /// Its name on the command line and in a configuration.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The part that `key` of a record of weights belongs to; `None` if no forward pass can see it.
pub(crate) fn part(key: &str) -> Option<Part> {
    let (section, name) = key.split_once('.')?;
    match (section, name) {
        // A preset is another way to write the keys; the number of classes is the head's.
        ("model", "preset" | "num_classes" | "dropout" | "drop_path" | "patch_init") => None,
        ("model", "discretization") | ("ssm", "method_fwd" | "method_bwd" | "series") => {
            Some(Part::Method)
        }
        ("model", "image_size.height" | "image_size.width" | "image_size") => Some(Part::Size),
        ("ssm", "scan" | "dt_b_init" | "v1_gate_gradient") => None,
        ("model" | "ssm", _) => Some(Part::Model),
        // The auxiliary head is of training alone.
        ("segmentation", "dropout" | "aux_channels" | "aux_weight") => None,
        ("detection", "anchor_samples" | "proposals_per_level" | "proposals" | "box_samples") => {
            None
        }
        (
            "detection",
            "test_proposals_per_level"
            | "test_proposals"
            | "score_threshold"
            | "nms_threshold"
            | "detections"
            | "masks",
        ) => Some(Part::View),
        ("segmentation" | "detection", _) => Some(Part::Model),
        ("images", "mean" | "std") => Some(Part::Normalization),
        (
            "images",
            "eval_crop_ratio" | "exif" | "pairs.scale" | "pairs.inference" | "pairs.stride",
        ) => Some(Part::View),
        ("split", "val_fraction" | "test_fraction" | "val_seed" | "val_rule") => Some(Part::Split),
        // Names of a dataset and of statistics, and the training half of [pairs]; the data's
        // fingerprints are compared where they matter.
        (_, _) => None,
    }
}

/// Whether the backbone alone depends on `key`, without a head and the tokens that one reads.
pub(crate) fn is_of_backbone(key: &str) -> bool {
    (key.starts_with("model.") || key.starts_with("ssm."))
        && !["model.class_token", "model.pool"].contains(&key)
}
