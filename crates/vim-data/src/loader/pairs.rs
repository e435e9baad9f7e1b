//! A worker's part in segmentation: from an image and a label map to crops of both.

use super::stats::LoaderStage;
use super::worker::Worker;
use super::{Group, Loader};
use crate::dataset::{Dataset, Encoding, Sample};
use crate::decode::Decoder;
use crate::dense::{DenseRecipe, LabelMap, PairError, StrayLabel, apply_dense, decode_labels};
use crate::pixels::Pixels;
use crate::transforms::EraseBox;
use crate::transforms::recipe::SampleKey;

/// Decodes the pair in `sample`, as a dataset with label maps gives it, and checks that both are of
/// one size; returns what the decoder of the image warned of, and the first value that is no class.
///
/// # Panics
/// If the dataset has no label maps.
pub(crate) fn decode_pair(
    dataset: &dyn Dataset,
    decoder: &mut Decoder,
    sample: &Sample,
    image: &mut Pixels,
    map: &mut LabelMap,
) -> Result<(Option<String>, Option<StrayLabel>), PairError> {
    let maps = dataset.label_maps().expect("invariant: the dataset has label maps");
    let classes = dataset.num_classes();
    let mut warning = None;
    let stray;
    match dataset.encoding() {
        Encoding::Pixels { size: [height, width] } => {
            (image.height, image.width, map.height, map.width) = (height, width, height, width);
            image.data.clone_from(&sample.image);
            map.labels.clone_from(&sample.labels);
            stray = maps.rule.stray(&map.labels, classes);
            maps.rule.apply(&mut map.labels);
        }
        Encoding::Files => {
            warning = decoder.decode(&sample.image, image)?.warning;
            let labels = decode_labels(decoder, &sample.labels, maps, classes);
            (*map, stray) = labels.map_err(PairError::Labels)?;
            let of_image = decoder.stored(&sample.image, [image.height, image.width]);
            let of_map = decoder.stored(&sample.labels, map.size());
            if dataset.exif().turns(of_image, of_map)? {
                image.turn(of_image.orientation);
                map.turn(of_map.orientation);
            }
        }
    }
    PairError::check_sizes([image.height, image.width], map.size())?;
    Ok((warning, stray))
}

impl Worker<'_> {
    /// Makes all draws of the pair in `sample`, pixels `[draws, H, W, 3]` and labels `[draws, H,
    /// W]`; returns the boxes to erase in each.
    pub(super) fn pairs(
        &mut self,
        recipe: &DenseRecipe,
        key: SampleKey,
        group: &Group,
        pixels: &mut [u8],
        maps: &mut [u8],
    ) -> Result<Vec<Vec<EraseBox>>, PairError> {
        let Loader { split, config, .. } = self.loader;
        let size = &config.size;
        let Self { decoder, sample, source, label_map, stats, .. } = self;
        let dataset = split.dataset();
        stats.bytes += sample.bytes();
        let decode = || decode_pair(dataset, decoder, sample, source, label_map);
        let (warning, stray) = stats.timed(LoaderStage::Decode, decode)?;
        stats.decoded += 1;
        stats.warned += u64::from(warning.is_some());
        PairError::check_labels(stray)?;
        let area = size[0] * size[1];
        let draws = pixels.chunks_exact_mut(3 * area).zip(maps.chunks_exact_mut(area));
        let boxes = draws.zip(&group.repeats).map(|((pixels, labels), &repeat)| {
            let plan = recipe.draw(SampleKey { repeat, ..key }, label_map.size(), *size);
            let pair = (&*source, &*label_map);
            stats.timed(LoaderStage::Augment, || {
                apply_dense(&plan, recipe.cat_max_ratio, pair, *size, pixels, labels)
            })
        });
        Ok(boxes.collect())
    }
}
