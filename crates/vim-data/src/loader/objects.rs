//! A worker's part in detection: from an image and its objects to crops of it and their targets.

use super::stats::LoaderStage;
use super::worker::Worker;
use super::{Group, Loader};
use crate::dataset::{Dataset, Encoding};
use crate::decode::Decoder;
use crate::objects::{ImageObjects, ObjectError, ObjectRecipe, Targets, apply_objects};
use crate::pixels::Pixels;
use crate::transforms::EraseBox;
use crate::transforms::recipe::SampleKey;

/// Decodes the image in `bytes`, number `index` of the dataset, and finds its objects; returns them
/// and what the decoder warned of.
pub(crate) fn decode_scene(
    dataset: &dyn Dataset,
    index: usize,
    decoder: &mut Decoder,
    bytes: &[u8],
    image: &mut Pixels,
) -> Result<(ImageObjects, Option<String>), ObjectError> {
    let objects = dataset.objects(index)?;
    let mut warning = None;
    match dataset.encoding() {
        Encoding::Pixels { size } => {
            image.reshape(size);
            image.data.copy_from_slice(bytes);
        }
        Encoding::Files => {
            warning = decoder.decode(bytes, image)?.warning;
            let stored = decoder.stored(bytes, [image.height, image.width]);
            if dataset.exif().turns(stored, objects.size.into())? {
                image.turn(stored.orientation);
            }
        }
    }
    let (image, annotated) = ([image.height, image.width], objects.size);
    match image == annotated {
        true => Ok((objects, warning)),
        false => Err(ObjectError::Size { image, annotated }),
    }
}

impl Worker<'_> {
    /// Makes all draws of the image in `sample`, number `index` of the dataset, `[draws, H, W, 3]`;
    /// returns the boxes to erase in each and what is to be found there.
    pub(super) fn objects(
        &mut self,
        recipe: &ObjectRecipe,
        index: usize,
        key: SampleKey,
        group: &Group,
        pixels: &mut [u8],
    ) -> Result<Vec<(Vec<EraseBox>, Targets)>, ObjectError> {
        let Loader { split, config, .. } = self.loader;
        let Self { decoder, sample, source, resizer, stats, .. } = self;
        stats.bytes += sample.bytes();
        let decode = || decode_scene(split.dataset(), index, decoder, &sample.image, source);
        let (objects, warning) = stats.timed(LoaderStage::Decode, decode)?;
        stats.decoded += 1;
        stats.warned += u64::from(warning.is_some());
        let size = config.size;
        let draws = pixels.chunks_exact_mut(3 * size[0] * size[1]).zip(&group.repeats);
        let made = draws.map(|(pixels, &repeat)| {
            let plan = recipe.draw(SampleKey { repeat, ..key }, objects.size, size);
            stats.timed(LoaderStage::Augment, || {
                apply_objects(&plan, resizer, source, &objects.objects, size, pixels)
            })
        });
        Ok(made.collect())
    }
}
