//! A trained classifier with all that it takes to answer about images.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use vim_data::{Exif, Pixels, Statistics, read_whole_picture};
use vim_kernels::KernelError;
use vim_model::Vim;

use super::predict::{Guesses, guesses};
use crate::config::Config;
use crate::error::Error;
use crate::task::explained::{Aim, Answer, Explained, View, refuse};
use crate::task::frame::{Picture, Seer};

/// The pixels of an image as the model sees them, `[height, width, 3]`, and its likeliest classes;
/// or why its file cannot be read.
pub(super) type Answered = Result<(Pixels, Guesses), String>;

/// A trained classifier: its model, its classes, and how it is shown images.
#[derive(Debug)]
pub struct TrainedClassifier {
    /// The model; its configuration is [`Vim::config`].
    pub model: Vim,
    /// Names of its `K` classes, by number.
    pub classes: Vec<String>,
    pub(super) seer: Seer,
}

impl TrainedClassifier {
    /// `model`, which is shown images as `config` says, else as the original does it.
    pub(super) fn new(
        model: Vim,
        config: Option<&Config>,
        classes: Vec<String>,
        device: &Device,
    ) -> Self {
        let seer = Seer::new(model.config().image_size, config, device);
        Self { model, classes, seer }
    }

    /// Height and width of the images that the model sees, in pixels.
    pub fn size(&self) -> [usize; 2] {
        self.seer.size
    }

    /// What pixels are normalized by.
    pub fn statistics(&self) -> Statistics {
        self.seer.statistics
    }

    /// What it makes of the image file at `path`, JPEG, PNG, BMP, GIF or WebP: all classes, the
    /// likeliest first.
    ///
    /// # Errors
    ///
    /// [`PictureError`](vim_data::PictureError) names a file that cannot be read.
    pub fn classify(&self, path: impl AsRef<Path>) -> Result<Guesses, Error> {
        self.classify_pixels(&read_whole_picture(path.as_ref(), self.seer.exif)?)
    }

    /// [`Self::classify`] of an image of any size in memory.
    pub fn classify_pixels(&self, image: &Pixels) -> Result<Guesses, Error> {
        let images = self.images(std::slice::from_ref(image))?;
        let mut guesses = self.guesses(images, self.classes.len())?;
        guesses.pop().ok_or_else(|| Error::internal("an image was lost"))
    }

    /// Images of any size as the model takes them: resized, cropped and normalized.
    ///
    /// # Errors
    ///
    /// If there are none; [`PictureError`](vim_data::PictureError) of pixels that are no image.
    ///
    /// # Shapes
    ///
    /// - result: `[B, 3, H, W]`, red, green and blue, `H` and `W` those of [`Self::size`]
    pub fn images(&self, images: &[Pixels]) -> Result<Tensor<4>, Error> {
        images.iter().try_for_each(Pixels::check)?;
        let seen: Vec<Picture> = images.iter().map(|image| Ok(self.seer.see(image))).collect();
        self.seer.upload(&seen)?.ok_or_else(|| Error::data("no images are given"))
    }

    /// The `top` likeliest classes of each of `images`, `[B, 3, H, W]` by [`Self::images`].
    pub fn guesses(&self, images: Tensor<4>, top: usize) -> Result<Vec<Guesses>, Error> {
        Ok(guesses(self.model.forward(images)?, &self.classes, top))
    }

    /// What it makes of each of some image files, which it sees at once by `logits_of`: `top`
    /// classes.
    pub(super) fn answers(
        &self,
        paths: &[PathBuf],
        top: usize,
        logits_of: impl FnOnce(Tensor<4>) -> Result<Tensor<2>, KernelError>,
    ) -> Result<Vec<Answered>, Error> {
        let pictures = self.seer.read(paths);
        let guesses = match self.seer.upload(&pictures)? {
            Some(images) => guesses(logits_of(images)?, &self.classes, top),
            None => Vec::new(),
        };
        let mut guesses = guesses.into_iter();
        let [height, width] = self.seer.size;
        let answer = |picture: Picture| {
            let data = match picture {
                Ok(data) => data,
                Err(why) => return Ok(Err(why.to_string())),
            };
            let guesses = guesses.next().ok_or_else(|| Error::internal("an image was lost"))?;
            Ok(Ok((Pixels { height, width, data }, guesses)))
        };
        pictures.into_iter().map(answer).collect()
    }
}

impl Explained for TrainedClassifier {
    fn backbone(&self) -> &Vim {
        &self.model
    }

    fn backbone_mut(&mut self) -> &mut Vim {
        &mut self.model
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn statistics(&self) -> Statistics {
        self.seer.statistics
    }

    fn exif(&self) -> Exif {
        self.seer.exif
    }

    fn view(&self, image: &Pixels, aim: Aim) -> Result<View, Error> {
        if matches!(aim, Aim::Box(_)) {
            let instead =
                "a class is of the whole image; --pixel names the patch whose rows are drawn";
            return Err(refuse("--box", "classification", instead));
        }
        let stored = [image.height, image.width];
        let ([height, width], (resized, window)) = (self.seer.size, self.seer.placed(stored));
        let pixels = Pixels { height, width, data: self.seer.see(image) };
        Ok(View::new(pixels, stored, resized, window))
    }

    fn answer(&self, images: Tensor<4>, view: &View, aim: Aim) -> Result<Answer, Error> {
        let scores = self.model.forward(images)?.squeeze_dim(0);
        Ok(Answer { scores, place: view.place(aim)? })
    }
}
