//! A plan carried out on pixels.

use super::evaluation::Evaluation;
use super::ops;
use super::ops::Scratch;
use super::recipe::{CropPlan, Recipe, SamplePlan};
use super::resize::Resizer;
use crate::pixels::{Pixels, Region};
use crate::statistics::Statistics;

/// Makes training images by plans. Make one per thread: it keeps buffers.
#[derive(Debug)]
pub struct Applier {
    resizer: Resizer,
    evaluation: Evaluation,
    scratch: Scratch,
    resized: Pixels,
    /// What operations show of the outside of an image.
    fill: [u8; 3],
}

impl Applier {
    /// `eval_crop_ratio` is the recipe's: a crop that is not at random is evaluation's.
    #[must_use]
    pub fn new(eval_crop_ratio: f64) -> Self {
        Self {
            resizer: Resizer::new(),
            evaluation: Evaluation::new(eval_crop_ratio),
            scratch: Scratch::default(),
            resized: Pixels::default(),
            fill: Recipe::fill(&Statistics::IMAGENET),
        }
    }

    /// Makes of `source` what `plan` says, but for its boxes, which are erased after normalisation: into `into`,
    /// `[height, width, 3]` of `size`.
    ///
    /// # Panics
    /// If the plan was drawn for another size of the source or the target.
    pub fn apply(&mut self, plan: &SamplePlan, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        self.crop(plan, source, source.region(), size, into);
        self.alter(plan, size, into);
    }

    /// The first half: the crop. `source` is the `part` of the image that it needs, or more.
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

    /// What evaluation sees of `source`.
    pub(crate) fn evaluate(&mut self, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        self.evaluation.apply(source, size, into);
    }
}
