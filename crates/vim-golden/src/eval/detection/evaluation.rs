//! The detections in images, in f32.

use burn::tensor::Tensor;
use vim_dense::detection::Detector;
use vim_engine::Error;

use super::super::arrays::Comparison;
use super::super::expect_shape;
use super::Golden;

/// Of what is stored in f16.
const HALF: f64 = 1e-3;
/// The share of a final mask's pixels that may be off: those at a probability of a half.
const MASKS: f64 = 1e-4;

impl Golden<'_> {
    /// Everything in evaluation.
    pub(super) fn evaluated(&mut self, model: &Detector, images: Tensor<4>) -> Result<(), Error> {
        let sizes = &self.beside.sizes.clone();
        let feature = model.feature(images, None)?;
        let pass = model.evaluation_pass(&feature, sizes)?;
        let tolerance = self.bands.band("eval.scores");
        let each = pass.proposals.iter().zip(&pass.detections).enumerate();
        for (image, (proposals, detections)) in each {
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
}
