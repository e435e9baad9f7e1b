//! What a detector finds.

use burn::tensor::Tensor;
use burn::tensor::activation::{sigmoid, softmax};

use super::box_head::{BOX_BINS, CODERS};
use super::boxes::{Edges, clip, is_finite, is_nonempty, scaled};
use super::detector::Detector;
use super::layers::numbers;
use super::mask_head::{MASK_BINS, MASK_SIDE, of_classes};
use super::nms::batched_nms;
use super::paste::paste;
use super::rpn::{Limits, Proposals};
use super::targets::refined;
use super::training::{anchor_levels, proposals_of, sizes_of};
use crate::error::DenseError;

/// From this probability on a pixel is in a mask.
const IN_MASK: f32 = 0.5;

/// The detections of an image, from the highest score to the lowest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detections {
    /// In pixels of the image that the model sees.
    pub boxes: Vec<Edges>,
    /// Above the threshold.
    pub scores: Vec<f32>,
    /// From 0.
    pub classes: Vec<usize>,
    /// Probabilities of the mask's cells in the box, `28 · 28`, row by row; none of a model that
    /// finds boxes alone.
    pub masks: Vec<Vec<f32>>,
}

/// The same in an image of its own size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// In pixels of that image.
    pub boxes: Vec<Edges>,
    /// As in [`Detections`].
    pub scores: Vec<f32>,
    /// As in [`Detections`].
    pub classes: Vec<usize>,
    /// The pixels of each, `[height, width]`, row by row; as in [`Detections`].
    pub masks: Vec<Vec<bool>>,
}

/// A pass in evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationPass {
    /// The proposals of each image.
    pub proposals: Vec<Proposals>,
    /// The detections of each image.
    pub detections: Vec<Detections>,
}

impl Detector {
    /// Detects objects in images.
    ///
    /// # Shapes
    ///
    /// - `images`: as [`Detector::feature`]
    /// - `sizes`: of each image `[height, width]`, without what pads it
    ///
    /// # Errors
    ///
    /// [`DenseError::Feature`] if the images have another size than the model,
    /// [`DenseError::Argument`] if a size is wrong; [`DenseError::Kernel`].
    pub fn detect(
        &self,
        images: Tensor<4>,
        sizes: &[[usize; 2]],
    ) -> Result<Vec<Detections>, DenseError> {
        let feature = self.feature(images, None)?;
        Ok(self.evaluation_pass(&feature, sizes)?.detections)
    }

    /// [`Detector::detect`] from the backbone's last feature, with the proposals.
    ///
    /// # Errors
    ///
    /// As [`Detector::detect`].
    ///
    /// # Source
    ///
    /// `CascadeROIHeads` and `fast_rcnn_inference` of detectron2.
    pub fn evaluation_pass(
        &self,
        feature: &Tensor<4>,
        sizes: &[[usize; 2]],
    ) -> Result<EvaluationPass, DenseError> {
        let [batch, ..] = feature.dims();
        self.check_sizes(sizes, batch)?;
        let maps = self.maps(feature)?;
        let scores = self.rpn.forward(&maps, self.precision())?;
        let config = self.config();
        let limits =
            Limits { per_level: config.test_proposals_per_level, all: config.test_proposals };
        let levels = anchor_levels(config, self.backbone_config(), &sizes_of(&maps));
        let proposals = proposals_of(scores.read_while(|| ()).0, &levels, sizes, limits);
        let boxes: Vec<Vec<Edges>> = proposals.iter().map(|of| of.boxes.clone()).collect();
        let mut detections = self.of_proposals(&maps, boxes, sizes)?;
        self.add_masks(&maps, &mut detections)?;
        Ok(EvaluationPass { proposals, detections })
    }

    /// A logit of each class for a box in pixels of the image, `[K]`: the mean over the stages of
    /// the cascade, each of which reads that box. `feature` is of one image.
    ///
    /// # Errors
    ///
    /// As [`Detector::detect`].
    pub fn classes_of_box(
        &self,
        feature: &Tensor<4>,
        edges: Edges,
    ) -> Result<Tensor<1>, DenseError> {
        let (maps, mut logits) = (self.maps(feature)?, Vec::new());
        for head in &self.box_heads {
            let x = self.of_boxes(&maps, [&[edges][..]], BOX_BINS)?;
            logits.push(head.forward(x, self.precision())?.logits.narrow(1, 0, self.num_classes()));
        }
        Ok(Tensor::cat(logits, 0).mean_dim(0).squeeze_dim(0))
    }

