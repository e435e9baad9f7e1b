//! Label maps: a class for each pixel of an image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decode::exif::turned_labels;
use crate::decode::{DecodeError, Decoder};

/// The label of pixels that count neither in the loss nor in a score.
pub const IGNORED: u8 = 255;

/// The longest side of an image of a pair, and of one that a segmenter is shown: the kernels that
/// resize take no longer ones.
pub const LONGEST_SIDE: usize = 1 << 15;

/// A class for each pixel, or [`IGNORED`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelMap {
    /// In pixels.
    pub height: usize,
    /// In pixels.
    pub width: usize,
    /// Rows of labels; `height · width` bytes.
    pub labels: Vec<u8>,
}

impl LabelMap {
    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }
}

/// What a label map holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelTally {
    /// Height and width, as stored.
    pub size: [usize; 2],
    /// How the pixels lie by the EXIF data, 1 to 8: 1 as they are to be seen, or nothing is said.
    pub orientation: u8,
    /// The values as stored that are there, ascending, and the number of their pixels.
    pub values: Vec<(u8, u64)>,
}

impl LabelTally {
    /// Counts the values of a map of this size.
    pub(crate) fn of(size: [usize; 2], orientation: u8, stored: &[u8]) -> Self {
        let mut counts = [0; 256];
        stored.iter().for_each(|&value| counts[usize::from(value)] += 1);
        let values = (0..=u8::MAX).zip(counts).filter(|&(_, count)| count > 0).collect();
        Self { size, orientation, values }
    }

    /// The values as stored that are there.
    pub(crate) fn stored(&self) -> Vec<u8> {
        self.values.iter().map(|&(value, _)| value).collect()
    }
}

/// How the bytes of a dataset's label maps are to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelRule {
    /// Whether 0 is no class but ignored, and the classes are counted from 1.
    pub reduce_zero: bool,
    table: Option<LabelTable>,
}

/// Other labels for the classes of label maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LabelTable {
    /// By the label in the data.
    labels: [u8; 256],
    /// Number of classes in the data.
    classes: usize,
}

impl LabelRule {
    /// The classes are numbered from 0, or from 1 if `reduce_zero` has 0 ignored.
    pub fn new(reduce_zero: bool) -> Self {
        Self { reduce_zero, table: None }
    }

    /// The same bytes for classes under other labels, of which there are `count`, at most 255.
    /// What is no class of the data becomes none of these either.
    pub(crate) fn relabelled(self, labels: &[u32], count: usize) -> Self {
        // With 255 classes every byte is one: such labels can only be ignored.
        let none = if count < usize::from(IGNORED) { IGNORED - 1 } else { IGNORED };
        let mut table = [none; 256];
        table[usize::from(IGNORED)] = IGNORED;
        let classes = self.table.map_or(labels.len(), |table| table.classes);
        for class in 0..classes.min(usize::from(IGNORED)) {
            let before = self.table.map_or(class, |table| usize::from(table.labels[class]));
            table[class] = labels.get(before).map_or(none, |&label| label as u8);
        }
        Self { table: Some(LabelTable { labels: table, classes }), ..self }
    }

    /// Turns bytes as stored into labels.
    ///
    /// # Source
    /// mmsegmentation's `reduce_zero_label`: 0 becomes 255, all others one less, 255 stays.
    pub fn apply(self, bytes: &mut [u8]) {
        if self.reduce_zero {
            for label in &mut *bytes {
                *label = match *label {
                    0 | IGNORED => IGNORED,
                    class => class - 1,
                };
            }
        }
        if let Some(LabelTable { labels, .. }) = self.table {
            bytes.iter_mut().for_each(|label| *label = labels[usize::from(*label)]);
        }
    }

