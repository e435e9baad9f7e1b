//! What a detector has beside its backbone, and how it is trained and asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_kernels::RoiSampling;
use vim_model::{ClassToken, LastTap, ModelError, Preset, Rope, Tapped, Taps, VimConfig};

use super::anchors::Anchors;
use super::pooler::WHOLE;
use super::pyramid::STRIDES;

/// The size of the patches that [`STRIDES`] are for.
const PATCH: usize = 16;
/// Pixels of the finest map along a side of a patch.
const FINEST: usize = 4;
/// The most samples of a bin along an axis.
const MOST_SAMPLES: usize = 64;
/// Height to width of the anchors.
pub(crate) const RATIOS: [f64; 3] = [0.5, 1.0, 2.0];

/// What a detector has beside its backbone, which `[model]` describes.
///
/// Left out, everything is as in the original's `cascade_mask_rcnn_vimdet_t_100ep_adj1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DetectorConfig {
    /// What the pyramid is made of: the residual stream with the last block's output (`"add"`, the
    /// original's; left out, it is this), that normalized (`"add_norm"`), or the output alone
    /// (`"none"`).
    #[serde(skip_serializing_if = "is_add")]
    pub last: LastTap,
    /// Whether objects have masks, which are learned and found (left out, they have). Without them
    /// boxes alone are: the model has no head for masks.
    #[serde(skip_serializing_if = "has_masks")]
    pub masks: bool,
    /// Channels of the pyramid's maps and inside the heads.
    pub channels: usize,
    /// Features of a box, between its map and its class.
    pub box_features: usize,
    /// The square root of an anchor's area, in pixels of its map.
    pub anchor_size: f64,
    /// Side of the boxes that the heads read from the map of the backbone's patches, in pixels;
    /// smaller ones are read from finer maps, larger ones from coarser.
    pub box_side: f64,
    /// Samples of a bin of a box along each axis; 0, as if left out: as many as there are pixels.
    #[serde(skip_serializing_if = "is_adaptive")]
    pub sampling_ratio: usize,
    /// Whether boxes are read with a pixel's centre half a pixel from its edge (detectron2's
    /// `ROIAlignV2`; left out, they are) or on it (`ROIAlign`).
    #[serde(skip_serializing_if = "is_aligned")]
    pub aligned: bool,
    /// Anchors of an image in the proposals' loss.
    pub anchor_samples: usize,
    /// The best proposals of each level that are looked at, in training.
    pub proposals_per_level: usize,
    /// Proposals of an image that are kept, in training.
    pub proposals: usize,
    /// As `proposals_per_level`, in evaluation.
    pub test_proposals_per_level: usize,
    /// As `proposals`, in evaluation.
    pub test_proposals: usize,
    /// Proposals of an image in the heads' losses.
    pub box_samples: usize,
    /// What a detection's score must be above.
    pub score_threshold: f64,
    /// Overlap of two detections of a class from which the lower one is dropped.
    pub nms_threshold: f64,
    /// Most detections of an image.
    pub detections: usize,
}

// What a run of before these keys recorded says the same.

fn is_add(last: &LastTap) -> bool {
    *last == LastTap::Add
}

fn is_adaptive(ratio: &usize) -> bool {
    *ratio == 0
}

fn is_aligned(aligned: &bool) -> bool {
    *aligned
}

fn has_masks(masks: &bool) -> bool {
    *masks
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            last: LastTap::Add,
            masks: true,
            channels: 256,
            box_features: 1024,
            anchor_size: 8.0,
            box_side: WHOLE as f64,
            sampling_ratio: 0,
            aligned: true,
            anchor_samples: 256,
            proposals_per_level: 2000,
            proposals: 1000,
            test_proposals_per_level: 1000,
            test_proposals: 1000,
            box_samples: 512,
            score_threshold: 0.05,
            nms_threshold: 0.5,
            detections: 100,
        }
    }
}

impl DetectorConfig {
    /// The original's backbone of this size for detection: 1024 px, no class token, and rotary
    /// positions of tokens and stream.
    #[must_use]
    pub fn backbone(preset: Preset) -> VimConfig {
        VimConfig {
            image_size: 1024.into(),
            class_token: ClassToken::None,
            rope: Rope::Both,
            ..VimConfig::preset(preset)
        }
    }

    /// The feature that the pyramid is made of.
    #[must_use]
    pub fn taps(&self, backbone: &VimConfig) -> Taps {
        let blocks = vec![backbone.depth.saturating_sub(1)];
        Taps { blocks, what: Tapped::Residual, last: self.last }
    }

