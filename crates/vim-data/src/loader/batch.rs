//! A batch, as the device receives it.

use super::buffer::Slab;
use crate::transforms::recipe::{EraseBox, MixPlan};

/// Images and labels that are trained or evaluated on together.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Pixels, `[B, H, W, 3]`, 0..=255: cropped and augmented, not yet erased or mixed.
    pub images: Slab,
    /// Classes, `[B]`.
    pub labels: Vec<u32>,
    /// Indices in the dataset, `[B]`.
    pub indices: Vec<usize>,
    /// `H` in pixels.
    pub height: usize,
    /// `W` in pixels.
    pub width: usize,
    /// Boxes to erase once the pixels are normalized, each with the place of its image in the batch.
    pub erased: Vec<(usize, EraseBox)>,
    /// How each image is mixed with its partner, last; empty if none is.
    pub mixed: Vec<MixPlan>,
    /// Images that count: the first ones. What follows fills the batch up to its size.
    pub count: usize,
    /// Places among these whose image could not be read: black, and to be counted as wrong.
    pub unread: Vec<usize>,
}

impl Batch {
    /// Images as they are: nothing to erase or to mix, and all of them count.
    #[must_use]
    pub fn plain(images: Vec<u8>, labels: Vec<u32>, [height, width]: [usize; 2]) -> Self {
        let count = labels.len();
        Self {
            images: Slab::from(images),
            indices: (0..count).collect(),
            labels,
            height,
            width,
            erased: Vec::new(),
            mixed: Vec::new(),
            count,
            unread: Vec::new(),
        }
    }

    /// Images of the batch, with those that only fill it up: `B`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images; a loader never yields such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}
