//! Drawing parts of an image: the crop, and the boxes of random erasing.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::{CropMode, EraseMode, Recipe};
use crate::transforms::{CropPlan, EraseBox, EraseFill};
use crate::{pixels::Region, rng};

/// Pixels added on each side before a crop of the target's size.
pub(super) const PADDING: usize = 4;

/// Attempts at a region that lies inside the image, and at a box that is smaller than it.
const ATTEMPTS: usize = 10;

impl Recipe {
    /// Draws the crop of a `source` (height, width) for a `target`.
    pub(super) fn draw_crop(
        &self,
        rng: &mut ChaCha8Rng,
        source: [usize; 2],
        target: [usize; 2],
    ) -> CropPlan {
        match self.crop_mode(target, Some(source)) {
            CropMode::None => CropPlan::Evaluation,
            CropMode::Pad => padded(rng, source, target),
            CropMode::Simple => simple(rng, source, target),
            CropMode::Resized | CropMode::Auto => {
                CropPlan::Resized { region: resized(rng, source, self.scale(), self.ratio()) }
            }
        }
    }
}

/// A number in `0..=last`.
fn up_to(rng: &mut ChaCha8Rng, last: usize) -> usize {
    let bound = u32::try_from(last + 1).expect("invariant: a side has fewer than 2^32 - 1 pixels");
    rng::below(rng, bound) as usize
}

/// Zero padding, then a crop at any place, rows drawn first.
///
/// An image that is still smaller than the target is padded on each side by as much again as is
/// missing.
///
/// # Source
/// torchvision's `RandomCrop(size, padding=4, pad_if_needed=True)`.
fn padded(rng: &mut ChaCha8Rng, source: [usize; 2], target: [usize; 2]) -> CropPlan {
    let padding =
        [0, 1].map(|axis| PADDING + target[axis].saturating_sub(source[axis] + 2 * PADDING));
    let [top, left] =
        [0, 1].map(|axis| up_to(rng, source[axis] + 2 * padding[axis] - target[axis]));
    CropPlan::Padded { padding, top, left }
}

/// The short side resized to the target's, reflected padding, then a crop at any place.
///
/// # Source
/// The original's `augment.py` with `--src`: torchvision's `Resize(size)` and `RandomCrop(size,
/// padding=4, padding_mode="reflect")`, DeiT III's "simple random crop".
fn simple(rng: &mut ChaCha8Rng, source: [usize; 2], target: [usize; 2]) -> CropPlan {
    let short = target[0].max(target[1]); // the original's targets are square
    let [height, width] = source;
    let resized = if height <= width {
        [short, (short * width / height).max(1)]
    } else {
        [(short * height / width).max(1), short]
    };
    let [top, left] = [0, 1].map(|axis| up_to(rng, resized[axis] + 2 * PADDING - target[axis]));
    CropPlan::Simple { resized, padding: PADDING, top, left }
}

/// A region of random area and proportions; after ten attempts the largest central one within the
/// bounds of the proportions.
///
/// # Source
/// Szegedy et al. 2014, "Going deeper with convolutions", §6, as
/// `RandomResizedCropAndInterpolation` of timm 0.4.12 has it: area uniform, proportions
/// log-uniform, sides rounded half to even. There a side may round to 0, which Pillow cannot
/// resize; here it is at least 1.
fn resized(rng: &mut ChaCha8Rng, source: [usize; 2], scale: [f64; 2], ratio: [f64; 2]) -> Region {
    let [rows, columns] = source;
    let area = (rows * columns) as f64;
    for _ in 0..ATTEMPTS {
        let part = rng::between(rng, scale) * area;
        let ratio = rng::log_between(rng, ratio);
        let width = side(part * ratio);
        let height = side(part / ratio);
        if width <= columns && height <= rows {
            let top = up_to(rng, rows - height);
            let left = up_to(rng, columns - width);
            return Region { top, left, height, width };
        }
    }
    let [narrow, wide] = ratio;
    let proportions = columns as f64 / rows as f64;
    let (height, width) = if proportions < narrow {
        ((columns as f64 / narrow).round_ties_even() as usize, columns)
    } else if proportions > wide {
        (rows, (rows as f64 * wide).round_ties_even() as usize)
    } else {
        (rows, columns)
    };
    // Rounding may pass the image's edge where the bound is close to its proportions.
    let (height, width) = (height.clamp(1, rows), width.clamp(1, columns));
    Region { top: (rows - height) / 2, left: (columns - width) / 2, height, width }
}

fn side(square: f64) -> usize {
    (square.sqrt().round_ties_even() as usize).max(1)
}

/// Area of a box over that of the image, times the number of boxes: smallest and largest.
const AREA: [f64; 2] = [0.02, 1.0 / 3.0];

/// Height over width of a box: smallest and largest.
const RATIO: [f64; 2] = [0.3, 1.0 / 0.3];

impl Recipe {
    /// Draws the boxes of an image of `size` (height, width).
    ///
    /// # Source
    /// Zhong et al. 2017, "Random erasing data augmentation", as `RandomErasing` of timm 0.4.12 has
    /// it: a box must be smaller than the image in both directions, and is left out after ten
    /// failed attempts.
    pub(super) fn draw_erase(&self, rng: &mut ChaCha8Rng, size: [usize; 2]) -> Vec<EraseBox> {
        if !rng::chance(rng, self.erase_prob) {
            return Vec::new();
        }
        let count = 1 + rng::below(rng, self.erase_count);
        (0..count)
            .filter_map(|_| {
                let region = draw_region(rng, size, count)?;
                Some(EraseBox { region, fill: self.draw_fill(rng) })
            })
            .collect()
    }

    fn draw_fill(&self, rng: &mut ChaCha8Rng) -> EraseFill {
        match self.erase_mode {
            EraseMode::Const => EraseFill::Constant,
            EraseMode::Rand => {
                EraseFill::Colour([(); 3].map(|()| rng::normal(rng, 0.0, 1.0) as f32))
            }
            EraseMode::Pixel => EraseFill::Pixels { seed: rng.next_u32() },
        }
    }
}

fn draw_region(rng: &mut ChaCha8Rng, [rows, columns]: [usize; 2], count: u32) -> Option<Region> {
    let area = (rows * columns) as f64;
    for _ in 0..ATTEMPTS {
        let part = rng::between(rng, AREA) * area / f64::from(count);
        let ratio = rng::log_between(rng, RATIO);
        let height = (part * ratio).sqrt().round_ties_even() as usize;
        let width = (part / ratio).sqrt().round_ties_even() as usize;
        if height < rows && width < columns {
            let top = up_to(rng, rows - height);
            let left = up_to(rng, columns - width);
            return (height > 0 && width > 0).then_some(Region { top, left, height, width });
        }
    }
    None
}
