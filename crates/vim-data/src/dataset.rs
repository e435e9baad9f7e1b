//! The trait of all datasets, and the progress of what goes through one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::decode::{Exif, Stored};
use crate::dense::{LabelMaps, LabelTally};
use crate::objects::{ImageObjects, ObjectClasses, ObjectError};
use crate::{error::DataError, statistics::Statistics};

/// The number of an image's class, `0..num_classes`.
pub type Class = u32;

/// An image as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The image, as [`Dataset::encoding`] says.
    pub image: Vec<u8>,
    /// Its label map in the same encoding, a byte for each pixel; empty if the images have none.
    pub labels: Vec<u8>,
}

impl Sample {
    /// Bytes of the image and of its label map.
    pub fn bytes(&self) -> u64 {
        (self.image.len() + self.labels.len()) as u64
    }
}

/// RGB images with one label, one label map or some objects each, readable from any thread in any
/// order.
///
/// An index past the end is a defect of the caller: the methods that take one panic on it.
pub trait Dataset: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// Whether there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What [`Dataset::read`] gives.
    fn encoding(&self) -> Encoding;

    /// Name of each class, by label.
    fn class_names(&self) -> &[String];

    /// Number of classes.
    fn num_classes(&self) -> usize {
        self.class_names().len()
    }

    /// The class of one image; 0 where it has a label map or objects.
    fn label(&self, index: usize) -> Class;

    /// Classes that the images cannot have, as the data do not know them: recorded ones, of data
    /// under recorded labels.
    fn absent_classes(&self) -> &[Class] {
        &[]
    }

    /// Whether images, and their label maps, are turned as their EXIF orientation says.
    fn exif(&self) -> Exif {
        Exif::default()
    }

    /// How the images' label maps are to be read, if they have some.
    fn label_maps(&self) -> Option<&LabelMaps> {
        None
    }

    /// The classes of the images' objects, if they have some.
    fn object_classes(&self) -> Option<&ObjectClasses> {
        None
    }

    /// The objects of one image.
    ///
    /// # Errors
    /// If an annotation of it cannot be used, or the dataset has no objects.
    fn objects(&self, _index: usize) -> Result<ImageObjects, ObjectError> {
        Err(ObjectError::None)
    }

    /// What the headers of the files, the annotations and earlier verifications say of the images
    /// before any of them is decoded; label maps are read whole. `workers` threads do so, once:
    /// what they see is kept with the list of the files, if that can be written.
    ///
    /// # Errors
    /// If a decoder cannot be set up.
    fn suspects(&self, _workers: usize, _watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        Ok(Suspects::default())
    }

    /// The folders and archives that its files are read from.
    fn roots(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Where one image is, for messages and records: a path, or `archive:member`.
    fn name(&self, index: usize) -> String;

    /// Replaces the content of `into` by one image and its label map, if it has one.
    ///
    /// A caller that keeps `into` between calls allocates nothing after the largest image.
    ///
    /// # Errors
    /// If it cannot be read. Whether to try again is the caller's decision.
    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError>;

    /// The dataset's own pixel statistics.
    fn statistics(&self) -> Statistics;

    /// Identifies the images, their order and their labels, independent of where the files are.
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_by(self.class_names(), &|label| label)
    }

    /// The [fingerprint](Self::fingerprint) that the same images would have with classes of these
    /// names, each label being what `label` makes of it.
    fn fingerprint_by(&self, names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint;
}

/// What is known of images before they are decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    /// Images that cannot be used by what is known: decoding tells for certain.
    pub bad: BTreeSet<usize>,
    /// Images whose pixels lie otherwise than they are to be seen, by their EXIF orientation, where
    /// that matters to what belongs to them.
    pub turned: BTreeMap<usize, Turned>,
    /// What each label map holds, by image, `None` of one that cannot be read; empty where the
    /// images have none, or they are not stored.
    pub tallies: Vec<Option<LabelTally>>,
    /// What is odd about the looking itself, a line each.
    pub notes: Vec<String>,
}

/// What becomes of an image with an EXIF orientation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// It is turned: what belongs to it is of its size as it is seen alone.
    Surely,
    /// It is turned: what belongs to it is of its size either way.
    AsSeen,
    /// It stays as it is stored, as [`Exif`] says: all of them, or those alone of whose size what
    /// belongs to it is.
    AsStored,
}

impl Suspects {
    /// Adds what the heads of an image and of what belongs to it say; `None` if that is not known.
    pub(crate) fn add(
        &mut self,
        index: usize,
        exif: Exif,
        parts: Option<[Stored; 2]>,
        is_usable: impl FnOnce([[usize; 2]; 2]) -> bool,
    ) {
        let Some([image, other]) = parts else {
            self.bad.insert(index);
            return;
        };
        let is_turned = exif.turns(image, other);
        let sizes = match is_turned {
            Ok(true) => [image.seen(), other.seen()],
            Ok(false) | Err(_) => [image.size, other.size],
        };
        if !is_usable(sizes) {
            self.bad.insert(index);
        }
        if image.orientation != 1 {
            let turned = match is_turned {
                Ok(true) if image.size == other.size => Turned::AsSeen,
                Ok(true) => Turned::Surely,
                Ok(false) | Err(_) => Turned::AsStored,
            };
            self.turned.insert(index, turned);
        }
    }
}

/// What reading an image gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Pixels, `[H, W, 3]`, of one size for all images.
    Pixels {
        /// `[H, W]`.
        size: [usize; 2],
    },
    /// An encoded file, of any size and format.
    Files,
}

/// A hash that tells datasets apart. Displayed and serialised in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(blake3::Hash);

impl Fingerprint {
    /// The BLAKE3 hash of the bytes that `feed` writes, in a domain of its own.
    pub(crate) fn of(feed: impl FnOnce(&mut blake3::Hasher)) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("vim-data dataset fingerprint v1");
        feed(&mut hasher);
        Self(hasher.finalize())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Counts of a task over the images of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Images done.
    pub images: usize,
    /// Images to be done.
    pub total: usize,
    /// Bytes read so far.
    pub bytes: u64,
}

/// Called now and then, from any thread.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Sync);
