//! A training pass: what is matched, drawn and lost.

use std::panic::resume_unwind;
use std::thread;

use burn::tensor::Tensor;
use rayon::prelude::*;
use vim_kernels::{read_while, sum_in_order};
use vim_model::{Draw, VimConfig};

use super::box_head::{BOX_BINS, BoxScores, BoxTargets, CODERS, box_losses};
use super::boxes::Edges;
use super::config::DetectorConfig;
use super::detector::Detector;
use super::mask_head::{MASK_BINS, MASK_SIDE, mask_loss};
use super::rpn::{AnchorScores, AnchorTargets, Limits, Proposals, anchor_losses, proposals};
use super::targets::Scenes;
use super::truths::Truths;
use crate::error::DenseError;

/// The nine losses, each `[1]` and differentiable; of boxes alone they are eight.
#[derive(Clone, Debug)]
pub struct DetectionLosses {
    /// Of the anchors' scores.
    pub rpn_cls: Tensor<1>,
    /// Of the anchors' differences.
    pub rpn_loc: Tensor<1>,
    /// Of the boxes' classes, stage by stage.
    pub cls: Vec<Tensor<1>>,
    /// Of the boxes' differences, stage by stage.
    pub box_reg: Vec<Tensor<1>>,
    /// Of the masks, if they are learned.
    pub mask: Option<Tensor<1>>,
}

impl DetectionLosses {
    /// detectron2's names of all.
    pub const NAMES: [&'static str; 9] = [
        "loss_rpn_cls",
        "loss_rpn_loc",
        "loss_cls_stage0",
        "loss_box_reg_stage0",
        "loss_cls_stage1",
        "loss_box_reg_stage1",
        "loss_cls_stage2",
        "loss_box_reg_stage2",
        "loss_mask",
    ];

    /// The names of those of a model that learns masks, or does not.
    #[must_use]
    pub fn names(masks: bool) -> &'static [&'static str] {
        // That of the masks is the last.
        if masks { &Self::NAMES } else { &Self::NAMES[..Self::NAMES.len() - 1] }
    }

    /// Each with its name, in the order of [`Self::NAMES`].
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, Tensor<1>)> {
        let stages = self.cls.iter().zip(&self.box_reg).flat_map(|(cls, box_reg)| [cls, box_reg]);
        let losses = [&self.rpn_cls, &self.rpn_loc].into_iter().chain(stages).chain(&self.mask);
        Self::NAMES.into_iter().zip(losses.cloned()).collect()
    }

    /// Their sum, `[1]`.
    #[must_use]
    pub fn total(&self) -> Tensor<1> {
        let first = self.rpn_cls.clone() + self.rpn_loc.clone();
        let stages = self.cls.iter().chain(&self.box_reg);
        stages.chain(&self.mask).fold(first, |sum, loss| sum + loss.clone())
    }
}

/// A stage of the cascade.
#[derive(Clone, Debug)]
pub struct StagePass {
    /// Of each image its boxes, and what they are to find.
    pub targets: Vec<BoxTargets>,
    /// What the head says of all of them, image by image; absent if there are none.
    pub scores: Option<BoxScores>,
    /// Of the classes, and of the differences, each `[1]`.
    pub losses: [Tensor<1>; 2],
}

/// The masks of the first stage's foreground boxes, image by image.
#[derive(Clone, Debug, Default)]
pub struct MaskPass {
    /// Of each its class.
    pub classes: Vec<usize>,
    /// Of each its cells, `28 · 28`, row by row.
    pub targets: Vec<Vec<bool>>,
    /// `[R, 28, 28, K]`; absent if there are none.
    pub logits: Option<Tensor<4>>,
}

/// Everything on the way to the losses.
#[derive(Clone, Debug)]
pub struct TrainingPass {
    /// At strides 4 to 64, `[B, h, w, C]`.
    pub maps: Vec<Tensor<4>>,
    /// What every anchor scores.
    pub anchors: AnchorScores,
    /// Of each image the anchors that are in the loss.
    pub anchor_targets: Vec<AnchorTargets>,
    /// Of each image its proposals; where boxes were given, the cascade is not of them.
    pub proposals: Vec<Proposals>,
    /// The cascade.
    pub stages: Vec<StagePass>,
    /// The masks.
    pub masks: MaskPass,
    /// The losses.
    pub losses: DetectionLosses,
}

/// The masks and their loss; absent where boxes alone are learned.
type Masks = (MaskPass, Option<Tensor<1>>);

