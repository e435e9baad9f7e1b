//! Images as they are to be seen, turned as their EXIF data say.

use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DecodeError, Decoder};
use crate::pixels::Pixels;

/// Whether images are turned as their EXIF orientation says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exif {
    /// They are, as viewers show them; but for one whose label map or objects are of its size as
    /// it is stored, and not of its size as it is seen.
    Apply,
    /// They stay as they are stored.
    #[default]
    Ignore,
}

/// How an image, or what belongs to it, is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Height and width in pixels.
    pub(crate) size: [usize; 2],
    /// By the EXIF data, 1 to 8.
    pub(crate) orientation: u8,
}

impl Stored {
    /// Height and width as seen.
    pub(crate) fn seen(self) -> [usize; 2] {
        let [height, width] = self.size;
        if self.orientation < 5 { self.size } else { [width, height] }
    }
}

impl From<[usize; 2]> for Stored {
    /// What lies as it is seen.
    fn from(size: [usize; 2]) -> Self {
        Self { size, orientation: 1 }
    }
}

impl Exif {
    /// Whether an image and what belongs to it are turned, each as it says.
    ///
    /// # Errors
    /// If they are not to be, and are of one size only then.
    pub(crate) fn turns(self, image: Stored, other: Stored) -> Result<bool, DecodeError> {
        let (as_stored, as_seen) = (image.size == other.size, image.seen() == other.seen());
        match self {
            Self::Apply => Ok(as_seen || !as_stored),
            Self::Ignore if as_seen && !as_stored => Err(DecodeError::Turned {
                orientation: image.orientation,
                stored: image.size,
                seen: image.seen(),
            }),
            Self::Ignore => Ok(false),
        }
    }

    /// Height and width of an image without anything else to go by.
    pub(crate) fn size(self, image: Stored) -> [usize; 2] {
        match self {
            Self::Apply => image.seen(),
            Self::Ignore => image.size,
        }
    }
}

impl Decoder {
    /// How the image in `file`, which is of this `size`, is stored.
    pub(crate) fn stored(&self, file: &[u8], size: [usize; 2]) -> Stored {
        // What can be decoded and has odd metadata lies as it is seen.
        self.head(file, true).map_or_else(|_| size.into(), |head| head.stored())
    }
}

/// The rows of a picture of `size`, height and width, with `CHANNELS` bytes for each pixel, turned
/// as `orientation` says; and its size then.
fn turned(
    rows: Vec<u8>,
    [height, width]: [usize; 2],
    orientation: u8,
    wrap: fn(u32, u32, Vec<u8>) -> Option<DynamicImage>,
) -> (Vec<u8>, [usize; 2]) {
    let image = wrap(width as u32, height as u32, rows);
    let mut image = image.expect("invariant: there are as many bytes as pixels need");
    let orientation = Orientation::from_exif(orientation).unwrap_or(Orientation::NoTransforms);
    image.apply_orientation(orientation);
    let size = [image.height() as usize, image.width() as usize];
    (image.into_bytes(), size)
}

impl Pixels {
    /// The picture as it is seen, by its EXIF orientation, 1 to 8.
    pub(crate) fn turn(&mut self, orientation: u8) {
        if orientation != 1 {
            let (size, rows) = ([self.height, self.width], std::mem::take(&mut self.data));
            let wrap = |width, height, rows| {
                ImageBuffer::from_raw(width, height, rows).map(DynamicImage::ImageRgb8)
            };
            let (data, [height, width]) = turned(rows, size, orientation, wrap);
            *self = Self { height, width, data };
        }
    }
}

/// Labels of a picture of `size`, one for each pixel, as it is seen; and its size then.
pub(crate) fn turned_labels(
    labels: Vec<u8>,
    size: [usize; 2],
    orientation: u8,
) -> (Vec<u8>, [usize; 2]) {
    turned(labels, size, orientation, |width, height, rows| {
        ImageBuffer::from_raw(width, height, rows).map(DynamicImage::ImageLuma8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What viewers show of the rows 1 2 3 and 4 5 6.
    const SEEN: [(u8, [usize; 2], [u8; 6]); 8] = [
        (1, [2, 3], [1, 2, 3, 4, 5, 6]),
        (2, [2, 3], [3, 2, 1, 6, 5, 4]),
        (3, [2, 3], [6, 5, 4, 3, 2, 1]),
        (4, [2, 3], [4, 5, 6, 1, 2, 3]),
        (5, [3, 2], [1, 4, 2, 5, 3, 6]),
        (6, [3, 2], [4, 1, 5, 2, 6, 3]),
        (7, [3, 2], [6, 3, 5, 2, 4, 1]),
        (8, [3, 2], [3, 6, 2, 5, 1, 4]),
    ];

    #[test]
    fn all_eight_are_as_viewers_show_them() {
        for (orientation, size, seen) in SEEN {
            let (labels, [height, width]) =
                turned_labels(vec![1, 2, 3, 4, 5, 6], [2, 3], orientation);
            assert_eq!((labels, [height, width]), (seen.to_vec(), size), "{orientation}");
            let coloured = |rows: &[u8]| rows.iter().flat_map(|&x| [x, 10 + x, 20 + x]).collect();
            let mut image = Pixels { height: 2, width: 3, data: coloured(&[1, 2, 3, 4, 5, 6]) };
            image.turn(orientation);
            assert_eq!(image, Pixels { height, width, data: coloured(&seen) }, "{orientation}");
            assert_eq!(Stored { size: [2, 3], orientation }.seen(), size);
        }
    }

    #[test]
    fn sizes_decide_where_they_can() {
        let quarter = Stored { size: [2, 3], orientation: 6 };
        let turns = |exif: Exif, other: Stored| exif.turns(quarter, other);
        assert_eq!(turns(Exif::Apply, [3, 2].into()), Ok(true));
        assert_eq!(turns(Exif::Apply, [2, 3].into()), Ok(false), "annotated as stored");
        assert_eq!(turns(Exif::Apply, [9, 9].into()), Ok(true), "of another image");
        // A label map that says the same of itself.
        assert_eq!(turns(Exif::Apply, quarter), Ok(true));
        assert_eq!(turns(Exif::Ignore, [2, 3].into()), Ok(false));
        assert_eq!(turns(Exif::Ignore, [9, 9].into()), Ok(false));
        let error = turns(Exif::Ignore, [3, 2].into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "has 2 × 3 pixels as stored, and 3 × 2, as what belongs to it, as its EXIF orientation \
             6 turns it; set data.exif = \"apply\""
        );
        // Upside down: nothing but what viewers do tells.
        let half = Stored { size: [2, 3], orientation: 3 };
        assert_eq!(Exif::Apply.turns(half, [2, 3].into()), Ok(true));
        assert_eq!(Exif::Ignore.turns(half, [2, 3].into()), Ok(false));
    }
}
