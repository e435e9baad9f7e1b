//! Drawing the boxes of random erasing.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use crate::pixels::Region;
use crate::rng;

use super::plan::{EraseBox, EraseFill};
use super::section::{EraseMode, Recipe};

/// Area of a box over that of the image, times the number of boxes: smallest and largest.
const AREA: [f64; 2] = [0.02, 1.0 / 3.0];

/// Height over width of a box: smallest and largest.
const RATIO: [f64; 2] = [0.3, 1.0 / 0.3];

/// Attempts at a box that is smaller than the image.
const ATTEMPTS: usize = 10;

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
            let top = rng::below(rng, (rows - height + 1) as u32) as usize;
            let left = rng::below(rng, (columns - width + 1) as u32) as usize;
            return (height > 0 && width > 0).then_some(Region { top, left, height, width });
        }
    }
    None
}
