//! Application of a plan to pixels.

use super::ops::{self, Scratch};
use super::recipe::{CropPlan, Recipe, SamplePlan};
use super::{eval_transform::EvalTransform, resize::Resizer};
use crate::pixels::{Pixels, Region};
use crate::statistics::Statistics;

/// Applies plans to images. Make one per thread: it keeps buffers.
#[derive(Debug)]
pub struct Transform {
    resizer: Resizer,
    evaluation: EvalTransform,
    scratch: Scratch,
    resized: Pixels,
    /// The colour of pixels that an operation moves in from outside the image.
    fill: [u8; 3],
}

impl Transform {
    /// `eval_crop_ratio` is for plans whose crop is that of evaluation.
    pub fn new(eval_crop_ratio: f64) -> Self {
        Self {
            resizer: Resizer::new(),
            evaluation: EvalTransform::new(eval_crop_ratio),
            scratch: Scratch::default(),
            resized: Pixels::default(),
            fill: Recipe::fill(&Statistics::IMAGENET),
        }
    }

    /// Applies `plan` to `source`, writing `[height, width, 3]` of `size` to `into`. The plan's
    /// boxes are left out: they are erased after normalisation.
    ///
    /// # Panics
    /// If the plan was drawn for another size of the source or the target.
    pub fn apply(&mut self, plan: &SamplePlan, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        self.crop(plan, source, source.region(), size, into);
        self.alter(plan, size, into);
    }

    /// The first half: the crop. `source` is the region `part` of the image, which contains all
    /// that the crop needs.
    pub(crate) fn crop(
        &mut self,
        plan: &SamplePlan,
        source: &Pixels,
        part: Region,
        size: [usize; 2],
        into: &mut [u8],
    ) {
        match plan.crop {
            CropPlan::Evaluation => self.evaluation.apply(source, size, into),
            CropPlan::Padded { padding, top, left } => {
                ops::pad_crop(source, padding, [top, left], size, into);
            }
            CropPlan::Resized { region } => {
                let (top, left) = (region.top - part.top, region.left - part.left);
                self.resizer.resize(source, Region { top, left, ..region }, size, into);
            }
            CropPlan::Simple { resized, padding, top, left } => {
                self.resized.reshape(resized);
                self.resizer.resize(source, source.region(), resized, &mut self.resized.data);
                ops::reflect_crop(&self.resized, padding, [top, left], size, into);
            }
        }
    }

    /// The second half: the flip and the operations.
    pub(crate) fn alter(&mut self, plan: &SamplePlan, size: [usize; 2], image: &mut [u8]) {
        if plan.flip {
            ops::flip(image, size);
        }
        for op in &plan.ops {
            op.apply(image, size, self.fill, &mut self.scratch);
        }
    }

    /// Applies the evaluation transform.
    pub(crate) fn evaluate(&mut self, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        self.evaluation.apply(source, size, into);
    }
}
