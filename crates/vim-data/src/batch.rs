//! A batch, as the device receives it.

/// Images and labels that are trained or evaluated on together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Pixels, `[B, H, W, 3]`, 0..=255.
    pub images: Vec<u8>,
    /// Classes, `[B]`.
    pub labels: Vec<u32>,
    /// Indices in the dataset, `[B]`.
    pub indices: Vec<usize>,
    /// `H` in pixels.
    pub height: usize,
    /// `W` in pixels.
    pub width: usize,
}

impl Batch {
    /// Number of images, `B`.
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
