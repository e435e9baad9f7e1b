//! The transform of evaluation.

use super::resize::Resizer;
use crate::pixels::{Pixels, Region};

/// Default share of the resized image's side that the central crop keeps.
///
/// # Source
/// The original's `--eval-crop-ratio`.
pub const EVAL_CROP: f64 = 0.875;
/// Images up to this side are not cropped, as in the original for CIFAR.
pub(crate) const SMALL: usize = 32;

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
        let whole = size[0].max(size[1]) <= SMALL;
        let covered =
            size.map(|side| if whole { side } else { (side as f64 / self.crop) as usize });
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