impl Detector {
    /// The losses of images from the backbone's last feature.
    ///
    /// Which anchors and boxes are drawn for an image depends on the draw's seed and on the image's
    /// place in the whole batch alone; without a draw the first ones are taken. Proposals, and the
    /// boxes that a stage of the cascade makes of the last one's, are constants: no gradient goes
    /// through them.
    ///
    /// # Shapes
    ///
    /// - `feature`: as [`Detector::feature`]
    /// - `sizes`: of each image `[height, width]`, without what pads it
    /// - `truths`: of each image
    ///
    /// # Errors
    ///
    /// [`DenseError::Argument`] if a size or a truth is wrong; [`DenseError::Mask`];
    /// [`DenseError::Kernel`].
    ///
    /// # Source
    ///
    /// `GeneralizedRCNN.forward` with `CascadeROIHeads` of detectron2.
    pub fn training_pass(
        &self,
        feature: &Tensor<4>,
        sizes: &[[usize; 2]],
        truths: &[Truths],
        draw: Option<Draw>,
    ) -> Result<TrainingPass, DenseError> {
        self.pass_of(feature, &Scenes { sizes, truths, draw, boxes: None })
    }

    /// [`Detector::training_pass`] where the boxes of the cascade's stages are given, in place of
    /// drawn proposals and of what each stage makes of its boxes. So a pass whose numbers are
    /// rounded otherwise is of the same boxes, and its losses can be compared.
    ///
    /// # Shapes
    ///
    /// - `boxes`: of each stage, of each image
    /// - the others: as [`Detector::training_pass`]
    ///
    /// # Errors
    ///
    /// As [`Detector::training_pass`], and [`DenseError::Argument`] if there are not boxes of every
    /// stage and image, or one has no inside.
    pub fn training_pass_of_boxes(
        &self,
        feature: &Tensor<4>,
        sizes: &[[usize; 2]],
        truths: &[Truths],
        draw: Option<Draw>,
        boxes: &[Vec<Vec<Edges>>],
    ) -> Result<TrainingPass, DenseError> {
        self.pass_of(feature, &Scenes { sizes, truths, draw, boxes: Some(boxes) })
    }

