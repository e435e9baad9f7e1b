//! `[model]` and `[ssm]`: what a Vision Mamba is made of, its named sizes, and its derived sizes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelError, MAX_FULL_STATES, ScanChoice, Series};

/// A named size: the values that [`ModelConfig`] takes where a key is left out.
///
/// Source: the registered models `vim_{tiny,small,base}_patch16_224_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2`
/// and `vim_tiny_patch16_stride8_224_…` of the original.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Vim-Ti: `d_model` 192, 24 blocks, 7,148,008 parameters at 224 px and 1000 classes.
    #[default]
    Tiny,
    /// Vim-S: `d_model` 384, 24 blocks, 25,796,584 parameters.
    Small,
    /// Vim-B: `d_model` 768, 24 blocks, 97,598,440 parameters.
    Base,
    /// Vim-Ti on overlapping patches (16 px every 8 px, 730 tokens at 224 px), 7,250,344 parameters.
    TinyStride8,
}

/// The `[model]` section. A key that is left out takes the preset's value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// The named size that fills every key left out below.
    pub preset: Preset,
    /// How the state-space layer is discretized.
    pub discretization: Discretization,
    /// Side of the square input image, in pixels. Left out: 224.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<usize>,
    /// Side of a patch, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_size: Option<usize>,
    /// Distance between the corners of neighbouring patches, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Number of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Channels between blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_model: Option<usize>,
    /// States per channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_state: Option<usize>,
    /// Taps of the depthwise convolution, 2 to 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_conv: Option<usize>,
    /// `d_inner / d_model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expand: Option<usize>,
    /// Largest probability that a block's output is dropped (stochastic depth); it grows linearly from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_path: Option<f64>,
}

/// Where the reverse branch's `dt_proj` bias starts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum DtBInit {
    /// As the forward branch: delta starts log-uniform in 0.001 … 0.1.
    #[default]
    InverseSoftplus,
    /// Zero, as the original leaves it: delta starts near softplus(0) = 0.69.
    UpstreamZero,
}

/// What a channel's matrix A may be.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum StateMatrix {
    /// Diagonal and negative: every state decays on its own.
    #[default]
    Diagonal,
    /// That, and a skew-symmetric matrix beside it which turns the states into each other; always
    /// stable. Bilinear only, at most 32 states.
    Full,
}

/// The `[ssm]` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SsmConfig {
    /// Exact functions of delta·A, or the truncated series that published runs used.
    pub series: Series,
    /// Which implementation of the scan runs. `VIM_USE_CUDA_KERNEL=1|0` overrides the file, `--set` overrides both.
    pub scan: ScanChoice,
    /// Where the reverse branch's `dt_proj` bias starts.
    pub dt_b_init: DtBInit,
    /// A of a channel: diagonal, or full (a learned coupling of its states that starts at none; bilinear only, `d_state` at most 32).
    pub a: StateMatrix,
}

/// A complete model description: [`ModelConfig`] with its preset applied, [`SsmConfig`], and the number of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct VimConfig {
    /// Side of the square input image, in pixels.
    pub image_size: usize,
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
    /// Largest drop-path probability.
    pub drop_path: f64,
    /// Size of the head.
    pub num_classes: usize,
    /// The method of both branches.
    pub discretization: Discretization,
    /// Numerics of the scan.
    pub ssm: SsmConfig,
}

