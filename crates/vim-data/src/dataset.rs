//! What a dataset can be asked.

use crate::{error::DataError, statistics::Statistics};

/// Square RGB images with one label each, readable from any thread in any order.
///
/// An index past the end is a defect of the caller: the methods that take one panic on it.
pub trait Dataset: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// Whether there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Height and width of every image, in pixels.
    fn image_size(&self) -> usize;

    /// Name of each class, by label.
    fn class_names(&self) -> &'static [&'static str];

    /// Number of classes.
    fn num_classes(&self) -> usize {
        self.class_names().len()
    }

    /// The class of one image, `0..num_classes`.
    fn label(&self, index: usize) -> u32;

    /// Writes one image into `pixels`.
    ///
    /// # Shapes
    /// `pixels` is `[H, W, 3]`, `H = W = image_size`.
    ///
    /// # Errors
    /// If the image cannot be read or decoded.
    fn read(&self, index: usize, pixels: &mut [u8]) -> Result<(), DataError>;

    /// One image, `[H, W, 3]`.
    ///
    /// # Errors
    /// As for [`Dataset::read`].
    fn image(&self, index: usize) -> Result<Vec<u8>, DataError> {
        let mut pixels = vec![0; 3 * self.image_size() * self.image_size()];
        self.read(index, &mut pixels)?;
        Ok(pixels)
    }

    /// The dataset's own pixel statistics.
    fn statistics(&self) -> Statistics;
}
