//! Whether there are as many images as ImageNet has.

use crate::index::Index;

/// Classes of ImageNet-1k.
const CLASSES: usize = 1_000;
/// Its training images.
const TRAIN: usize = 1_281_167;
/// Its validation images.
const VAL: usize = 50_000;

/// A line for each number that is not ImageNet's: a subset is legitimate, but should be meant.
pub(super) fn notes(train: &Index, val: &Index) -> Vec<String> {
    let counts = [
        ("classes", train.classes.len(), CLASSES),
        ("training images", train.entries.len(), TRAIN),
        ("validation images", val.entries.len(), VAL),
    ];
    let differ = counts.into_iter().filter(|(_, found, published)| found != published);
    differ
        .map(|(what, found, published)| {
            format!("{found} {what}; ImageNet-1k as published has {published}")
        })
        .collect()
}
