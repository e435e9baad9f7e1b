//! Label maps: a class for each pixel of an image.

use crate::decode::{DecodeError, Decoder};

/// The label of pixels that count neither in the loss nor in a score.
pub const IGNORED: u8 = 255;

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

    /// The first label that is neither a class nor ignored.
    pub(crate) fn stray(&self, classes: usize) -> Option<u8> {
        let is_stray = |label: &&u8| usize::from(**label) >= classes && **label != IGNORED;
        self.labels.iter().find(is_stray).copied()
    }
}

/// How the bytes of a dataset's label maps are to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelRule {
    /// Whether 0 is no class but ignored, and the classes are counted from 1.
    pub reduce_zero: bool,
}

impl LabelRule {
    /// Turns bytes as stored into labels.
    ///
    /// # Source
    /// mmsegmentation's `reduce_zero_label`: 0 becomes 255, all others one less, 255 stays.
    pub fn apply(self, bytes: &mut [u8]) {
        if self.reduce_zero {
            for label in bytes {
                *label = match *label {
                    0 | IGNORED => IGNORED,
                    class => class - 1,
                };
            }
        }
    }

    /// The byte that stands for class 0 in a file.
    pub fn first(self) -> u8 {
        u8::from(self.reduce_zero)
    }
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
         {last}; is the list of classes whole (docs/segmentation.md)?"
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

impl PairError {
    /// Checks that an image and its label map are of one size.
    pub(crate) fn check_sizes(image: [usize; 2], labels: [usize; 2]) -> Result<(), Self> {
        if image == labels { Ok(()) } else { Err(Self::Size { image, labels }) }
    }

    /// Checks that all labels are classes or ignored.
    pub(crate) fn check_labels(
        map: &LabelMap,
        rule: LabelRule,
        classes: usize,
    ) -> Result<(), Self> {
        let Some(label) = map.stray(classes) else { return Ok(()) };
        let first = rule.first();
        let last = classes - 1 + usize::from(first);
        Err(Self::Label { value: label + first, classes, first, last })
    }
}

/// Decodes a label map and turns its bytes into labels.
pub(crate) fn decode_labels(
    decoder: &mut Decoder,
    file: &[u8],
    rule: LabelRule,
) -> Result<LabelMap, DecodeError> {
    let mut map = LabelMap::default();
    [map.height, map.width] = decoder.decode_grey(file, &mut map.labels)?;
    rule.apply(&mut map.labels);
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_ignored_where_it_is_no_class() {
        let mut bytes = [0, 1, 150, 254, 255];
        LabelRule { reduce_zero: true }.apply(&mut bytes);
        assert_eq!(bytes, [255, 0, 149, 253, 255]);
        LabelRule { reduce_zero: false }.apply(&mut bytes);
        assert_eq!(bytes, [255, 0, 149, 253, 255]);
    }

    #[test]
    fn a_value_beyond_the_classes_is_named_as_stored() {
        let map = LabelMap { height: 1, width: 4, labels: vec![0, 255, 2, 7] };
        for (reduce_zero, value, first, last) in [(false, 7, 0, 2), (true, 8, 1, 3)] {
            let error = PairError::check_labels(&map, LabelRule { reduce_zero }, 3);
            assert_eq!(error, Err(PairError::Label { value, classes: 3, first, last }));
        }
        assert_eq!(PairError::check_labels(&map, LabelRule::default(), 8), Ok(()));
    }
}