    /// The first of `bytes`, as stored, that is neither ignored nor one of the classes, of which
    /// the dataset has `classes`.
    pub(crate) fn stray(self, bytes: &[u8], classes: usize) -> Option<StrayLabel> {
        let classes = self.table.map_or(classes, |table| table.classes);
        let first = self.first();
        let is_stray = |value: u8| {
            let is_ignored = value == IGNORED || value < first;
            !is_ignored && usize::from(value - first) >= classes
        };
        let value = bytes.iter().copied().find(|&value| is_stray(value))?;
        Some(StrayLabel { value, classes, first })
    }

    /// The byte that stands for class 0 in a file.
    pub fn first(self) -> u8 {
        u8::from(self.reduce_zero)
    }
}

/// The label maps of a dataset, which hold a byte for each pixel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMaps {
    /// From bytes to classes.
    pub rule: LabelRule,
    /// Colour of each class in pictures, red, green and blue.
    pub colours: Vec<[u8; 3]>,
    /// The value that a colour stands for in a map of colours; empty where such are not read.
    pub by_colour: BTreeMap<[u8; 3], u8>,
}

/// A value in a label map that is no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StrayLabel {
    /// As stored.
    value: u8,
    /// Number of classes of the data.
    classes: usize,
    /// The value of the first class.
    first: u8,
}

/// Why an image and its label map cannot be used. Each text follows the pair's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The image cannot be decoded.
    #[error(transparent)]
    Image(#[from] DecodeError),
    /// The label map cannot be decoded.
    #[error("has a label map that {0}")]
    Labels(DecodeError),
    /// A side beyond [`LONGEST_SIDE`].
    #[error(
        "has {} × {} pixels, which makes a side of {side}, and segmentation takes {LONGEST_SIDE} at \
         most; make the image smaller or cut it into parts", image[0], image[1]
    )]
    Side {
        /// Height and width of the image.
        image: [usize; 2],
        /// The side, of the image as it is or as it is seen.
        side: usize,
    },
    /// They are of two sizes.
    #[error(
        "has {} × {} pixels and a label map of {} × {}; remove the pair or make the label map again",
        image[0], image[1], labels[0], labels[1]
    )]
    Size {
        /// Height and width of the image.
        image: [usize; 2],
        /// Height and width of the label map.
        labels: [usize; 2],
    },
    /// A label that is no class.
    #[error(
        "has a label map with the value {value}, and {classes} classes are numbered {first} to \
         {last}: the list of classes may lack some (docs/segmentation.md)"
    )]
    Label {
        /// As stored.
        value: u8,
        /// Number of classes.
        classes: usize,
        /// The value of the first class.
        first: u8,
        /// The value of the last class.
        last: usize,
    },
}

impl LabelMap {
    /// The map as it is seen, by its EXIF orientation, 1 to 8.
    pub(crate) fn turn(&mut self, orientation: u8) {
        if orientation != 1 {
            let (labels, size) = (std::mem::take(&mut self.labels), self.size());
            (self.labels, [self.height, self.width]) = turned_labels(labels, size, orientation);
        }
    }
}

