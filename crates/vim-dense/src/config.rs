//! The `[segmentation]` section: heads on a backbone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_model::{ClassToken, LastTap, ModelError, Preset, Rope, Tapped, Taps, VimConfig};

/// What a segmentation model has beside its backbone, which `[model]` describes.
///
/// Left out, everything is as in the original's `upernet_vim_tiny_24_512_slide_60k`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SegmenterConfig {
    /// The blocks whose features the heads read, counted from 0: four, from the finest level to the
    /// coarsest, or one for all levels.
    pub out_indices: Vec<usize>,
    /// What a block's feature is: what it puts out, or the residual stream with that.
    pub features: Tapped,
    /// Of the backbone's last block with `features = "residual"`: its output alone (`"none"`), the
    /// stream with it (`"add"`), or that normalized (`"add_norm"`).
    pub last: LastTap,
    /// Channels inside the decode head. Left out: the backbone's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<usize>,
    /// Channels inside the auxiliary head.
    pub aux_channels: usize,
    /// Probability that a channel is dropped before a head's last layer, in training.
    pub dropout: f64,
    /// Weight of the auxiliary head's loss.
    pub aux_weight: f64,
}

impl Default for SegmenterConfig {
    fn default() -> Self {
        Self {
            out_indices: vec![5, 11, 17, 23],
            features: Tapped::Hidden,
            last: LastTap::None,
            channels: None,
            aux_channels: 256,
            dropout: 0.1,
            aux_weight: 0.4,
        }
    }
}

impl SegmenterConfig {
    /// As the original trains a backbone of this size: Vim-Ti on what its blocks put out, all
    /// others on the residual stream.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let (features, last) = match preset {
            Preset::Tiny | Preset::TinyStride8 => (Tapped::Hidden, LastTap::None),
            Preset::Small | Preset::SmallStride8 | Preset::Base | Preset::BaseDepth12 => {
                (Tapped::Residual, LastTap::Add)
            }
        };
        let depth = VimConfig::preset(preset).depth;
        let out_indices = (1..=4).map(|level| level * depth / 4 - 1).collect();
        Self { out_indices, features, last, ..Self::default() }
    }

    /// The original's backbone of this size for segmentation: 512 px and no class token; rotary
    /// positions of tokens and stream, except in Vim-Ti.
    #[must_use]
    pub fn backbone(preset: Preset) -> VimConfig {
        let rope = match preset {
            Preset::Tiny | Preset::TinyStride8 => Rope::None,
            Preset::Small | Preset::SmallStride8 | Preset::Base | Preset::BaseDepth12 => Rope::Both,
        };
        VimConfig {
            image_size: 512.into(),
            class_token: ClassToken::None,
            rope,
            ..VimConfig::preset(preset)
        }
    }

    /// Channels inside the decode head.
    #[must_use]
    pub fn channels(&self, backbone: &VimConfig) -> usize {
        self.channels.unwrap_or(backbone.d_model)
    }

    /// This section with every key set: what a run records.
    #[must_use]
    pub fn effective(&self, backbone: &VimConfig) -> Self {
        Self { channels: Some(self.channels(backbone)), ..self.clone() }
    }

    /// The features that the heads read.
    #[must_use]
    pub fn taps(&self) -> Taps {
        Taps { blocks: self.out_indices.clone(), what: self.features, last: self.last }
    }

    /// Checks the values, and that they go with the backbone and the number of classes.
    ///
    /// # Errors
    ///
    /// [`ModelError`] names the first key at fault; those of this section begin with
    /// `segmentation.`.
    pub fn check(&self, backbone: &VimConfig, classes: usize) -> Result<(), ModelError> {
        backbone.check_backbone()?;
        self.check_levels(backbone)?;
        for (key, value) in [
            ("segmentation.channels", self.channels(backbone)),
            ("segmentation.aux_channels", self.aux_channels),
        ] {
            if !(1..=65_536).contains(&value) {
                return Err(wrong(key, &value, "the heads", "1 to 65536 channels"));
            }
        }
        if !(1..=254).contains(&classes) {
            let reason = "labels are bytes: 1 to 254 classes";
            return Err(wrong("the number of classes", &classes, "the labels", reason));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let reason = "a probability: 0 <= dropout < 1";
            return Err(wrong("segmentation.dropout", &self.dropout, "the heads", reason));
        }
        if !(self.aux_weight.is_finite() && self.aux_weight >= 0.0) {
            let reason = "a weight: 0 or more";
            return Err(wrong("segmentation.aux_weight", &self.aux_weight, "the loss", reason));
        }
        Ok(())
    }

    fn check_levels(&self, backbone: &VimConfig) -> Result<(), ModelError> {
        let patch = backbone.patch_size;
        if patch != 16 && patch != 8 {
            let other = format!("model.patch_size = {patch}");
            let reason = "the pyramid has strides 4 to 32 of patches of 16 or 8 px";
            return Err(wrong("segmentation", &"the pyramid", &other, reason));
        }
        if backbone.stride() != patch {
            let other = format!("model.stride = {}", backbone.stride());
            let reason = "maps have the stride of patches that touch";
            return Err(wrong("segmentation", &"the pyramid", &other, reason));
        }
        let least = 32 / patch;
        if backbone.grid().into_iter().min() < Some(least) {
            let other = format!("model.image_size = {}", backbone.image_size);
            let reason = "the coarsest level has stride 32: at least 32 px";
            return Err(wrong("segmentation", &"the pyramid", &other, reason));
        }
        let shown = format!("{:?}", self.out_indices);
        let depth = format!("model.depth = {}", backbone.depth);
        if !matches!(self.out_indices.len(), 1 | 4) {
            let reason = "the four levels take four blocks, or one for all";
            return Err(wrong("segmentation.out_indices", &shown, "the pyramid", reason));
        }
        if !self.out_indices.is_sorted_by(|a, b| a < b) {
            let reason = "blocks ascend, and each is named once";
            return Err(wrong("segmentation.out_indices", &shown, &depth, reason));
        }
        if self.out_indices.iter().any(|&block| block >= backbone.depth) {
            let reason = "blocks are counted from 0";
            return Err(wrong("segmentation.out_indices", &shown, &depth, reason));
        }
        if self.last != LastTap::None && self.features == Tapped::Hidden {
            let reason = "it is for features = \"residual\"";
            let other = "segmentation.features = \"hidden\"";
            return Err(wrong("segmentation.last", &self.last, other, reason));
        }
        Ok(())
    }
}

fn wrong(key: &'static str, value: &dyn ToString, other: &str, reason: &str) -> ModelError {
    let (value, other, reason) = (value.to_string(), other.to_owned(), reason.to_owned());
    ModelError::Conflict { key, value, other, reason }
}