    /// The cascade: classes by the mean over its stages, boxes by the last one.
    fn of_proposals(
        &self,
        maps: &[Tensor<4>],
        mut boxes: Vec<Vec<Edges>>,
        sizes: &[[usize; 2]],
    ) -> Result<Vec<Detections>, DenseError> {
        if boxes.iter().all(Vec::is_empty) {
            return Ok(vec![Detections::default(); sizes.len()]);
        }
        let counts: Vec<usize> = boxes.iter().map(Vec::len).collect();
        let mut sum: Option<Tensor<2>> = None;
        for (stage, head) in self.box_heads.iter().enumerate() {
            if stage > 0 {
                for (own, &size) in boxes.iter_mut().zip(sizes) {
                    let own = own.iter_mut().filter(|edges| is_finite(**edges));
                    own.for_each(|edges| *edges = clip(*edges, size));
                }
            }
            // A box that is none keeps its place, is read as one without area, and stays none.
            let readable = |&edges: &Edges| if is_finite(edges) { edges } else { [0.0; 4] };
            let read: Vec<Vec<Edges>> =
                boxes.iter().map(|own| own.iter().map(readable).collect()).collect();
            let x = self.of_boxes(maps, read.iter().map(|own| &own[..]), BOX_BINS)?;
            let scores = head.forward(x, self.precision())?;
            let own = softmax(scores.logits, 1);
            sum = Some(match sum {
                Some(sum) => sum + own,
                None => own,
            });
            boxes =
                refined(&numbers(scores.deltas), boxes.iter().map(|own| &own[..]), CODERS[stage]);
        }
        let Some(sum) = sum else { return Ok(vec![Detections::default(); sizes.len()]) };
        let mean = sum.mul_scalar(1.0 / self.box_heads.len() as f64);
        let width = self.num_classes() + 1;
        let mean = numbers(mean);
        let mut rows = mean.chunks_exact(width);
        let each = boxes.iter().zip(counts).zip(sizes);
        Ok(each
            .map(|((boxes, count), &size)| {
                let rows: Vec<&[f32]> = rows.by_ref().take(count).collect();
                self.chosen(boxes, &rows, size)
            })
            .collect())
    }

    /// Of an image's boxes, each with a row of scores, those that are detections of a class.
    fn chosen(&self, boxes: &[Edges], rows: &[&[f32]], size: [usize; 2]) -> Detections {
        let config = self.config();
        let mut all = Detections::default();
        for (&edges, row) in boxes.iter().zip(rows) {
            if !(is_finite(edges) && row.iter().all(|score| score.is_finite())) {
                continue;
            }
            let edges = clip(edges, size);
            for (class, &score) in row[..self.num_classes()].iter().enumerate() {
                if f64::from(score) > config.score_threshold {
                    all.boxes.push(edges);
                    all.scores.push(score);
                    all.classes.push(class);
                }
            }
        }
        let (threshold, most) = (config.nms_threshold, config.detections);
        let kept = batched_nms(&all.boxes, &all.scores, &all.classes, threshold, most);
        Detections {
            boxes: kept.iter().map(|&at| all.boxes[at]).collect(),
            scores: kept.iter().map(|&at| all.scores[at]).collect(),
            classes: kept.iter().map(|&at| all.classes[at]).collect(),
            masks: Vec::new(),
        }
    }

    fn add_masks(
        &self,
        maps: &[Tensor<4>],
        detections: &mut [Detections],
    ) -> Result<(), DenseError> {
        let Some(head) = &self.mask_head else { return Ok(()) };
        let classes: Vec<usize> =
            detections.iter().flat_map(|of| of.classes.iter().copied()).collect();
        if classes.is_empty() {
            return Ok(());
        }
        let x = self.of_boxes(maps, detections.iter().map(|of| &of.boxes[..]), MASK_BINS)?;
        let logits = head.forward(x, self.precision())?;
        let masks = numbers(sigmoid(of_classes(logits, &classes)));
        let mut masks = masks.chunks_exact(MASK_SIDE * MASK_SIDE);
        for of in detections {
            of.masks = masks.by_ref().take(of.boxes.len()).map(<[f32]>::to_vec).collect();
        }
        Ok(())
    }
}

impl Detections {
    /// The detections of an image that was resized from `to` to `from`, both `[height, width]`, in
    /// its own size; those without an inside there are dropped.
    ///
    /// # Source
    ///
    /// `detector_postprocess` of detectron2.
    #[must_use]
    pub fn resized(&self, from: [usize; 2], to: [usize; 2]) -> Found {
        let factor = |axis: usize| (to[axis] as f64 / from[axis].max(1) as f64) as f32;
        let factors = [factor(0), factor(1)];
        let mut found = Found::default();
        for (at, &edges) in self.boxes.iter().enumerate() {
            let edges = clip(scaled(edges, factors), to);
            if !is_nonempty(edges) {
                continue;
            }
            found.boxes.push(edges);
            found.scores.push(self.scores[at]);
            found.classes.push(self.classes[at]);
            if let Some(mask) = self.masks.get(at) {
                found.masks.push(paste(mask, MASK_SIDE, edges, to, IN_MASK));
            }
        }
        found
    }
}