impl PairError {
    /// Checks that an image of this height and width can be segmented when it is shown at the sizes
    /// `seen` and at its own.
    ///
    /// # Errors
    /// [`PairError::Side`].
    pub fn check_side(
        image: [usize; 2],
        seen: impl IntoIterator<Item = [usize; 2]>,
    ) -> Result<(), Self> {
        let longest = image.into_iter().chain(seen.into_iter().flatten()).max();
        match longest {
            Some(side) if side > LONGEST_SIDE => Err(Self::Side { image, side }),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that an image and its label map are of one size, and none too long.
    pub(crate) fn check_sizes(image: [usize; 2], labels: [usize; 2]) -> Result<(), Self> {
        Self::check_side(image, [])?;
        if image == labels { Ok(()) } else { Err(Self::Size { image, labels }) }
    }

    /// Checks that all labels are classes or ignored.
    pub(crate) fn check_labels(stray: Option<StrayLabel>) -> Result<(), Self> {
        let Some(StrayLabel { value, classes, first }) = stray else { return Ok(()) };
        let last = (classes + usize::from(first)).saturating_sub(1);
        Err(Self::Label { value, classes, first, last })
    }
}

/// Decodes a label map of `maps` and turns its bytes into labels of the dataset's `classes`; also
/// returns the first value that is no class.
pub(crate) fn decode_labels(
    decoder: &mut Decoder,
    file: &[u8],
    maps: &LabelMaps,
    classes: usize,
) -> Result<(LabelMap, Option<StrayLabel>), DecodeError> {
    let mut map = LabelMap::default();
    [map.height, map.width] = decoder.decode_values(file, &maps.by_colour, &mut map.labels)?;
    let stray = maps.rule.stray(&map.labels, classes);
    maps.rule.apply(&mut map.labels);
    Ok((map, stray))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_ignored_where_it_is_no_class() {
        let mut bytes = [0, 1, 150, 254, 255];
        LabelRule::new(true).apply(&mut bytes);
        assert_eq!(bytes, [255, 0, 149, 253, 255]);
        LabelRule::new(false).apply(&mut bytes);
        assert_eq!(bytes, [255, 0, 149, 253, 255]);
    }

    #[test]
    fn sides_beyond_the_limit_are_named() {
        let most = LONGEST_SIDE;
        assert_eq!(PairError::check_sizes([8, most], [8, most]), Ok(()));
        let image = [8, most + 1];
        let error = PairError::check_sizes(image, image).unwrap_err();
        assert_eq!(error, PairError::Side { image, side: most + 1 });
        let text = "has 8 × 32769 pixels, which makes a side of 32769, and segmentation takes 32768 \
                    at most; make the image smaller or cut it into parts";
        assert_eq!(error.to_string(), text);
        let seen = PairError::check_side([8, 400], [[896, 44_800], [448, 22_400]]);
        assert_eq!(seen, Err(PairError::Side { image: [8, 400], side: 44_800 }));
    }

    #[test]
    fn a_value_beyond_the_classes_is_named_as_stored() {
        let check = |rule: LabelRule, bytes: &[u8], classes| {
            PairError::check_labels(rule.stray(bytes, classes))
        };
        let wrong = |value, first, last| Err(PairError::Label { value, classes: 3, first, last });
        assert_eq!(check(LabelRule::new(false), &[0, 255, 2, 7], 3), wrong(7, 0, 2));
        assert_eq!(check(LabelRule::new(true), &[0, 1, 255, 3, 8], 3), wrong(8, 1, 3));
        assert_eq!(check(LabelRule::default(), &[0, 255, 2, 7], 8), Ok(()));
        // As stored also where the classes are under other labels, of which there are more.
        let rule = LabelRule::new(true).relabelled(&[4, 0, 2], 5);
        assert_eq!(check(rule, &[0, 1, 255, 3, 4], 5), wrong(4, 1, 3));
        assert_eq!(check(rule, &[0, 1, 255, 3], 5), Ok(()));
    }

    #[test]
    fn classes_go_under_other_labels() {
        let labels = |rule: LabelRule, bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            rule.apply(&mut bytes);
            bytes
        };
        let rule = LabelRule::new(false).relabelled(&[4, 0, 2], 5);
        // A value that is no class stays none.
        assert_eq!(labels(rule, &[0, 1, 2, 3, 4, 255]), [4, 0, 2, 254, 254, 255]);
        let rule = LabelRule::new(true).relabelled(&[4, 0, 2], 5);
        assert_eq!(labels(rule, &[0, 1, 2, 3, 4, 255]), [255, 4, 0, 2, 254, 255]);
        let twice = rule.relabelled(&[1, 9, 2, 9, 0], 3);
        assert_eq!(labels(twice, &[0, 1, 2, 3, 4, 255]), [255, 0, 1, 2, 254, 255]);
        let all: Vec<u32> = (0..255).rev().collect();
        let rule = LabelRule::new(false).relabelled(&all, 255);
        assert_eq!(labels(rule, &[0, 1, 254, 255]), [254, 253, 0, 255]);
    }
}