    fn pass_of(
        &self,
        feature: &Tensor<4>,
        scenes: &Scenes<'_>,
    ) -> Result<TrainingPass, DenseError> {
        let [batch, ..] = feature.dims();
        self.check_scenes(scenes, batch)?;
        let maps = self.maps(feature)?;
        let sizes = sizes_of(&maps);
        let (config, backbone) = (self.config(), self.backbone_config());
        // Everything that is chosen is chosen on the host; the anchors, on which the network has no
        // say, while the device computes.
        let (anchors, matched) = thread::scope(|scope| {
            let matched = scope.spawn(|| matched_anchors(config, backbone, &sizes, scenes));
            let anchors = self.rpn.forward(&maps, self.precision());
            (anchors, matched.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        let (anchors, (levels, all, anchor_targets)) = (anchors?, matched);
        let limits = Limits { per_level: config.proposals_per_level, all: config.proposals };
        let count = config.anchor_samples;
        let (scores, [rpn_cls, rpn_loc]) =
            anchors.read_while(|| anchor_losses(&anchors, &all, &anchor_targets, count));
        let proposals = proposals_of(scores, &levels, scenes.sizes, limits);

        let (stages, (masks, mask)) = self.cascade(&maps, &proposals, scenes)?;
        let of_stages = |which: usize| -> Vec<Tensor<1>> {
            stages.iter().map(|stage| stage.losses[which].clone()).collect()
        };
        let (cls, box_reg) = (of_stages(0), of_stages(1));
        let losses = DetectionLosses { rpn_cls, rpn_loc, cls, box_reg, mask };
        Ok(TrainingPass { maps, anchors, anchor_targets, proposals, stages, masks, losses })
    }

    /// All stages, and the masks of the first one's boxes.
    fn cascade(
        &self,
        maps: &[Tensor<4>],
        proposals: &[Proposals],
        scenes: &Scenes<'_>,
    ) -> Result<(Vec<StagePass>, Masks), DenseError> {
        let mut stages: Vec<StagePass> = Vec::with_capacity(self.box_heads.len());
        let mut masks: Masks = Default::default();
        let mut deltas = None::<Vec<f32>>;
        for (stage, head) in self.box_heads.iter().enumerate() {
            let targets = match (scenes.boxes, stages.last(), deltas.take()) {
                (Some(given), ..) => self.matched(stage, given[stage].clone(), scenes.truths),
                (None, None, _) => self.drawn(proposals, scenes),
                (None, Some(StagePass { targets, .. }), Some(deltas)) => {
                    self.passed_on(stage, targets, &deltas, scenes)
                }
                (None, Some(StagePass { targets, .. }), None) => targets.clone(),
            };
            if targets.iter().all(|of| of.boxes.is_empty()) {
                let BoxScores { logits, deltas } =
                    head.forward(self.stand_in(maps, BOX_BINS)?, self.precision())?;
                let losses = [logits, deltas].map(zero);
                if stage == 0 {
                    masks = self.masks(maps, &targets, scenes.truths)?;
                }
                stages.push(StagePass { targets, scores: None, losses });
                continue;
            }
            let boxes = targets.iter().map(|of| &of.boxes[..]);
            let x = self.of_boxes(maps, boxes, BOX_BINS)?;
            // Every stage has its share in the maps' gradient.
            let x = damped(x, 1.0 / self.box_heads.len() as f64);
            let scores = head.forward(x, self.precision())?;
            // What the next stage does not wait for is queued before the host waits.
            let rest = || {
                let losses = box_losses(&scores, &targets, CODERS[stage], self.num_classes());
                let masks = (stage == 0).then(|| self.masks(maps, &targets, scenes.truths));
                (losses, masks)
            };
            let is_last = stage + 1 == self.box_heads.len();
            let (losses, own) = if scenes.boxes.is_some() || is_last {
                rest()
            } else {
                let ([read], rest) = read_while([scores.deltas.clone()], rest);
                deltas = Some(read);
                rest
            };
            masks = own.transpose()?.unwrap_or(masks);
            stages.push(StagePass { targets, scores: Some(scores), losses });
        }
        Ok((stages, masks))
    }

    /// The features of a pixel of the first image, for a head without boxes: its parameters are in
    /// the losses of every batch, as an optimizer needs them.
    fn stand_in(&self, maps: &[Tensor<4>], bins: usize) -> Result<Tensor<4>, DenseError> {
        Ok(self.of_boxes(maps, [&[[0.0, 0.0, 1.0, 1.0]][..]], bins)?)
    }

    /// The masks of the foreground boxes, and their loss: 0 of none, absent where boxes alone are
    /// learned.
    fn masks(
        &self,
        maps: &[Tensor<4>],
        targets: &[BoxTargets],
        truths: &[Truths],
    ) -> Result<Masks, DenseError> {
        let mut pass = MaskPass::default();
        let Some(head) = &self.mask_head else { return Ok((pass, None)) };
        let mut boxes: Vec<Vec<Edges>> = Vec::with_capacity(targets.len());
        for (of, truths) in targets.iter().zip(truths) {
            let mut own = Vec::new();
            for at in (0..of.boxes.len()).filter(|&at| of.classes[at] < self.num_classes()) {
                let mask = &truths.masks[of.truths[at]];
                pass.targets.push(mask.target(of.boxes[at], MASK_SIDE)?);
                pass.classes.push(of.classes[at]);
                own.push(of.boxes[at]);
            }
            boxes.push(own);
        }
        if pass.classes.is_empty() {
            let x = self.stand_in(maps, MASK_BINS)?;
            return Ok((pass, Some(zero(head.forward(x, self.precision())?))));
        }
        let x = self.of_boxes(maps, boxes.iter().map(|own| &own[..]), MASK_BINS)?;
        let logits = head.forward(x, self.precision())?;
        let loss = mask_loss(logits.clone(), &pass.classes, &pass.targets);
        Ok((MaskPass { logits: Some(logits), ..pass }, Some(loss)))
    }
}

/// `[height, width]` of each of `maps`.
pub(super) fn sizes_of(maps: &[Tensor<4>]) -> Vec<[usize; 2]> {
    maps.iter().map(|map| [map.dims()[1], map.dims()[2]]).collect()
}

/// The anchors of each of the maps, whose sizes are given.
pub(super) fn anchor_levels(
    config: &DetectorConfig,
    backbone: &VimConfig,
    sizes: &[[usize; 2]],
) -> Vec<Vec<Edges>> {
    let anchors = config.anchors(backbone);
    let each = sizes.par_iter().enumerate();
    each.map(|(level, &size)| anchors.of_level(level, size)).collect()
}

/// The anchors of each of the maps, of all of them, and of each image those that are in the loss.
fn matched_anchors(
    config: &DetectorConfig,
    backbone: &VimConfig,
    sizes: &[[usize; 2]],
    scenes: &Scenes<'_>,
) -> (Vec<Vec<Edges>>, Vec<Edges>, Vec<AnchorTargets>) {
    let levels = anchor_levels(config, backbone, sizes);
    let all: Vec<Edges> = levels.concat();
    let each = scenes.truths.par_iter().zip(scenes.draws());
    let targets =
        each.map(|(of, draw)| AnchorTargets::of(&all, &of.boxes, config.anchor_samples, draw));
    let targets = targets.collect();
    (levels, all, targets)
}

/// The proposals of every image, by the logits and differences of its anchors.
pub(super) fn proposals_of(
    [logits, deltas]: [Vec<f32>; 2],
    levels: &[Vec<Edges>],
    sizes: &[[usize; 2]],
    limits: Limits,
) -> Vec<Proposals> {
    let count: usize = levels.iter().map(Vec::len).sum();
    let deltas: &[[f32; 4]] = deltas.as_chunks().0;
    let each = logits.par_chunks(count.max(1)).zip(deltas.par_chunks(count.max(1))).zip(sizes);
    each.map(|((logits, deltas), &size)| proposals(levels, logits, deltas, size, limits)).collect()
}

/// `x` with its gradient times `share`.
fn damped(x: Tensor<4>, share: f64) -> Tensor<4> {
    let constant = x.clone().detach();
    constant.clone() + (x - constant).mul_scalar(share)
}

/// The loss of no boxes, of what the head says of one that stands in for them: 0, and so is the
/// gradient of each of the head's parameters.
fn zero<const D: usize>(said: Tensor<D>) -> Tensor<1> {
    sum_in_order(said).mul_scalar(0.0)
}
