//! What training makes of a batch, as pictures: `data show`, and the page of a run's results.

mod objects;
mod pairs;
mod words;

use burn::tensor::{Device, Tensor};
use vim_data::{Batch, Described, Loader, LoaderConfig, OnBad, Pixels, Shards, Split, Statistics};

use super::{Pictures, batches};
use crate::error::Error;

/// An image and what became of it, draw by draw.
pub(crate) struct Row {
    /// Its name and class.
    pub(crate) label: String,
    pub(crate) before: Pixels,
    /// By the number of the draw, with what was done to it; `None` for a draw of another batch.
    pub(crate) draws: Vec<Option<(Pixels, String)>>,
}

/// The first images of a batch.
pub(crate) struct Shown {
    pub(crate) rows: Vec<Row>,
    /// Their slots of the batch.
    pub(crate) described: Vec<Described>,
    /// Whether their targets are inside of them: the last draw of each is drawn over.
    pub(crate) is_drawn: bool,
}

/// A row for each of the first `count` images of batch `number` of `loader`; `plain` is how
/// evaluation loads images, and `statistics` is what training normalizes them by.
pub(crate) fn shown(
    loader: &Loader,
    number: u64,
    count: usize,
    plain: LoaderConfig,
    statistics: Statistics,
) -> Result<Shown, Error> {
    let split = loader.split();
    let described = loader.describe(number)?;
    let batch = loader
        .batches(number..number + 1)
        .next()
        .ok_or_else(|| Error::internal("a batch that there is was not made"))??;
    // The draws of an image are side by side.
    let groups: Vec<&[Described]> = described
        .chunk_by(|a, b| a.index == b.index && a.key.repeat < b.key.repeat)
        .take(count)
        .collect();
    let (has_maps, has_objects) = (batch.label_maps.is_some(), !batch.targets.is_empty());
    let rows = if has_maps {
        pairs::rows(split, &batch, &described, count)?
    } else if has_objects {
        objects::rows(split, &batch, &described, count)?
    } else {
        let before = evaluated(split, groups.iter().map(|group| group[0].index).collect(), plain)?;
        let slots = groups.iter().map(|group| group.len()).sum();
        let after = received(&ends(&batch, slots), statistics)?;
        rows(&described, &groups, before, after, split.class_names())
    };
    Ok(Shown { rows, described: groups.concat(), is_drawn: has_maps || has_objects })
}

/// Images of the first training batch that a page shows.
const OF_BATCH: usize = 12;

/// The first images of the first training batch, as training learns them; or why there are none,
/// as where one of them cannot be read.
pub(super) fn first_batch(
    loader: &Loader,
    plain: LoaderConfig,
    statistics: Statistics,
) -> Pictures {
    let title = "A training batch";
    let pictures = |note, images| Pictures { title, note, images, ..Pictures::default() };
    let Shown { rows, is_drawn, .. } = match shown(loader, 0, OF_BATCH, plain, statistics) {
        Ok(shown) => shown,
        Err(error) => return pictures(format!("It cannot be shown: {error}."), Vec::new()),
    };
    let image = |row: Row| {
        let own = row.draws.into_iter().flatten();
        // Of a crop and what is to be found in it, the latter.
        let own = own.skip(usize::from(is_drawn));
        own.map(move |(pixels, done)| (row.label.clone(), pixels, vec![done]))
    };
    let note = "The first images of the first batch as the model received them: cropped, altered \
                and mixed as the configuration says.";
    let images = rows.into_iter().flat_map(image).take(OF_BATCH).collect();
    pictures(note.to_owned(), images)
}

/// A row for each group of draws of one image; `before` has an image for each, `after` one for each
/// slot of the batch.
fn rows(
    described: &[Described],
    groups: &[&[Described]],
    before: Vec<Pixels>,
    after: Vec<Pixels>,
    names: &[String],
) -> Vec<Row> {
    let class = |one: &Described| names.get(one.label as usize).map_or("", String::as_str);
    let repeats = groups.iter().flat_map(|group| group.iter()).map(|one| one.key.repeat).max();
    let columns = repeats.map_or(0, |last| last as usize + 1);
    let (mut slots, mut rows) = (after.into_iter().enumerate(), Vec::new());
    for (group, before) in groups.iter().zip(before) {
        let mut draws: Vec<Option<(Pixels, String)>> = (0..columns).map(|_| None).collect();
        for (one, (slot, pixels)) in group.iter().zip(slots.by_ref()) {
            let partner = &described[described.len() - 1 - slot];
            draws[one.key.repeat as usize] = Some((pixels, words::done(one, class(partner))));
        }
        let [height, width] = group[0].source;
        let label = format!("{} ({}), {height}x{width} px", group[0].name, class(&group[0]));
        rows.push(Row { label, before, draws });
    }
    rows
}

