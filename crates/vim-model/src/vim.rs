//! The classifier.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use vim_kernels::{KernelError, Precision};

use crate::block::Block;
use crate::config::{ClassToken, ModelError, VimConfig};
use crate::init::{Rule, Scope};
use crate::norm::Norm;
use crate::patch_embed::{PatchEmbed, PatchEmbedConfig};

/// Vision Mamba: patches and class tokens → positions → blocks → norm → head.
///
/// Built by [`VimConfig::init`] or [`import_pytorch`](crate::import_pytorch). The configuration
/// determines the optional fields.
///
/// # Source
///
/// Zhu et al. 2024; the original's `VisionMamba`.
#[derive(Module, Debug)]
pub struct Vim {
    /// Image → patches.
    pub patch_embed: PatchEmbed,
    /// The token that the head reads, `[1, 1, M]`; absent if there are two or none.
    pub cls_token: Option<Param<Tensor<3>>>,
    /// Of two class tokens the one before the patches, `[1, 1, M]`.
    pub cls_token_head: Option<Param<Tensor<3>>>,
    /// The one after them, `[1, 1, M]`.
    pub cls_token_tail: Option<Param<Tensor<3>>>,
    /// Added to all tokens by position, `[1, L, M]`.
    pub pos_embed: Option<Param<Tensor<3>>>,
    /// One after the other.
    pub layers: Vec<Block>,
    /// After the last block.
    pub norm_f: Norm,
    /// `M` → `K`.
    pub head: Linear,
    /// The configuration that the model was built from.
    #[module(skip)]
    pub(crate) config: VimConfig,
}

impl VimConfig {
    /// The layer that makes patches of an image.
    #[must_use]
    pub fn patch_embed(&self) -> PatchEmbedConfig {
        let &Self { patch_size, d_model, .. } = self;
        PatchEmbedConfig { patch_size, stride: self.stride(), d_model }
    }

    /// Builds the model, every value a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] names a value that cannot be built, [`ModelError::Conflict`] two that
    /// do not go together; [`ModelError::Kernel`] if `ssm.scan` forces a kernel that `device`
    /// lacks.
    pub fn init(&self, device: &Device, seed: u64) -> Result<Vim, ModelError> {
        self.check()?;
        self.ssm.scan.resolve(device)?;
        let scope = Scope::root(device, seed);
        let (d_model, layers) = (self.d_model, scope.child("layers"));
        let token = |name| scope.param(name, [1, 1, d_model], Rule::SMALL_NORMAL);
        let positions =
            || scope.param("pos_embed", [1, self.num_tokens(), d_model], Rule::SMALL_NORMAL);
        let double = self.class_token == ClassToken::Double;
        let block = |i: usize| self.block().init_in(&layers.child(&i.to_string()));
        Ok(Vim {
            patch_embed: self.patch_embed().init_in(&scope.child("patch_embed")),
            cls_token: (self.num_class_tokens() == 1).then(|| token("cls_token")),
            cls_token_head: double.then(|| token("cls_token_head")),
            cls_token_tail: double.then(|| token("cls_token_tail")),
            pos_embed: self.abs_pos_embed.then(positions),
            layers: (0..self.depth).map(block).collect(),
            norm_f: self.norm().init_in(&scope.child("norm_f")),
            head: scope.child("head").linear(
                [d_model, self.num_classes],
                Rule::SMALL_NORMAL,
                Some(Rule::Constant(0.0)),
            ),
            config: self.clone(),
        })
    }
}

impl Vim {
    /// The configuration that the model was built from.
    #[must_use]
    pub fn config(&self) -> &VimConfig {
        &self.config
    }

    /// The same model, multiplying in `precision`. Its weights stay f32.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoPrecision`] if the model's device does not multiply in `precision`.
    pub fn with_precision(mut self, precision: Precision) -> Result<Self, KernelError> {
        precision.check(&self.head.weight.val().device())?;
        self.patch_embed.precision = precision;
        for block in &mut self.layers {
            block.mixer.precision = precision;
        }
        Ok(self)
    }

    /// The same model, which on a GPU computes the states of its scans again in the backward pass
    /// if `recompute` is set, instead of keeping them. Halves the memory of a layer for a tenth of
    /// a step's time; the numbers are the same to the bit.
    #[must_use]
    pub fn with_recompute(mut self, recompute: bool) -> Self {
        for block in &mut self.layers {
            block.mixer.recompute = recompute;
        }
        self
    }

    /// Whether [`with_recompute`](Self::with_recompute) saves memory on `device`: where one
    /// operation computes both directions.
    #[must_use]
    pub fn can_recompute(&self, device: &Device) -> bool {
        self.layers.iter().all(|block| block.mixer.is_fused(device))
    }
}
