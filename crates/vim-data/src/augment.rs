//! What is done to a training image: drawn first, applied second.

use crate::{config::Augment, rng};

/// Black pixels added on every side before the crop.
const PADDING: usize = 4;

/// The augmentation of one image in one epoch.
///
/// # Source
/// `RandomCrop(32, padding=4)` and `RandomHorizontalFlip(0.5)` of torchvision, in that order: zero
/// padding, then the row and the column of the crop, each uniform in 0..=8. The random numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AugmentPlan {
    /// First row of the crop in the padded image, 0..=8; 4 is the image itself.
    pub row: usize,
    /// First column of the crop in the padded image, 0..=8; 4 is the image itself.
    pub column: usize,
    /// Whether the crop is mirrored left to right.
    pub flip: bool,
}

impl AugmentPlan {
    /// Changes nothing.
    pub const IDENTITY: Self = Self { row: PADDING, column: PADDING, flip: false };

    /// Draws the plan for one image: a pure function of the arguments.
    #[must_use]
    pub fn draw(augment: Augment, seed: u64, epoch: u64, index: usize) -> Self {
        match augment {
            Augment::None => Self::IDENTITY,
            Augment::Cifar => {
                let mut rng = rng::keyed("vim-data augment v1", &[seed, epoch, index as u64]);
                let offsets = 2 * PADDING as u32 + 1;
                Self {
                    row: rng::below(&mut rng, offsets) as usize,
                    column: rng::below(&mut rng, offsets) as usize,
                    flip: rng::below(&mut rng, 2) == 1,
                }
            }
        }
    }

    /// Writes the augmented `source` into `target`.
    ///
    /// # Shapes
    /// Both `[size, size, 3]`.
    ///
    /// # Panics
    /// If a length is not `3 · size²`.
    pub fn apply(&self, source: &[u8], size: usize, target: &mut [u8]) {
        assert_eq!(source.len(), 3 * size * size, "the source is not [{size}, {size}, 3]");
        assert_eq!(target.len(), source.len(), "the target is not the source's size");
        target.fill(0);
        // Where source and crop overlap; everything else stays black.
        let (top, bottom) = overlap(self.row, size);
        let (left, right) = overlap(self.column, size);
        if left == right {
            return; // an image narrower than the padding, cropped past its edge
        }
        for y in top..bottom {
            let from = 3 * ((y + self.row - PADDING) * size + left + self.column - PADDING);
            let line = &source[from..from + 3 * (right - left)];
            let row = &mut target[3 * y * size..3 * (y + 1) * size];
            if self.flip {
                for (pixel, x) in line.chunks_exact(3).zip(left..right) {
                    let mirrored = 3 * (size - 1 - x);
                    row[mirrored..mirrored + 3].copy_from_slice(pixel);
                }
            } else {
                row[3 * left..3 * right].copy_from_slice(line);
            }
        }
    }
}

/// The rows (or columns) of a crop starting at `offset` that lie inside the unpadded image.
fn overlap(offset: usize, size: usize) -> (usize, usize) {
    let start = PADDING.saturating_sub(offset).min(size);
    let end = (size + PADDING).saturating_sub(offset).min(size).max(start);
    (start, end)
}
