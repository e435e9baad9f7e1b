//! The segmentation model: how it is built, and its pass in evaluation.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{KernelError, Precision, Recompute};
use vim_model::{Draw, ModelError, Scope, Vim, VimConfig};

use crate::batch_norm::Statistics;
use crate::config::SegmenterConfig;
use crate::conv::Pass;
use crate::error::DenseError;
use crate::heads::{Decoded, FcnHead, UperHead};
use crate::pyramid::{Levels, Pyramid};

/// A backbone with a pyramid, UperNet and an auxiliary head.
///
/// Built by [`SegmenterConfig::init`].
///
/// # Source
///
/// Zhu et al. 2024, section 4.2; the original's `seg/`.
#[derive(Module, Debug)]
pub struct Segmenter {
    /// Vision Mamba without a head. Parameters that no feature depends on require no gradient.
    pub backbone: Vim,
    /// Maps of four strides.
    pub pyramid: Pyramid,
    /// Of all levels.
    pub decode_head: UperHead,
    /// Of the level at stride 16, in training.
    pub auxiliary_head: FcnHead,
    #[module(skip)]
    config: SegmenterConfig,
    #[module(skip)]
    precision: Precision,
}

/// Everything that a pass in evaluation computes, for comparisons with another implementation.
#[derive(Clone, Debug)]
pub struct Features {
    /// What goes into the pyramid, `[B, G_h, G_w, M]`.
    pub maps: [Tensor<4>; 4],
    /// What comes out, at strides 4, 8, 16 and 32: `[B, h, w, M]`.
    pub levels: [Tensor<4>; 4],
    /// The pyramid pooling after its bottleneck, `[B, h, w, C]` at stride 32.
    pub pooled: Tensor<4>,
    /// Of the decode head, `[B, h, w, K]` at stride 4.
    pub logits: Tensor<4>,
    /// Of the auxiliary head, `[B, h, w, K]` at stride 16.
    pub aux_logits: Tensor<4>,
}

impl SegmenterConfig {
    /// Builds the model on `backbone` for `classes`, every value a function of `seed` and of the
    /// parameter's name.
    ///
    /// The backbone starts as in classification. The original sets its linear layers to a truncated
    /// normal of 0.02 with biases of 0, of delta too, and then loads pretrained weights over them.
    ///
    /// # Errors
    ///
    /// As [`SegmenterConfig::check`]; [`ModelError::Kernel`] if `ssm.scan` forces a kernel that
    /// `device` lacks.
    pub fn init(
        &self,
        backbone: &VimConfig,
        classes: usize,
        device: &Device,
        seed: u64,
    ) -> Result<Segmenter, ModelError> {
        self.check(backbone, classes)?;
        let scope = Scope::root(device, seed);
        let (width, channels) = (backbone.d_model, self.channels(backbone));
        let vim = backbone.init_backbone(device, seed)?;
        let frozen = vim.frozen_behind(&self.taps()).map_err(|error| ModelError::Conflict {
            key: "segmentation.out_indices",
            value: format!("{:?}", self.out_indices),
            other: "[model]".to_owned(),
            reason: error.to_string(),
        })?;
        let decode_head = UperHead::init(&scope.child("decode_head"), width, channels, classes);
        let auxiliary_head =
            FcnHead::init(&scope.child("auxiliary_head"), width, self.aux_channels, classes);
        Ok(Segmenter {
            backbone: frozen,
            pyramid: Pyramid::init(&scope.child("pyramid"), width, backbone.patch_size),
            decode_head,
            auxiliary_head,
            config: self.clone(),
            precision: Precision::default(),
        })
    }
}

impl Segmenter {
    /// The heads' configuration that the model was built from.
    #[must_use]
    pub fn config(&self) -> &SegmenterConfig {
        &self.config
    }

    /// The backbone's, whose number of classes is 0.
    #[must_use]
    pub fn backbone_config(&self) -> &VimConfig {
        self.backbone.config()
    }

    /// Classes, `K`.
    #[must_use]
    pub fn num_classes(&self) -> usize {
        self.decode_head.conv_seg.bias.dims()[0]
    }