/// A model description that cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A value outside its range.
    #[error("model.{key}: {value} is out of range ({expected})")]
    Range {
        /// The key in `[model]`.
        key: &'static str,
        /// What it was set to.
        value: String,
        /// What would do.
        expected: String,
    },
    /// The implementation that `ssm.scan` forces does not exist on the device.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl VimConfig {
    /// Applies the preset to `model`, and checks every value.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] names the first key whose value cannot be built.
    pub fn new(
        model: &ModelConfig,
        ssm: SsmConfig,
        num_classes: usize,
    ) -> Result<Self, ModelError> {
        let base = Self::preset(model.preset);
        let config = Self {
            image_size: model.image_size.unwrap_or(base.image_size),
            patch_size: model.patch_size.unwrap_or(base.patch_size),
            stride: model.stride.or(model.patch_size).unwrap_or(base.stride),
            depth: model.depth.unwrap_or(base.depth),
            d_model: model.d_model.unwrap_or(base.d_model),
            d_state: model.d_state.unwrap_or(base.d_state),
            d_conv: model.d_conv.unwrap_or(base.d_conv),
            expand: model.expand.unwrap_or(base.expand),
            drop_path: model.drop_path.unwrap_or(base.drop_path),
            num_classes,
            discretization: model.discretization,
            ssm,
        };
        config.check()?;
        Ok(config)
    }

    /// The named size at 224 px and 1000 classes, zoh.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        let (d_model, stride) = match preset {
            Preset::Tiny => (192, 16),
            Preset::Small => (384, 16),
            Preset::Base => (768, 16),
            Preset::TinyStride8 => (192, 8),
        };
        Self {
            image_size: 224,
            patch_size: 16,
            stride,
            depth: 24,
            d_model,
            d_state: 16,
            d_conv: 4,
            expand: 2,
            drop_path: 0.1,
            num_classes: 1000,
            discretization: Discretization::Zoh,
            ssm: SsmConfig::default(),
        }
    }

    /// The `[model]` section that spells this model out in full, for the record of a run.
    #[must_use]
    pub fn to_section(&self, preset: Preset) -> ModelConfig {
        ModelConfig {
            preset,
            discretization: self.discretization,
            image_size: Some(self.image_size),
            patch_size: Some(self.patch_size),
            stride: Some(self.stride),
            depth: Some(self.depth),
            d_model: Some(self.d_model),
            d_state: Some(self.d_state),
            d_conv: Some(self.d_conv),
            expand: Some(self.expand),
            drop_path: Some(self.drop_path),
        }
    }

    /// Channels inside the mixer.
    #[must_use]
    pub fn d_inner(&self) -> usize {
        self.expand * self.d_model
    }

    /// Rank of the delta projection, ⌈`d_model` / 16⌉.
    #[must_use]
    pub fn dt_rank(&self) -> usize {
        self.d_model.div_ceil(16)
    }

    /// Patches along one side of the image.
    #[must_use]
    pub fn grid(&self) -> usize {
        (self.image_size - self.patch_size) / self.stride + 1
    }

    /// Tokens: patches and one class token.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.grid() * self.grid() + 1
    }

    /// Where the class token stands: the middle of the patches.
    #[must_use]
    pub fn class_token_position(&self) -> usize {
        self.grid() * self.grid() / 2
    }

    /// Trainable numbers of the model that [`VimConfig::init`] builds, in closed form.
    #[must_use]
    pub fn num_parameters(&self) -> usize {
        let (d_model, d_inner, dt_rank) = (self.d_model, self.d_inner(), self.dt_rank());
        let linear = |input: usize, output: usize| input * output;
        let patches = linear(3 * self.patch_size * self.patch_size, d_model) + d_model;
        let positions = (self.num_tokens() + 1) * d_model; // and the class token
        let conv1d = d_inner * self.d_conv + d_inner;
        let x_proj = linear(d_inner, dt_rank + 2 * self.d_state);
        let dt_proj = linear(dt_rank, d_inner) + d_inner;
        let a_log_and_d = d_inner * self.d_state + d_inner;
        let a_off = match self.ssm.a {
            StateMatrix::Diagonal => 0,
            StateMatrix::Full => d_inner * self.d_state * self.d_state,
        };
        let direction = conv1d + x_proj + dt_proj + a_log_and_d + a_off;
        let mixer = linear(d_model, 2 * d_inner) + 2 * direction + linear(d_inner, d_model);
        let head = linear(d_model, self.num_classes) + self.num_classes;
        patches + positions + self.depth * (mixer + d_model) + d_model + head
    }

    /// Checks every value that a model is built from.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let range = |key, value: &dyn ToString, expected: &str| {
            Err(ModelError::Range { key, value: value.to_string(), expected: expected.to_string() })
        };
        for (key, value) in [
            ("patch_size", self.patch_size),
            ("stride", self.stride),
            ("depth", self.depth),
            ("d_model", self.d_model),
            ("d_state", self.d_state),
            ("expand", self.expand),
            ("num_classes", self.num_classes),
        ] {
            if value == 0 {
                return range(key, &value, "at least 1");
            }
        }
        if self.image_size < self.patch_size {
            let least = format!("at least patch_size = {}", self.patch_size);
            return range("image_size", &self.image_size, &least);
        }
        if !(2..=4).contains(&self.d_conv) {
            return range("d_conv", &self.d_conv, "2 to 4");
        }
        if self.d_state > 256 {
            return range("d_state", &self.d_state, "1 to 256");
        }
        if self.ssm.a == StateMatrix::Full {
            if self.discretization != Discretization::Bilinear {
                let only = "\"bilinear\", the one method for ssm.a = \"full\"";
                return range("discretization", &self.discretization, only);
            }
            if self.d_state > MAX_FULL_STATES {
                let most = format!("1 to {MAX_FULL_STATES} with ssm.a = \"full\"");
                return range("d_state", &self.d_state, &most);
            }
        }
        if !(0.0..1.0).contains(&self.drop_path) {
            return range("drop_path", &self.drop_path, "0 <= drop_path < 1");
        }
        Ok(())
    }
}