/// The images of `split` with these indices, as evaluation sees them.
pub(super) fn evaluated(
    split: &Split,
    indices: Vec<usize>,
    loading: LoaderConfig,
) -> Result<Vec<Pixels>, Error> {
    let config = LoaderConfig {
        batch_size: indices.len().max(1),
        shards: Shards::of_rank(0, 1, 1),
        on_bad: OnBad::Fail,
        ..loading
    };
    let loader = Loader::new(split.only(indices), config)?;
    let mut images = Vec::new();
    for batch in loader.epoch(0, 0) {
        let batch = batch?;
        let bytes = 3 * batch.height * batch.width;
        let image =
            |data: &[u8]| Pixels { height: batch.height, width: batch.width, data: data.to_vec() };
        images.extend(batch.images.chunks_exact(bytes).map(image));
    }
    Ok(images)
}

/// The first and the last `count` images of a batch, which are each other's partners.
fn ends(batch: &Batch, count: usize) -> Batch {
    let (all, count) = (batch.len(), count.min(batch.len().div_ceil(2)));
    let kept: Vec<usize> = (0..count).chain((all - count).max(count)..all).collect();
    let bytes = 3 * batch.height * batch.width;
    let pixels = kept.iter().flat_map(|slot| &batch.images[slot * bytes..][..bytes]);
    let labels = kept.iter().map(|&slot| batch.labels[slot]).collect();
    let size = [batch.height, batch.width];
    let erased = batch
        .erased
        .iter()
        .filter_map(|(slot, erased)| Some((kept.iter().position(|one| one == slot)?, *erased)));
    Batch {
        erased: erased.collect(),
        mixed: kept.iter().filter_map(|&slot| batch.mixed.get(slot).copied()).collect(),
        ..Batch::plain(pixels.copied().collect(), labels, size)
    }
}

/// The model's input images, converted back to bytes.
fn received(batch: &Batch, by: Statistics) -> Result<Vec<Pixels>, Error> {
    let device = Device::flex();
    let images = batches::images(batch, by, &device)?;
    let channel =
        |values: [f32; 3]| Tensor::<1>::from_floats(values, &device).reshape([1, 3, 1, 1]);
    let images = (images * channel(by.std) + channel(by.mean)) * 255.0;
    let values: Vec<f32> = images.permute([0, 2, 3, 1]).into_data().iter().collect();
    let (height, width) = (batch.height, batch.width);
    let image = |values: &[f32]| Pixels {
        height,
        width,
        data: values.iter().map(|value| value.round().clamp(0.0, 255.0) as u8).collect(),
    };
    Ok(values.chunks_exact(3 * height * width).map(image).collect())
}

#[cfg(test)]
mod tests {
    use vim_data::{EraseBox, EraseFill, MixPlan, Region};

    use super::*;

    #[test]
    fn the_ends_of_a_batch_are_received_as_in_the_whole() {
        let by = Statistics::IMAGENET;
        for (all, count) in [(6, 2), (6, 3), (5, 2), (5, 4), (1, 1)] {
            let pixels: Vec<u8> = (0..all * 12).map(|at| (at * 37 % 251) as u8).collect();
            let region = Region { top: 0, left: 0, height: 1, width: 2 };
            let erased = EraseBox { region, fill: EraseFill::Constant };
            let mut batch = Batch::plain(pixels, vec![0; all], [2, 2]);
            batch.erased = vec![(0, erased), (all - 1, erased)];
            if all.is_multiple_of(2) {
                batch.mixed = vec![MixPlan::Mixup { lambda: 0.75 }; all];
            }
            let (whole, few) = (received(&batch, by), received(&ends(&batch, count), by));
            let (whole, few) = (whole.unwrap(), few.unwrap());
            let shown = count.min(all.div_ceil(2));
            assert!(few.len() <= 2 * count, "{}", few.len());
            assert_eq!(few[..shown], whole[..shown], "{count} of {all}");
        }
    }
}