    /// Whether something depends on the backbone's last norm.
    #[must_use]
    pub fn reads_norm(&self) -> bool {
        self.last == LastTap::AddNorm
    }

    /// Where the heads read a box.
    #[must_use]
    pub fn sampling(&self) -> RoiSampling {
        RoiSampling { ratio: self.sampling_ratio, aligned: self.aligned }
    }

    /// Pixels of the image to one of each of the five maps on this backbone: from a quarter of a
    /// patch to four.
    #[must_use]
    pub fn strides(backbone: &VimConfig) -> [usize; 5] {
        STRIDES.map(|stride| stride * backbone.patch_size / PATCH)
    }

    /// Anchors on the five levels.
    #[must_use]
    pub fn anchors(&self, backbone: &VimConfig) -> Anchors {
        let strides = Self::strides(backbone).to_vec();
        let sizes = strides.iter().map(|&stride| self.anchor_size * stride as f64).collect();
        Anchors { sizes, ratios: RATIOS.to_vec(), strides }
    }

    /// Checks the values, and that they go with the backbone and the number of classes.
    ///
    /// # Errors
    ///
    /// [`ModelError`] names the first key at fault; those of this section begin with `detection.`.
    pub fn check(&self, backbone: &VimConfig, classes: usize) -> Result<(), ModelError> {
        backbone.check_backbone()?;
        if !backbone.patch_size.is_multiple_of(FINEST) || backbone.stride() != backbone.patch_size {
            let other = format!("model.patch_size = {}", backbone.patch_size);
            let reason = "the finest map has four pixels along a patch: patches of a multiple of 4 \
                          px that touch";
            return Err(wrong("detection", &"the pyramid", &other, reason));
        }
        if backbone.grid().into_iter().min() < Some(2) {
            let other = format!("model.image_size = {}", backbone.image_size);
            let reason = "the coarsest maps have a pixel for 2 and for 4 patches along a side: at \
                          least two patches";
            return Err(wrong("detection", &"the pyramid", &other, reason));
        }
        if !backbone.d_model.is_multiple_of(4) {
            let other = format!("model.d_model = {}", backbone.d_model);
            let reason = "the finest level has a quarter of the channels";
            return Err(wrong("detection", &"the pyramid", &other, reason));
        }
        if !(1..=65_536).contains(&classes) {
            let reason = "1 to 65536 classes";
            return Err(wrong("the number of classes", &classes, "the heads", reason));
        }
        for (key, value) in [
            ("detection.channels", self.channels),
            ("detection.box_features", self.box_features),
            ("detection.anchor_samples", self.anchor_samples),
            ("detection.proposals_per_level", self.proposals_per_level),
            ("detection.proposals", self.proposals),
            ("detection.test_proposals_per_level", self.test_proposals_per_level),
            ("detection.test_proposals", self.test_proposals),
            ("detection.box_samples", self.box_samples),
            ("detection.detections", self.detections),
        ] {
            if !(1..=65_536).contains(&value) {
                return Err(wrong(key, &value, "the detector", "1 to 65536"));
            }
        }
        if self.sampling_ratio > MOST_SAMPLES {
            let reason = "at most 64 samples along each axis of a bin, 0 for as many as needed";
            return Err(wrong(
                "detection.sampling_ratio",
                &self.sampling_ratio,
                "the heads",
                reason,
            ));
        }
        if !(self.anchor_size.is_finite() && self.anchor_size > 0.0) {
            let reason = "a size above 0";
            return Err(wrong("detection.anchor_size", &self.anchor_size, "the anchors", reason));
        }
        if !(self.box_side.is_finite() && self.box_side > 0.0) {
            let reason = "a side above 0";
            return Err(wrong("detection.box_side", &self.box_side, "the heads", reason));
        }
        if !(0.0..=1.0).contains(&self.score_threshold) {
            let (key, value) = ("detection.score_threshold", &self.score_threshold);
            return Err(wrong(key, value, "the detections", "a probability, 0 to 1"));
        }
        if !(0.0..=1.0).contains(&self.nms_threshold) {
            let (key, value) = ("detection.nms_threshold", &self.nms_threshold);
            return Err(wrong(key, value, "the detections", "an overlap, 0 to 1"));
        }
        Ok(())
    }
}

fn wrong(key: &'static str, value: &dyn ToString, other: &str, reason: &str) -> ModelError {
    let (value, other, reason) = (value.to_string(), other.to_owned(), reason.to_owned());
    ModelError::Conflict { key, value, other, reason }
}
