//! A detector: features, proposals, the cascade, masks, losses, gradients, detections.

mod gradients;
mod variant;

use std::path::Path;

use burn::tensor::{Device, Tensor};
use vim_data::{Batch, Statistics};
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::matcher::Label;
use vim_dense::detection::{Detector, STRIDES, TrainingPass, Truths, detectron_key, groups};
use vim_model::NamedArrays;

use super::arrays::{Arrays, Comparison, Floats, damaged, unfit, weights};
use super::{EvalGoldenArgs, expect_shape, numbers};
use crate::error::Error;
use crate::task::classification::to_tensors;
use gradients::gradients;
pub(super) use variant::Description;
use variant::Optimizer;

/// Of a parameter's gradient.
const GRADIENTS: f64 = 2e-4;
/// Of a box, in pixels.
const PIXELS: f64 = 1e-3;
/// Of what is stored in f16.
const HALF: f64 = 1e-3;
/// The share of a final mask's pixels that may be off: those at a probability of a half.
const MASKS: f64 = 1e-4;

/// Compares every array with that of the detector that `text` describes.
pub(super) fn compare(
    args: &EvalGoldenArgs,
    variant: &Path,
    about: &Description,
    device: &Device,
) -> Result<Vec<Comparison>, Error> {
    let wrong = |what: String| Error::data(format!("variant {}: {what}", variant.display()));
    let (heads, backbone) = about.variant.configs().map_err(wrong)?;
    let device = if args.grads { device.clone().autodiff() } else { device.clone() };
    let model = heads.init(&backbone, about.variant.classes, &device, 0)?;
    let (model, _) = model.load(&weights(args)?).map_err(|mismatch| unfit(args, &mismatch))?;
    let mut golden = Golden {
        arrays: Arrays::open(args.arrays())?,
        path: args.arrays(),
        outputs: args.tol.unwrap_or(1e-5),
        about,
        found: Vec::new(),
    };
    let truths = golden.truths()?;
    let images = golden.batch(&device)?;
    golden.evaluated(&model, images.clone())?;
    let images = if args.grads { images.require_grad() } else { images };
    golden.trained(args, &model, &images, &truths)?;
    golden.optimized(&model)?;
    let extra = golden.arrays.unread();
    if !extra.is_empty() {
        return Err(golden.wrong(&format!("not expected of this model: {}", extra.join(", "))));
    }
    Ok(golden.found)
}

/// The reference arrays, and the comparisons so far.
struct Golden<'a> {
    arrays: Arrays,
    path: &'a Path,
    /// Tolerance of everything but gradients and boxes.
    outputs: f64,
    about: &'a Description,
    found: Vec<Comparison>,
}

/// What stays of the reference's numbers, and ours.
fn flat<const N: usize>(rows: &[[f32; N]]) -> Vec<f32> {
    rows.as_flattened().to_vec()
}

/// `[B, C, H, W]` of `[B, H, W, C]`.
fn first(map: Tensor<4>) -> Tensor<4> {
    map.permute([0, 3, 1, 2])
}

/// Whether nothing depends on the parameter at `path`, which the original deletes.
fn is_unused(path: &str) -> bool {
    path.starts_with("backbone.norm_f.")
}