    /// The same model, multiplying in `precision`. Weights stay f32, as do statistics, resizing,
    /// logits and losses.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoPrecision`] if the model's device does not multiply in `precision`.
    pub fn with_precision(self, precision: Precision) -> Result<Self, KernelError> {
        let backbone = self.backbone.with_precision(precision)?;
        Ok(Self { backbone, precision, ..self })
    }

    /// The same model; see [`Vim::with_recompute`]. The heads are never computed twice, so that
    /// running statistics move once a pass.
    #[must_use]
    pub fn with_recompute(self, recompute: Recompute) -> Self {
        Self { backbone: self.backbone.with_recompute(recompute), ..self }
    }

    /// Logits in evaluation, at stride 4: running statistics, and nothing is drawn.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`, of the backbone's `image_size`, normalized
    /// - result: `[B, H/4, W/4, K]`, f32
    ///
    /// # Errors
    ///
    /// [`DenseError::Feature`] if the images have another size than the model.
    pub fn forward(&self, images: Tensor<4>) -> Result<Tensor<4>, DenseError> {
        let maps = self.maps(images, None)?;
        let levels = self.levels(maps)?;
        Ok(self.decoded(levels)?.logits)
    }

    /// [`Segmenter::forward`] with everything on the way, and the auxiliary head.
    ///
    /// # Errors
    ///
    /// As [`Segmenter::forward`].
    pub fn features(&self, images: Tensor<4>) -> Result<Features, DenseError> {
        let maps = self.maps(images, None)?;
        let levels = self.levels(maps.clone())?;
        let Decoded { pooled, logits } = self.decoded(levels.clone())?;
        let third = vec![levels[2].clone()];
        let aux =
            FcnHead::forward(&[&self.auxiliary_head], third, self.evaluating(), 0.0, &[None])?;
        Ok(Features { maps, levels, pooled, logits, aux_logits: one(aux)? })
    }

    fn evaluating(&self) -> Pass<'_> {
        Pass { statistics: Statistics::Running, precision: self.precision }
    }

    fn levels(&self, maps: Levels) -> Result<Levels, DenseError> {
        let Pass { statistics, precision } = self.evaluating();
        one(Pyramid::forward(&[&self.pyramid], vec![maps], statistics, precision)?)
    }

    fn decoded(&self, levels: Levels) -> Result<Decoded, DenseError> {
        let (pass, rate) = (self.evaluating(), self.config.dropout);
        one(UperHead::forward(&[&self.decode_head], vec![levels], pass, rate, &[None])?)
    }

    /// What goes into the pyramid: the features as maps, `[B, G_h, G_w, M]`, f32.
    pub(crate) fn maps(&self, images: Tensor<4>, draw: Option<Draw>) -> Result<Levels, DenseError> {
        let [rows, columns] = self.backbone_config().grid();
        let features = self.backbone.tapped(images, &self.config.taps(), draw)?;
        let mut maps: Vec<Tensor<4>> = features
            .into_iter()
            .map(|feature| {
                let [batch, _, channels] = feature.dims();
                feature.cast(FloatDType::F32).reshape([batch, rows, columns, channels])
            })
            .collect();
        if let [only] = &maps[..] {
            maps = vec![only.clone(); 4];
        }
        let count = maps.len();
        maps.try_into().map_err(|_| DenseError::Argument {
            what: "segmentation.out_indices",
            got: format!("{count} features"),
            expected: "four, or one".to_owned(),
        })
    }

    /// How a training pass over the shards of `sums` computes.
    pub(crate) fn training<'a>(&self, sums: &'a crate::shards::ShardSum) -> Pass<'a> {
        Pass { statistics: Statistics::Batch(sums), precision: self.precision }
    }
}

/// The only one of the results of a pass over one shard.
fn one<T>(results: Vec<T>) -> Result<T, DenseError> {
    let count = results.len();
    results.into_iter().next().ok_or_else(|| DenseError::Argument {
        what: "shards",
        got: count.to_string(),
        expected: "1".to_owned(),
    })
}
