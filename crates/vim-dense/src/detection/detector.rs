//! The detector: how it is built, and what its backbone and its pyramid see.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use vim_kernels::{KernelError, Precision, Recompute, Roi};
use vim_model::{Draw, ModelError, Scope, Vim, VimConfig};

use super::box_head::{BoxHead, OVERLAPS};
use super::boxes::Edges;
use super::config::DetectorConfig;
use super::mask_head::MaskHead;
use super::pooler::pooled;
use super::pyramid::{HEAD_STRIDES, SimplePyramid};
use super::rpn::RpnHead;
use crate::error::{DenseError, expect};

/// Cascade Mask R-CNN on Vision Mamba.
///
/// Built by [`DetectorConfig::init`].
///
/// # Source
///
/// Zhu et al. 2024, section 4.3; the original's `det/`, which differs from ViTDet (Li et al. 2022)
/// in the backbone alone.
#[derive(Module, Debug)]
pub struct Detector {
    /// Vision Mamba without a head. Its last norm requires no gradient where nothing depends on it.
    pub backbone: Vim,
    /// Maps of five strides.
    pub pyramid: SimplePyramid,
    /// What every anchor scores.
    pub rpn: RpnHead,
    /// One for each stage of the cascade.
    pub box_heads: Vec<BoxHead>,
    /// The mask of a box; absent where boxes alone are found.
    pub mask_head: Option<MaskHead>,
    #[module(skip)]
    config: DetectorConfig,
    #[module(skip)]
    precision: Precision,
}

impl DetectorConfig {
    /// Builds the model on `backbone` for `classes`, every value a function of `seed` and of the
    /// parameter's name. The backbone starts as in classification.
    ///
    /// # Errors
    ///
    /// As [`DetectorConfig::check`]; [`ModelError::Kernel`] if `ssm.scan` forces a kernel that
    /// `device` lacks.
    pub fn init(
        &self,
        backbone: &VimConfig,
        classes: usize,
        device: &Device,
        seed: u64,
    ) -> Result<Detector, ModelError> {
        self.check(backbone, classes)?;
        let scope = Scope::root(device, seed);
        let taps = self.taps(backbone);
        let vim = backbone.init_backbone(device, seed)?;
        let frozen = vim.frozen_behind(&taps).map_err(|error| ModelError::Conflict {
            key: "detection",
            value: "the last feature".to_owned(),
            other: "[model]".to_owned(),
            reason: error.to_string(),
        })?;
        let heads = scope.child("box_heads");
        let head = |stage: usize| BoxHead::init(&heads.child(&stage.to_string()), self, classes);
        Ok(Detector {
            backbone: frozen,
            pyramid: SimplePyramid::init(&scope.child("pyramid"), backbone.d_model, self.channels),
            rpn: RpnHead::init(&scope.child("rpn"), self.channels),
            box_heads: (0..OVERLAPS.len()).map(head).collect(),
            mask_head: self
                .masks
                .then(|| MaskHead::init(&scope.child("mask_head"), self.channels, classes)),
            config: self.clone(),
            precision: Precision::default(),
        })
    }
}

impl Detector {
    /// The configuration that the model was built from.
    #[must_use]
    pub fn config(&self) -> &DetectorConfig {
        &self.config
    }

    /// The backbone's, whose number of classes is 0.
    #[must_use]
    pub fn backbone_config(&self) -> &VimConfig {
        self.backbone.config()
    }

    /// Classes, `K`, without the background.
    #[must_use]
    pub fn num_classes(&self) -> usize {
        // The background has a score too.
        self.box_heads.first().map_or(0, |head| head.cls_score.weight.dims()[1] - 1)
    }

    /// The precision that the layers multiply in.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The same model, multiplying in `precision`. Weights stay f32, as do normalizations, the last
    /// layers of the heads, boxes and losses.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoPrecision`] if the model's device does not multiply in `precision`.
    pub fn with_precision(self, precision: Precision) -> Result<Self, KernelError> {
        let backbone = self.backbone.with_precision(precision)?;
        Ok(Self { backbone, precision, ..self })
    }

    /// The same model; see [`Vim::with_recompute`].
    #[must_use]
    pub fn with_recompute(self, recompute: Recompute) -> Self {
        Self { backbone: self.backbone.with_recompute(recompute), ..self }
    }

    /// The backbone's last feature; with a `draw` as in training.
    ///
    /// # Shapes
    ///
    /// - `images`: `[B, 3, H, W]`, of the backbone's `image_size`, normalized, and 0 to the right
    ///   of and below a smaller image
    /// - result: `[B, G_h, G_w, M]`, f32
    ///
    /// # Errors
    ///
    /// [`DenseError::Feature`] if the images have another size than the model.
    pub fn feature(&self, images: Tensor<4>, draw: Option<Draw>) -> Result<Tensor<4>, DenseError> {
        let [rows, columns] = self.backbone_config().grid();
        let taps = self.config.taps(self.backbone_config());
        let found = self.backbone.tapped(images, &taps, draw)?.into_iter().next();
        let feature = found.ok_or_else(|| DenseError::Argument {
            what: "the backbone",
            got: "no feature".to_owned(),
            expected: "that of its last block".to_owned(),
        })?;
        let [batch, _, channels] = feature.dims();
        Ok(feature.cast(FloatDType::F32).reshape([batch, rows, columns, channels]))
    }

    /// The maps at all strides of the backbone's last feature.
    ///
    /// # Shapes
    ///
    /// - `feature`: as [`Detector::feature`]
    /// - results: `[B, h, w, C]`, f32
    ///
    /// # Errors
    ///
    /// As [`vim_kernels::conv3x3()`].
    pub fn maps(&self, feature: &Tensor<4>) -> Result<Vec<Tensor<4>>, KernelError> {
        self.pyramid.forward(feature, self.precision)
    }

    /// The features of boxes, at least one, image by image: `[R, bins, bins, C]`.
    pub(super) fn of_boxes<'a>(
        &self,
        maps: &[Tensor<4>],
        boxes: impl IntoIterator<Item = &'a [Edges]>,
        bins: usize,
    ) -> Result<Tensor<4>, KernelError> {
        let of = |(image, own): (usize, &'a [Edges])| {
            own.iter().map(move |&corners| Roi { image, corners })
        };
        let rois: Vec<Roi> = boxes.into_iter().enumerate().flat_map(of).collect();
        let strides = DetectorConfig::strides(self.backbone_config());
        let read = HEAD_STRIDES.len();
        let (side, sampling) = (self.config.box_side as f32, self.config.sampling());
        pooled(&maps[..read], &strides[..read], side, &rois, bins, sampling)
    }

    /// Checks that there is a size of each of `batch` images, and that it is within the model's.
    pub(super) fn check_sizes(&self, sizes: &[[usize; 2]], batch: usize) -> Result<(), DenseError> {
        let got = || format!("{} sizes", sizes.len());
        expect(sizes.len() == batch, "sizes of images", got, || format!("{batch}"))?;
        let most = self.backbone_config().image_size;
        let is_good = |&[height, width]: &[usize; 2]| {
            (1..=most.height).contains(&height) && (1..=most.width).contains(&width)
        };
        match sizes.iter().find(|size| !is_good(size)) {
            Some([height, width]) => Err(DenseError::Argument {
                what: "the size of an image",
                got: format!("{height}×{width}"),
                expected: format!("one pixel at least, and {most} at most"),
            }),
            None => Ok(()),
        }
    }
}