impl Golden<'_> {
    fn wrong(&self, what: &str) -> Error {
        damaged(self.path, what)
    }

    /// Compares numbers with those of the array `name`.
    fn values(&mut self, name: &str, got: &[f32], tolerance: f64) -> Result<(), Error> {
        let expected = self.arrays.halves(name)?.values;
        expect_shape(self.path, name, &[expected.len()], &[got.len()])?;
        self.found.push(Comparison::new(name, got, &expected, tolerance));
        Ok(())
    }

    fn tensor<const D: usize>(
        &mut self,
        name: &str,
        got: Tensor<D>,
        tolerance: f64,
    ) -> Result<(), Error> {
        let expected = self.arrays.floats(name)?;
        expect_shape(self.path, name, &expected.shape, &got.dims())?;
        self.found.push(Comparison::new(name, &numbers(got), &expected.values, tolerance));
        Ok(())
    }

    /// Compares boxes: the tolerance is in pixels.
    fn boxes(&mut self, name: &str, got: &[[f32; 4]]) -> Result<(), Error> {
        let expected = self.arrays.floats(name)?;
        expect_shape(self.path, name, &expected.shape, &[got.len(), 4])?;
        let largest = expected.values.iter().fold(1.0_f32, |max, x| max.max(x.abs()));
        let tolerance = PIXELS / f64::from(largest);
        self.found.push(Comparison::new(name, &flat(got), &expected.values, tolerance));
        Ok(())
    }

    fn whole(&mut self, name: &str, got: impl Iterator<Item = usize>) -> Result<(), Error> {
        let expected: Vec<f32> = self.arrays.integers(name)?.iter().map(|&x| x as f32).collect();
        let got: Vec<f32> = got.map(|x| x as f32).collect();
        expect_shape(self.path, name, &[expected.len()], &[got.len()])?;
        self.found.push(Comparison::new(name, &got, &expected, 0.0));
        Ok(())
    }

    fn truths(&mut self) -> Result<Vec<Truths>, Error> {
        let mut truths = Vec::new();
        for (image, polygons) in self.about.polygons.iter().enumerate() {
            let Floats { values, .. } = self.arrays.floats(&format!("gt_boxes{image}"))?;
            let classes = self.arrays.integers(&format!("gt_classes{image}"))?;
            truths.push(Truths {
                boxes: values.as_chunks().0.to_vec(),
                classes: classes.into_iter().map(|class| class as usize).collect(),
                masks: polygons.iter().cloned().map(InstanceMask::Polygons).collect(),
            });
        }
        Ok(truths)
    }

    /// The images, normalized and padded, and compared.
    fn batch(&mut self, device: &Device) -> Result<Tensor<4>, Error> {
        let (side, sizes) = (self.about.variant.img, &self.about.variant.sizes);
        let mut pixels = vec![0; sizes.len() * side * side * 3];
        let mut erased = Vec::new();
        for (image, (&size, to)) in sizes.iter().zip(pixels.chunks_mut(side * side * 3)).enumerate()
        {
            let (values, shape) = self.arrays.u8s(&format!("image{image}"))?;
            let [height, width] = size;
            expect_shape(self.path, &format!("image{image}"), &shape, &[3, height, width])?;
            for (at, &value) in values.iter().enumerate() {
                let (channel, row, column) =
                    (at / (height * width), at / width % height, at % width);
                to[(row * side + column) * 3 + channel] = value;
            }
            let padding = vim_data::dense_ops::padding(size, [side; 2]);
            erased.extend(padding.into_iter().map(|one| (image, one)));
        }
        let mut batch = Batch::plain(pixels, vec![0; sizes.len()], [side; 2]);
        batch.erased = erased;
        let (images, _) = to_tensors(&batch, Statistics::IMAGENET, device)?;
        let tolerance = self.outputs;
        self.tensor("batch", images.clone(), tolerance)?;
        Ok(images)
    }

    /// Everything in evaluation.
    fn evaluated(&mut self, model: &Detector, images: Tensor<4>) -> Result<(), Error> {
        let sizes = &self.about.variant.sizes;
        let feature = model.feature(images, None)?;
        let pass = model.evaluation_pass(&feature, sizes)?;
        let each = pass.proposals.iter().zip(&pass.detections).enumerate();
        for (image, (proposals, detections)) in each {
            let tolerance = self.outputs;
            self.boxes(&format!("eval.proposals{image}"), &proposals.boxes)?;
            self.values(&format!("eval.proposal_logits{image}"), &proposals.scores, tolerance)?;
            self.boxes(&format!("eval.boxes{image}"), &detections.boxes)?;
            self.values(&format!("eval.scores{image}"), &detections.scores, tolerance)?;
            let classes = detections.classes.iter().copied();
            self.whole(&format!("eval.classes{image}"), classes)?;
            let masks = detections.masks.concat();
            self.values(&format!("eval.mask_probabilities{image}"), &masks, HALF)?;
            let Some(to) = self.about.r#final.get(image) else {
                return Err(self.wrong("`final` has fewer images than there are"));
            };
            let found = detections.resized(sizes[image], [to.height, to.width]);
            self.boxes(&format!("eval.final_boxes{image}"), &found.boxes)?;
            self.values(&format!("eval.final_scores{image}"), &found.scores, tolerance)?;
            let name = format!("eval.final_masks{image}");
            let (packed, _) = self.arrays.u8s(&name)?;
            let pixels = found.masks.concat();
            expect_shape(self.path, &name, &[packed.len()], &[pixels.len().div_ceil(8)])?;
            let is_in = |at: usize| packed[at / 8] >> (7 - at % 8) & 1 == 1;
            let same = pixels.iter().enumerate().filter(|(at, own)| is_in(*at) == **own).count();
            let (same, all) = (same as f32, pixels.len() as f32);
            self.found.push(Comparison::new(&name, &[same], &[all], MASKS));
        }
        Ok(())
    }

    /// A training pass, its losses, and with `--grads` the gradients.
    fn trained(
        &mut self,
        args: &EvalGoldenArgs,
        model: &Detector,
        images: &Tensor<4>,
        truths: &[Truths],
    ) -> Result<(), Error> {
        let tolerance = self.outputs;
        let feature = model.feature(images.clone(), None)?;
        self.tensor("train.last_feat", first(feature.clone()), tolerance)?;
        // A leaf of its own, so that its gradient is known.
        let leaf = if args.grads {
            Tensor::from_inner(feature.clone().inner()).require_grad()
        } else {
            feature.clone()
        };
        let pass = model.training_pass(&leaf, &self.about.variant.sizes, truths, None)?;
        self.passed(&pass)?;
        let total = pass.losses.total();
        let mut losses = pass.losses.named();
        losses.push(("loss", total.clone()));
        for (name, loss) in losses {
            let expected =
                if name == "loss" { Some(&self.about.loss) } else { self.about.losses.get(name) };
            let Some(&expected) = expected else {
                return Err(self.wrong(&format!("the variant has no `{name}`")));
            };
            self.found.push(Comparison::new(name, &numbers(loss), &[expected as f32], tolerance));
        }
        if !args.grads {
            for name in self.arrays.unread() {
                if name.starts_with("g.") || name.starts_with("d_") {
                    self.arrays.pass_over(&name);
                }
            }
            return Ok(());
        }
        let of_heads = total.backward();
        let gradient = leaf.grad(&of_heads).unwrap_or_else(|| leaf.clone().inner().zeros_like());
        let through = (feature * Tensor::from_inner(gradient.clone())).sum().backward();
        let tolerance = args.tol_dx.unwrap_or(GRADIENTS);
        self.tensor("d_last_feat", first(gradient), tolerance)?;
        let of_images =
            images.grad(&through).unwrap_or_else(|| images.clone().inner().zeros_like());
        self.tensor("d_batch", of_images, tolerance)?;
        let tolerance = args.tol_grad.unwrap_or(GRADIENTS);
        for (path, got) in gradients(model, &of_heads, &through) {
            let name = format!("g.{}", detectron_key(&path));
            if !self.arrays.has(&name) && is_unused(&path) {
                continue;
            }
            let expected = self.arrays.floats(&name)?;
            expect_shape(self.path, &name, &expected.shape, &got.shape)?;
            self.found.push(Comparison::new(&name, &got.values, &expected.values, tolerance));
        }
        Ok(())
    }

    /// Learning rates and weight decay of the parameters.
    fn optimized(&mut self, model: &Detector) -> Result<(), Error> {
        let Optimizer { base_lr, weight_decay, lr_decay_rate, parameters } = &self.about.optimizer;
        let depth = model.backbone_config().depth;
        let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let own = NamedArrays::of(model);
        for path in own.iter().map(|(path, _)| path).filter(|path| !is_unused(path)) {
            let Some(&[rate, decay]) = parameters.get(&detectron_key(path)) else {
                return Err(self.wrong(&format!("the optimizer has no {}", detectron_key(path))));
            };
            let above = groups::layers_above(path, depth) as i32;
            ours[0].push((base_lr * lr_decay_rate.powi(above)) as f32);
            ours[1].push(if groups::decays(path) { *weight_decay as f32 } else { 0.0 });
            theirs[0].push(rate as f32);
            theirs[1].push(decay as f32);
        }
        let names = ["learning rates", "weight decay"];
        for (name, (ours, theirs)) in names.into_iter().zip(ours.iter().zip(&theirs)) {
            self.found.push(Comparison::new(name, ours, theirs, self.outputs));
        }
        Ok(())
    }

    /// Everything on the way to the losses.
    fn passed(&mut self, pass: &TrainingPass) -> Result<(), Error> {
        let tolerance = self.outputs;
        let mut before = 0;
        for (level, map) in pass.maps.iter().enumerate() {
            self.tensor(&format!("train.p{}", level + 2), first(map.clone()), tolerance)?;
            let [batch, height, width, _] = map.dims();
            let count = 3 * height * width;
            let logits = pass.anchors.logits.clone().narrow(1, before, count);
            let logits = logits.reshape([batch, height, width, 3]);
            self.tensor(&format!("train.objectness{level}"), first(logits), tolerance)?;
            let deltas = pass.anchors.deltas.clone().narrow(1, before, count);
            let deltas = deltas.reshape([batch, height, width, 12]);
            self.tensor(&format!("train.anchor_deltas{level}"), first(deltas), tolerance)?;
            before += count;
        }
        if pass.maps.len() != STRIDES.len() {
            return Err(Error::internal("a pyramid without one of its maps"));
        }
        for (image, targets) in pass.anchor_targets.iter().enumerate() {
            let name = format!("train.anchor_labels{image}");
            let expected = self.arrays.signed_bytes(&name)?;
            let number = |label: Label| match label {
                Label::Ignored => -1.0,
                Label::Negative => 0.0,
                Label::Positive => 1.0,
            };
            let got: Vec<f32> = targets.labels(before).into_iter().map(number).collect();
            expect_shape(self.path, &name, &[expected.len()], &[got.len()])?;
            self.found.push(Comparison::new(&name, &got, &expected, 0.0));
            let positives = targets.sampled.positives.iter().copied();
            self.whole(&format!("train.positive_anchors{image}"), positives)?;
            self.boxes(&format!("train.matched_boxes{image}"), &targets.boxes)?;
        }
        for (image, proposals) in pass.proposals.iter().enumerate() {
            self.boxes(&format!("train.proposals{image}"), &proposals.boxes)?;
            let name = format!("train.proposal_logits{image}");
            self.values(&name, &proposals.scores, tolerance)?;
        }
        for (stage, of) in pass.stages.iter().enumerate() {
            for (image, targets) in of.targets.iter().enumerate() {
                let name = |what: &str| format!("train.stage{stage}.{what}{image}");
                self.boxes(&name("boxes"), &targets.boxes)?;
                self.whole(&name("classes"), targets.classes.iter().copied())?;
                // Those of background mean nothing.
                let theirs = self.arrays.floats(&name("gt_boxes"))?;
                let kept = |rows: &[[f32; 4]]| -> Vec<f32> {
                    let rows = rows.iter().zip(&targets.classes);
                    let rows = rows.filter(|(_, class)| **class < self.about.variant.classes);
                    rows.flat_map(|(row, _)| *row).collect()
                };
                let (ours, theirs) = (kept(&targets.to), kept(theirs.values.as_chunks().0));
                self.found.push(Comparison::new(&name("gt_boxes"), &ours, &theirs, 0.0));
            }
            if let Some(scores) = &of.scores {
                self.tensor(
                    &format!("train.stage{stage}.scores"),
                    scores.logits.clone(),
                    tolerance,
                )?;
                self.tensor(
                    &format!("train.stage{stage}.deltas"),
                    scores.deltas.clone(),
                    tolerance,
                )?;
            }
        }
        self.whole("train.mask_classes", pass.masks.classes.iter().copied())?;
        let expected = self.arrays.flags("train.mask_targets")?;
        let wide = |flags: &[bool]| -> Vec<f32> {
            flags.iter().map(|&is_in| f32::from(u8::from(is_in))).collect()
        };
        let got = pass.masks.targets.concat();
        expect_shape(self.path, "train.mask_targets", &[expected.len()], &[got.len()])?;
        let name = "train.mask_targets";
        self.found.push(Comparison::new(name, &wide(&got), &wide(&expected), 0.0));
        if let Some(logits) = &pass.masks.logits {
            self.tensor("train.mask_logits", first(logits.clone()), tolerance)?;
        }
        Ok(())
    }
}
