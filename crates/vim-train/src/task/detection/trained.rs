//! A trained detector with all that it takes to answer about images.

use std::path::Path;

use burn::tensor::Device;
use vim_data::{Exif, Pixels, read_whole_picture};
use vim_dense::detection::Detector;

use super::inference::{Seen, Viewer};
use super::objective::FoundObject;
use crate::error::Error;
use crate::task::named::Settings;

/// A trained detector: its model, its classes, and how it is shown images.
#[derive(Debug)]
pub struct TrainedDetector {
    /// The model; the configuration of its backbone is [`Detector::backbone_config`].
    pub model: Detector,
    /// Names of its `K` classes, by number.
    pub classes: Vec<String>,
    /// Red, green and blue of each class in a picture.
    pub colours: Vec<[u8; 3]>,
    /// How it is shown images.
    pub viewer: Viewer,
    pub(super) device: Device,
}

impl TrainedDetector {
    pub(super) fn new(model: Detector, with: Settings<'_>) -> Result<Self, Error> {
        let config = with.config()?;
        let model = model.with_precision(config.train.precision)?;
        let viewer = Viewer { statistics: config.data.statistics() };
        let colours = config.data.class_colours(&with.classes);
        let (classes, device) = (with.classes, with.device.clone());
        Ok(Self { model, classes, colours, viewer, device })
    }

    /// The objects in the image file at `path`, JPEG, PNG, BMP, GIF or WebP, the surest first:
    /// boxes, and masks if it finds them, in the image's own pixels.
    ///
    /// # Errors
    ///
    /// [`PictureError`](vim_data::PictureError) names a file that cannot be read.
    pub fn detect(&self, path: impl AsRef<Path>) -> Result<Seen, Error> {
        self.detect_pixels(&read_whole_picture(path.as_ref(), Exif::Apply)?)
    }

    /// [`Self::detect`] in an image of any size in memory.
    pub fn detect_pixels(&self, image: &Pixels) -> Result<Seen, Error> {
        image.check()?;
        let seen = self.viewer.seen(&self.model, &[image], &self.device)?.pop();
        seen.ok_or_else(|| Error::internal("an image was lost"))
    }

    /// The `top` surest objects of `seen` whose score is at least `least`, 0 to 1, with the names
    /// of their classes.
    pub fn objects(&self, seen: &Seen, least: f32, top: usize) -> Vec<FoundObject> {
        let chosen = (0..seen.len()).take_while(|&at| seen.scores[at] >= least).take(top);
        let object = |at: usize| {
            let (class, score, corners) = (seen.classes[at], seen.scores[at], seen.boxes[at]);
            FoundObject::new(class, &self.classes, score, corners, seen.area(at))
        };
        chosen.map(object).collect()
    }
}
