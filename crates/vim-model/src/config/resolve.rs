//! A complete model description, from the preset and what differs from it.

use vim_kernels::Discretization;

use super::check::ModelError;
use super::preset::Preset;
use super::section::{ModelConfig, SsmConfig};
use super::values::{DtRank, ImageSize, LayerScale};
use super::variant::{Bimamba, ClassToken, NormKind, Pool, Rope};

/// A complete model description: [`ModelConfig`] with its preset applied, [`SsmConfig`], and the number of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct VimConfig {
    /// Size of the input images, in pixels.
    pub image_size: ImageSize,
    /// Side of a patch, in pixels.
    pub patch_size: usize,
    /// Distance between the corners of neighbouring patches, in pixels.
    pub stride: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels between blocks.
    pub d_model: usize,
    /// States per channel.
    pub d_state: usize,
    /// Taps of the depthwise convolution.
    pub d_conv: usize,
    /// `d_inner / d_model`.
    pub expand: usize,
    /// Rank of the delta projection.
    pub dt_rank: DtRank,
    /// How a mixer goes over the tokens.
    pub bimamba: Bimamba,
    /// Whether the two ways of a [`Bimamba::V2`] are halved after they are summed; the others are not.
    pub divide_out: bool,
    /// Gain of every channel at the end of a mixer.
    pub layer_scale: LayerScale,
    /// What normalizes.
    pub norm: NormKind,
    /// What is added to the mean square, or to the variance.
    pub norm_eps: f64,
    /// Where the class token stands.
    pub class_token: ClassToken,
    /// What the head reads where there is no class token.
    pub pool: Pool,
    /// Whether learned positions are added to the tokens.
    pub abs_pos_embed: bool,
    /// What is turned by rotary positions.
    pub rope: Rope,
    /// Patches along a side that rotary positions are scaled to.
    pub rope_grid: usize,
    /// Probability that the order of the tokens is reversed.
    pub flip_ratio: f64,
    /// Whether blocks come in pairs, the second of which sees the tokens reversed.
    pub layer_pairs: bool,
    /// Probability that a number of a token is dropped after positions are added.
    pub dropout: f64,
    /// Largest drop-path probability.
    pub drop_path: f64,
    /// Size of the head.
    pub num_classes: usize,
    /// The method of both ways, but for [`SsmConfig::method_fwd`] and [`SsmConfig::method_bwd`].
    pub discretization: Discretization,
    /// Numerics of the scan.
    pub ssm: SsmConfig,
}

impl VimConfig {
    /// Applies the preset to `model`, and checks every value.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] names the first key whose value cannot be built, [`ModelError::Conflict`] the
    /// first that another one rules out.
    pub fn new(
        model: &ModelConfig,
        ssm: SsmConfig,
        num_classes: usize,
    ) -> Result<Self, ModelError> {
        let base = Self::preset(model.preset.preset);
        let named = model.preset.discretization.unwrap_or(base.discretization);
        let bimamba = model.bimamba.unwrap_or(base.bimamba);
        let halves = base.divide_out && bimamba == Bimamba::V2;
        let config = Self {
            image_size: model.image_size.unwrap_or(base.image_size),
            patch_size: model.patch_size.unwrap_or(base.patch_size),
            stride: model.stride.or(model.patch_size).unwrap_or(base.stride),
            depth: model.depth.unwrap_or(base.depth),
            d_model: model.d_model.unwrap_or(base.d_model),
            d_state: model.d_state.unwrap_or(base.d_state),
            d_conv: model.d_conv.unwrap_or(base.d_conv),
            expand: model.expand.unwrap_or(base.expand),
            dt_rank: model.dt_rank.unwrap_or(base.dt_rank),
            bimamba,
            divide_out: model.divide_out.unwrap_or(halves),
            layer_scale: model.layer_scale.unwrap_or(base.layer_scale),
            norm: model.norm.unwrap_or(base.norm),
            norm_eps: model.norm_eps.unwrap_or(base.norm_eps),
            class_token: model.class_token.unwrap_or(base.class_token),
            pool: model.pool.unwrap_or(base.pool),
            abs_pos_embed: model.abs_pos_embed.unwrap_or(base.abs_pos_embed),
            rope: model.rope.unwrap_or(base.rope),
            rope_grid: model.rope_grid.unwrap_or(base.rope_grid),
            flip_ratio: model.flip_ratio.unwrap_or(base.flip_ratio),
            layer_pairs: model.layer_pairs.unwrap_or(base.layer_pairs),
            dropout: model.dropout.unwrap_or(base.dropout),
            drop_path: model.drop_path.unwrap_or(base.drop_path),
            num_classes,
            discretization: model.discretization.unwrap_or(named),
            ssm,
        };
        config.check_written(model)?;
        config.check()?;
        Ok(config)
    }

    /// The `[model]` section that spells this model out in full, for the record of a run.
    ///
    /// Keys that mean nothing beside the others are left out.
    #[must_use]
    pub fn to_section(&self, preset: Preset) -> ModelConfig {
        ModelConfig {
            preset: preset.into(),
            discretization: Some(self.discretization),
            image_size: Some(self.image_size),
            patch_size: Some(self.patch_size),
            stride: Some(self.stride),
            depth: Some(self.depth),
            d_model: Some(self.d_model),
            d_state: Some(self.d_state),
            d_conv: Some(self.d_conv),
            expand: Some(self.expand),
            dt_rank: Some(self.dt_rank),
            bimamba: Some(self.bimamba),
            divide_out: (self.bimamba == Bimamba::V2).then_some(self.divide_out),
            layer_scale: Some(self.layer_scale),
            norm: Some(self.norm),
            norm_eps: Some(self.norm_eps),
            class_token: Some(self.class_token),
            pool: (self.class_token == ClassToken::None).then_some(self.pool),
            abs_pos_embed: Some(self.abs_pos_embed),
            rope: Some(self.rope),
            rope_grid: (self.rope != Rope::None).then_some(self.rope_grid),
            flip_ratio: Some(self.flip_ratio),
            layer_pairs: Some(self.layer_pairs),
            dropout: Some(self.dropout),
            drop_path: Some(self.drop_path),
        }
    }

    /// The methods of the forward and of the backward way.
    #[must_use]
    pub fn methods(&self) -> [Discretization; 2] {
        [self.ssm.method_fwd, self.ssm.method_bwd]
            .map(|method| method.unwrap_or(self.discretization))
    }

    /// The methods in words: `zoh`, or `zoh forward and foh backward`.
    #[must_use]
    pub fn method_label(&self) -> String {
        match (self.methods(), self.bimamba) {
            ([first, last], Bimamba::V1 | Bimamba::V2) if first != last => {
                format!("{first} forward and {last} backward")
            }
            ([first, _], _) => first.to_string(),
        }
    }
}
