//! The JSON beside the reference arrays of a detector.

use std::collections::BTreeMap;

use serde::Deserialize;
use vim_dense::detection::DetectorConfig;
use vim_model::{ClassToken, Rope, VimConfig};

/// What describes the arrays.
#[derive(Debug, Deserialize)]
pub(in super::super) struct Description {
    pub(super) variant: Variant,
    /// Of each image, of each instance, its outlines.
    pub(super) polygons: Vec<Vec<Vec<Vec<f64>>>>,
    pub(super) losses: BTreeMap<String, f64>,
    pub(super) loss: f64,
    pub(super) r#final: Vec<Size>,
    pub(super) optimizer: Optimizer,
}

/// The original's optimizer.
#[derive(Debug, Deserialize)]
pub(super) struct Optimizer {
    pub(super) base_lr: f64,
    pub(super) weight_decay: f64,
    /// Of a layer to the one above it.
    pub(super) lr_decay_rate: f64,
    /// Of each parameter its learning rate and its weight decay.
    pub(super) parameters: BTreeMap<String, [f64; 2]>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Size {
    pub(super) height: usize,
    pub(super) width: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Variant {
    pub(super) img: usize,
    d_model: usize,
    depth: usize,
    d_state: usize,
    rope: bool,
    rope_residual: bool,
    last: String,
    channels: usize,
    pub(super) classes: usize,
    /// Of each image its height and width.
    pub(super) sizes: Vec<[usize; 2]>,
    /// `[model]` and `[detection]`, where they are not as in the original's small cascade.
    model: Option<VimConfig>,
    detection: Option<DetectorConfig>,
}

impl Variant {
    pub(super) fn configs(&self) -> Result<(DetectorConfig, VimConfig), String> {
        if self.last != "add" {
            return Err(format!("last is {:?}, expected \"add\"", self.last));
        }
        let rope = match (self.rope, self.rope_residual) {
            (false, _) => Rope::None,
            (true, false) => Rope::Hidden,
            (true, true) => Rope::Both,
        };
        let small = DetectorConfig {
            channels: self.channels,
            box_features: 24,
            anchor_size: 2.0,
            anchor_samples: 64,
            proposals_per_level: 200,
            proposals: 60,
            test_proposals_per_level: 100,
            test_proposals: 40,
            box_samples: 32,
            ..DetectorConfig::default()
        };
        let heads = self.detection.clone().unwrap_or(small);
        let of_small = VimConfig {
            image_size: self.img.into(),
            patch_size: 16,
            depth: self.depth,
            d_model: self.d_model,
            d_state: self.d_state,
            // The original drops it.
            class_token: ClassToken::None,
            rope,
            ..VimConfig::default()
        };
        let backbone = self.model.clone().unwrap_or(of_small);
        Ok((heads, VimConfig { drop_path: 0.0, ..backbone }))
    }
}
