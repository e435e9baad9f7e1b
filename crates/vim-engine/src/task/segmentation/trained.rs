//! A trained segmenter with all that it takes to answer about images.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use vim_data::dense_ops::bilinear;
use vim_data::{Exif, Pixels, Region, Statistics, read_whole_picture};
use vim_dense::Segmenter;
use vim_model::Vim;

use super::inference::Viewer;
use super::objective::ClassShares;
use crate::error::Error;
use crate::task::explained::{Aim, Answer, Explained, View, refuse};
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

impl Explained for TrainedSegmenter {
    fn backbone(&self) -> &Vim {
        &self.model.backbone
    }

    fn backbone_mut(&mut self) -> &mut Vim {
        &mut self.model.backbone
    }

    fn last_block(&self) -> usize {
        let last = self.model.config().out_indices.iter().max();
        last.copied().unwrap_or(self.model.backbone.layers.len() - 1)
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

    /// The window around the pixel, as others of the image are seen; of no pixel that in its
    /// middle.
    fn view(&self, image: &Pixels, aim: Aim) -> Result<View, Error> {
        if matches!(aim, Aim::Box(_)) {
            return Err(refuse("--box", "segmentation", "a class is of a pixel: --pixel X,Y"));
        }
        let stored = [image.height, image.width];
        let checked = self.viewer.check(&self.model, image);
        checked.map_err(|why| Error::data(format!("the image {why}")))?;
        let resized = self.viewer.size(&self.model, stored);
        let own = self.backbone().config().image_size;
        let (height, width) = (own.height.min(resized[0]), own.width.min(resized[1]));
        let [x, y] = pixel(aim, stored);
        let corner = |at: usize, axis: usize, side: usize| {
            let at = (at as f64 + 0.5) * resized[axis] as f64 / stored[axis] as f64;
            ((at - side as f64 / 2.0).max(0.0) as usize).min(resized[axis] - side)
        };
        let (top, left) = (corner(y, 0, height), corner(x, 1, width));
        let window = Region { top, left, height, width };
        let mut pixels = Pixels::black(height, width);
        bilinear(image, resized, window, &mut pixels.data);
        Ok(View::new(pixels, stored, resized, window))
    }

    fn answer(&self, images: Tensor<4>, view: &View, aim: Aim) -> Result<Answer, Error> {
        let [_, _, height, width] = images.dims();
        let logits = self.model.forward(images)?; // [1, h, w, K]
        let [_, rows, columns, classes] = logits.dims();
        let place = view.place(Aim::Pixel(pixel(aim, view.stored)))?;
        let [x, y, ..] = place.unwrap_or_default();
        let cell = |at: f64, side: usize, cells: usize| {
            ((at * cells as f64 / side as f64) as usize).min(cells - 1)
        };
        let (row, column) = (cell(y, height, rows), cell(x, width, columns));
        let scores = logits.narrow(1, row, 1).narrow(2, column, 1).reshape([classes]);
        Ok(Answer { scores, place })
    }
}

/// The pixel that is aimed at, x and y, in an image of size `stored`.
fn pixel(aim: Aim, [height, width]: [usize; 2]) -> [usize; 2] {
    match aim {
        Aim::Pixel(pixel) => pixel,
        Aim::Image | Aim::Box(_) => [width / 2, height / 2],
    }
}
