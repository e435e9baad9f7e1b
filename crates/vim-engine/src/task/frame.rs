//! Images of any size as a model sees them.

use std::path::PathBuf;

use burn::tensor::{Device, Tensor};
use rayon::prelude::*;
use vim_data::dense_ops::padding;
use vim_data::{
    Batch, EVAL_CROP, EvalTransform, Exif, PictureError, Pixels, Region, Statistics,
    read_whole_picture,
};
use vim_model::ImageSize;

use super::batches;
use crate::config::Config;
use crate::error::Error;

/// Image files as a classifier sees them.
#[derive(Clone, Debug)]
pub(crate) struct Seer {
    /// Of the model's images, `[height, width]`.
    pub(crate) size: [usize; 2],
    /// What they are normalized by.
    pub(crate) statistics: Statistics,
    /// `augment.eval_crop_ratio`.
    crop: f64,
    /// `data.exif`.
    pub(crate) exif: Exif,
    device: Device,
}

/// The pixels of an image, `[height, width, 3]`, or why it cannot be read.
pub(crate) type Picture = Result<Vec<u8>, PictureError>;

impl Seer {
    /// Of images of `size`, cropped and normalized as `config` says, else as the original does it,
    /// on `device`.
    pub(crate) fn new(size: ImageSize, config: Option<&Config>, device: &Device) -> Self {
        let (statistics, crop, exif) = match config {
            Some(Config { data, augment, .. }) => {
                (data.statistics(), augment.eval_crop_ratio, data.exif())
            }
            None => (Statistics::IMAGENET, EVAL_CROP, Exif::Ignore),
        };
        Self { size: super::batches::sides(size), statistics, crop, exif, device: device.clone() }
    }

    /// Reads images, resized and cropped as evaluation does.
    pub(crate) fn read(&self, paths: &[PathBuf]) -> Vec<Picture> {
        let read =
            |path: &PathBuf| -> Picture { Ok(self.see(&read_whole_picture(path, self.exif)?)) };
        paths.par_iter().map(read).collect()
    }

    /// An image of any size, resized and cropped as evaluation does.
    pub(crate) fn see(&self, pixels: &Pixels) -> Vec<u8> {
        let mut seen = vec![0; 3 * self.size[0] * self.size[1]];
        EvalTransform::new(self.crop).apply(pixels, self.size, &mut seen);
        seen
    }

    /// The size that an image of size `stored` is resized to, and the part of it that is seen.
    pub(crate) fn placed(&self, stored: [usize; 2]) -> ([usize; 2], Region) {
        EvalTransform::new(self.crop).placed(stored, self.size)
    }

    /// Those that could be read, normalized, `[B, 3, H, W]`; `None` if there are none.
    pub(crate) fn upload(&self, pictures: &[Picture]) -> Result<Option<Tensor<4>>, Error> {
        let good: Vec<&[u8]> = pictures.iter().flatten().map(Vec::as_slice).collect();
        if good.is_empty() {
            return Ok(None);
        }
        let batch = Batch::plain(good.concat(), vec![0; good.len()], self.size);
        Ok(Some(batches::images(&batch, self.statistics, &self.device)?))
    }
}

/// `images` on the device, each in the upper left corner of a frame, `[height, width]`, and
/// normalized; what is beyond an image is 0.
///
/// # Shapes
///
/// - result: `[B, 3, height, width]`
pub(crate) fn framed(
    images: &[Pixels],
    frame: [usize; 2],
    statistics: Statistics,
    device: &Device,
) -> Result<Tensor<4>, Error> {
    let [height, width] = frame;
    let mut pixels = vec![0; images.len() * 3 * height * width];
    let mut beyond = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let own = &mut pixels[number * 3 * height * width..][..3 * height * width];
        for (row, line) in image.data.chunks_exact(3 * image.width).enumerate() {
            own[3 * row * width..][..line.len()].copy_from_slice(line);
        }
        let of = padding([image.height, image.width], frame);
        beyond.extend(of.into_iter().map(|one| (number, one)));
    }
    let mut batch = Batch::plain(pixels, vec![0; images.len()], frame);
    batch.erased = beyond;
    batches::images(&batch, statistics, device)
}
