//! A trained segmenter with all that it takes to answer about images.

use std::path::Path;

use burn::tensor::Device;
use vim_data::{Exif, Pixels, read_whole_picture};
use vim_dense::Segmenter;

use super::inference::Viewer;
use super::objective::ClassShares;
use crate::error::Error;
use crate::task::named::Settings;

/// A trained segmenter: its model, its classes, and how it is shown images.
#[derive(Debug)]
pub struct TrainedSegmenter {
    /// The model; the configuration of its backbone is [`Segmenter::backbone_config`].
    pub model: Segmenter,
    /// Names of its `K` classes, by number.
    pub classes: Vec<String>,
    /// Red, green and blue of each class in a map.
    pub colours: Vec<[u8; 3]>,
    /// How it is shown images.
    pub viewer: Viewer,
    pub(super) device: Device,
}

/// The classes of an image's pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PixelClasses {
    /// Height and width of the image, in pixels.
    pub size: [usize; 2],
    /// Number of the class of each pixel, `[height, width]`, row by row.
    pub labels: Vec<u8>,
}

impl TrainedSegmenter {
    pub(super) fn new(model: Segmenter, with: Settings<'_>) -> Result<Self, Error> {
        let config = with.config()?;
        let model = model.with_precision(config.train.precision)?;
        let viewer = Viewer {
            recipe: config.pairs(),
            statistics: config.data.statistics(),
            multi_scale: false,
        };
        let colours = config.data.class_colours(&with.classes);
        let (classes, device) = (with.classes, with.device.clone());
        Ok(Self { model, classes, colours, viewer, device })
    }

    /// The class of each pixel of the image file at `path`, JPEG, PNG, BMP, GIF or WebP.
    ///
    /// # Errors
    ///
    /// [`PictureError`](vim_data::PictureError) names a file that cannot be read. An image with a
    /// side beyond [`LONGEST_SIDE`](vim_data::LONGEST_SIDE) is bad data.
    pub fn segment(&self, path: impl AsRef<Path>) -> Result<PixelClasses, Error> {
        self.segment_pixels(&read_whole_picture(path.as_ref(), Exif::Apply)?)
    }

    /// [`Self::segment`] of an image of any size in memory.
    pub fn segment_pixels(&self, image: &Pixels) -> Result<PixelClasses, Error> {
        image.check()?;
        let checked = self.viewer.check(&self.model, image);
        checked.map_err(|why| Error::data(format!("the image {why}")))?;
        let labels = self.viewer.labels(&self.model, &[image], &self.device)?.pop();
        let labels = labels.ok_or_else(|| Error::internal("an image was lost"))?;
        Ok(PixelClasses { size: [image.height, image.width], labels })
    }

    /// The `top` classes that cover most of an image with these `labels`, the largest first.
    pub fn shares(&self, labels: &[u8], top: usize) -> ClassShares {
        ClassShares::of(labels.iter().map(|&label| usize::from(label)), &self.classes, top)
    }
}
