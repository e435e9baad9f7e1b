//! A training pass: everything on the way to the losses, the losses, the gradients.

use burn::tensor::Tensor;
use vim_dense::detection::box_head::OVERLAPS;
use vim_dense::detection::boxes::Edges;
use vim_dense::detection::matcher::Label;
use vim_dense::detection::{Detector, STRIDES, TrainingPass, Truths, detectron_key};
use vim_engine::Error;

use super::super::arrays::{Comparison, Floats};
use super::super::gradients::by_path;
use super::super::{EvalGoldenArgs, expect_shape, numbers};
use super::Golden;
use super::bands::ALONG;

/// `[B, C, H, W]` of `[B, H, W, C]`.
fn first(map: Tensor<4>) -> Tensor<4> {
    map.permute([0, 3, 1, 2])
}

/// The numbers of `x`, and its shape.
fn of(x: Tensor<4>) -> Floats {
    Floats { shape: x.dims().to_vec(), values: numbers(x) }
}

impl Golden<'_> {
    /// A training pass, its losses, and with `--grads` the gradients.
    pub(super) fn trained(
        &mut self,
        args: &EvalGoldenArgs,
        model: &Detector,
        images: &Tensor<4>,
        truths: &[Truths],
    ) -> Result<(), Error> {
        let feature = model.feature(images.clone(), None)?;
        self.tensor("train.last_feat", first(feature.clone()))?;
        // A leaf of its own, so that its gradient is known.
        let leaf = if args.grads {
            Tensor::from_inner(feature.clone().inner()).require_grad()
        } else {
            feature.clone()
        };
        let sizes = &self.beside.sizes.clone();
        let pass = if self.bands.is_exact() {
            model.training_pass(&leaf, sizes, truths, None)?
        } else {
            let boxes = self.boxes_of_stages(sizes.len())?;
            model.training_pass_of_boxes(&leaf, sizes, truths, None, &boxes)?
        };
        self.passed(&pass)?;
        let total = pass.losses.total();
        let mut losses = pass.losses.named();
        losses.push(("loss", total.clone()));
        for (name, loss) in losses {
            let (whole, parts) = (self.about.loss.as_ref(), &self.about.losses);
            let expected = if name == "loss" { whole } else { parts.get(name) };
            let Some(&expected) = expected else {
                return Err(self.wrong(&format!("the variant has no `{name}`")));
            };
            let band = self.bands.band(name);
            self.found.push(Comparison::new(name, &numbers(loss), &[expected as f32], band));
        }
        if !args.grads {
            self.pass_over(&["g.", "d_"]);
            return Ok(());
        }
        let of_heads = total.backward();
        let gradient = leaf.grad(&of_heads).unwrap_or_else(|| leaf.clone().inner().zeros_like());
        let through = (feature * Tensor::from_inner(gradient.clone())).sum().backward();
        self.gradient("d_last_feat", &of(first(gradient)))?;
        let of_images =
            images.grad(&through).unwrap_or_else(|| images.clone().inner().zeros_like());
        self.gradient("d_batch", &of(of_images))?;
        // Of the backbone through its last feature, of all else from the loss.
        let of =
            |path: &str| Some(if path.starts_with("backbone.") { &through } else { &of_heads });
        for (path, got) in by_path(model, &of) {
            let name = format!("g.{}", detectron_key(&path));
            if !self.arrays.has(&name) && !model.uses(&path) {
                continue;
            }
            self.gradient(&name, &got)?;
        }
        Ok(())
    }

    /// Compares a gradient: in bf16 its part along the reference's too, which is 1 where it is the
    /// reference's but for what cancels, and 0 where there is none.
    fn gradient(&mut self, name: &str, got: &Floats) -> Result<(), Error> {
        let expected = self.arrays.floats(name)?;
        expect_shape(self.path, name, &expected.shape, &got.shape)?;
        let band = self.bands.band(name);
        self.found.push(Comparison::new(name, &got.values, &expected.values, band));
        if self.bands.is_exact() {
            return Ok(());
        }
        let dot = |one: &[f32]| -> f64 {
            one.iter().zip(&expected.values).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let of_reference = dot(&expected.values);
        if of_reference > 0.0 {
            let (name, part) = (format!("{ALONG}{name}"), dot(&got.values) / of_reference);
            self.found.push(Comparison::new(&name, &[part as f32], &[1.0], self.bands.band(&name)));
        }
        Ok(())
    }

    /// Of each stage of the cascade the reference's boxes of each image.
    fn boxes_of_stages(&mut self, images: usize) -> Result<Vec<Vec<Vec<Edges>>>, Error> {
        let mut stages = vec![Vec::with_capacity(images); OVERLAPS.len()];
        for (stage, of) in stages.iter_mut().enumerate() {
            for image in 0..images {
                let name = format!("train.stage{stage}.boxes{image}");
                let Floats { shape, values } = self.arrays.floats(&name)?;
                expect_shape(self.path, &name, &shape, &[values.len() / 4, 4])?;
                of.push(values.as_chunks().0.to_vec());
            }
        }
        Ok(stages)
    }

    /// Everything on the way to the losses.
    fn passed(&mut self, pass: &TrainingPass) -> Result<(), Error> {
        let mut before = 0;
        for (level, map) in pass.maps.iter().enumerate() {
            self.tensor(&format!("train.p{}", level + 2), first(map.clone()))?;
            let [batch, height, width, _] = map.dims();
            let count = 3 * height * width;
            let logits = pass.anchors.logits.clone().narrow(1, before, count);
            let logits = logits.reshape([batch, height, width, 3]);
            self.tensor(&format!("train.objectness{level}"), first(logits))?;
            let deltas = pass.anchors.deltas.clone().narrow(1, before, count);
            let deltas = deltas.reshape([batch, height, width, 12]);
            self.tensor(&format!("train.anchor_deltas{level}"), first(deltas))?;
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
        let proposals = if self.bands.is_exact() { &pass.proposals[..] } else { &[] };
        for (image, proposals) in proposals.iter().enumerate() {
            self.boxes(&format!("train.proposals{image}"), &proposals.boxes)?;
            let name = format!("train.proposal_logits{image}");
            self.values(&name, &proposals.scores, self.bands.band(&name))?;
        }
        for (stage, of) in pass.stages.iter().enumerate() {
            for (image, targets) in of.targets.iter().enumerate() {
                let name = |what: &str| format!("train.stage{stage}.{what}{image}");
                if self.bands.is_exact() {
                    self.boxes(&name("boxes"), &targets.boxes)?;
                }
                self.whole(&name("classes"), targets.classes.iter().copied())?;
                // Those of background mean nothing.
                let theirs = self.arrays.floats(&name("gt_boxes"))?;
                let kept = |rows: &[[f32; 4]]| -> Vec<f32> {
                    let rows = rows.iter().zip(&targets.classes);
                    let rows = rows.filter(|(_, class)| **class < self.beside.classes);
                    rows.flat_map(|(row, _)| *row).collect()
                };
                let (ours, theirs) = (kept(&targets.to), kept(theirs.values.as_chunks().0));
                self.found.push(Comparison::new(&name("gt_boxes"), &ours, &theirs, 0.0));
            }
            if let Some(scores) = &of.scores {
                self.tensor(&format!("train.stage{stage}.scores"), scores.logits.clone())?;
                self.tensor(&format!("train.stage{stage}.deltas"), scores.deltas.clone())?;
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
            self.tensor("train.mask_logits", first(logits.clone()))?;
        }
        Ok(())
    }
}
