//! Transforms from a stored image to one of the model's size: plans, drawn by `recipe`, are applied
//! to pixels here.

pub mod ops;
pub(crate) mod recipe;
pub(crate) mod resize;

use crate::pixels::{Pixels, Region};
use crate::statistics::Statistics;
use ops::Scratch;
use recipe::{CropPlan, Recipe, SamplePlan};
use resize::Resizer;

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
}

/// Default share of the resized image's side that the central crop keeps.
///
/// # Source
/// The original's `--eval-crop-ratio`.
pub const EVAL_CROP: f64 = 0.875;
/// Images up to this side are not cropped, as in the original for CIFAR.
pub(crate) const SMALL: usize = 32;

/// What an image is resized to cover before its middle of `size` is cut out.
pub(crate) fn covered(size: [usize; 2], crop: f64) -> [usize; 2] {
    let whole = size[0].max(size[1]) <= SMALL;
    size.map(|side| if whole { side } else { (side as f64 / crop) as usize })
}

/// Resizes an image to just cover a size, and cuts out its middle. Make one per thread: it keeps
/// buffers.
///
/// # Source
/// The original's `build_transform`: `Resize(int(size / crop))` by the bicubic filter, then
/// `CenterCrop(size)`. There the size is a square; here it may be any rectangle.
#[derive(Debug)]
pub struct EvalTransform {
    crop: f64,
    resizer: Resizer,
}

impl Default for EvalTransform {
    fn default() -> Self {
        Self::new(EVAL_CROP)
    }
}

impl EvalTransform {
    /// Keeps `crop` of the resized side, above 0 and at most 1. Sizes up to 32 are kept whole.
    ///
    /// # Panics
    /// If `crop` is out of range.
    pub fn new(crop: f64) -> Self {
        assert!(crop > 0.0 && crop <= 1.0, "a crop of {crop} is not a share");
        Self { crop, resizer: Resizer::new() }
    }

    /// Transforms `source` to `size`, `[height, width]`, into `into`, `[height, width, 3]`.
    ///
    /// # Panics
    /// If `source` or `size` has no pixels, or `into` is not of `size`.
    pub fn apply(&mut self, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        let resized = self.resized([source.height, source.width], size);
        // Rounds half to even, as Python's `round`.
        let corner = |axis: usize| ((resized[axis] - size[axis]) as f64 / 2.0).round_ties_even();
        let (top, left) = (corner(0) as usize, corner(1) as usize);
        let window = Region { top, left, height: size[0], width: size[1] };
        self.resizer.resize_window(source, source.region(), resized, window, into);
    }

    /// The size that covers `size / crop` in both directions and keeps the proportions of `source`;
    /// the longer side is rounded down.
    fn resized(&self, source: [usize; 2], size: [usize; 2]) -> [usize; 2] {
        let covered = covered(size, self.crop);
        let scaled = |length: usize, by: usize, over: usize| {
            let scaled = length as u128 * by as u128 / over.max(1) as u128;
            usize::try_from(scaled).unwrap_or(usize::MAX)
        };
        let is_wider =
            source[1] as u128 * covered[0] as u128 >= source[0] as u128 * covered[1] as u128;
        if is_wider {
            [covered[0], scaled(covered[0], source[1], source[0])]
        } else {
            [scaled(covered[1], source[0], source[1]), covered[1]]
        }
    }
}
