//! A trained detector with all that it takes to answer about images.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use vim_data::{Exif, Pixels, Statistics, read_whole_picture};
use vim_dense::detection::Detector;
use vim_model::Vim;

use super::inference::{Seen, Viewer, resized};
use super::objective::FoundObject;
use crate::error::Error;
use crate::task::explained::{Aim, Answer, Explained, View, refuse};
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

impl Explained for TrainedDetector {
    fn backbone(&self) -> &Vim {
        &self.model.backbone
    }

    fn backbone_mut(&mut self) -> &mut Vim {
        &mut self.model.backbone
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn statistics(&self) -> Statistics {
        self.viewer.statistics
    }

    fn exif(&self) -> Exif {
        Exif::Apply
    }

    fn view(&self, image: &Pixels, aim: Aim) -> Result<View, Error> {
        if matches!(aim, Aim::Pixel(_)) {
            let instead = "a class is of a box: --box X0,Y0,X1,Y1";
            return Err(refuse("--pixel", "detection", instead));
        }
        let own = self.backbone().config().image_size;
        let pixels = resized(image, own.height.min(own.width));
        let (size, window) = ([pixels.height, pixels.width], pixels.region());
        Ok(View::new(pixels, [image.height, image.width], size, window))
    }

    /// Of the box that is named, else of the surest object's.
    fn answer(&self, images: Tensor<4>, view: &View, aim: Aim) -> Result<Answer, Error> {
        let size = [view.pixels.height, view.pixels.width];
        let feature = self.model.feature(images, None)?;
        let edges = match view.place(aim)? {
            Some(edges) => edges.map(|at| at as f32),
            None => {
                let found = self.model.evaluation_pass(&feature, &[size])?.detections;
                let first = found.first().and_then(|found| found.boxes.first());
                *first.ok_or_else(|| {
                    Error::data("the model finds no object: name a box by --box X0,Y0,X1,Y1")
                })?
            }
        };
        let scores = self.model.classes_of_box(&feature, edges)?;
        Ok(Answer { scores, place: Some(edges.map(f64::from)) })
    }
}
