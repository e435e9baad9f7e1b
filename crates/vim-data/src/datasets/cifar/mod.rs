//! CIFAR-10 and CIFAR-100, from the files as published: binary or python version, packed or
//! unpacked.
//!
//! Both versions hold the same 32 × 32 images as three planes (red, green, blue); they are kept in
//! memory as height × width × RGB, 154 MB for the 50 000 training images.

mod files;
mod published;
mod python;

pub use published::{PUBLISHED_ARCHIVES, PublishedArchive, known_archive};

use files::{Files, Version};

use super::{DataConfig, DatasetKind, Source, Splits, owned};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, Sample};
use crate::error::{DataError, Location};
use crate::statistics::Statistics;

/// Height and width of an image, in pixels.
const SIZE: usize = 32;
/// Pixels in one plane.
const PLANE: usize = SIZE * SIZE;
/// Bytes in an image.
const IMAGE: usize = 3 * PLANE;

/// What distinguishes CIFAR-10 from CIFAR-100.
///
/// # Source
/// The description on the datasets' page, <https://www.cs.toronto.edu/~kriz/cifar.html>.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) source: Source,
    kind: DatasetKind,
    /// The other dataset, which this one may be confused with.
    other: &'static Layout,
    /// Names of the binary and the python archive without `.tar.gz`.
    archives: [&'static str; 2],
    /// The folders that they unpack to.
    folders: [&'static str; 2],
    /// Files of the training part, without the binary version's `.bin`.
    train: &'static [&'static str],
    /// File of the test part, likewise.
    test: &'static str,
    /// Label bytes at the start of a binary record; the last one is used.
    label_bytes: usize,
    /// Key of the labels in the pickled dictionary.
    label_key: &'static str,
}

pub(super) static CIFAR10: Layout = Layout {
    source: Source {
        class_names: &published::CIFAR10_CLASSES,
        statistics: Statistics::CIFAR10,
        files: FILES,
        classes: Some(|config, _| open(&CIFAR10, config)),
        label_maps: None,
        objects: None,
    },
    kind: DatasetKind::Cifar10,
    other: &CIFAR100,
    archives: ["cifar-10-binary", "cifar-10-python"],
    folders: ["cifar-10-batches-bin", "cifar-10-batches-py"],
    train: &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"],
    test: "test_batch",
    label_bytes: 1,
    label_key: "labels",
};

pub(super) static CIFAR100: Layout = Layout {
    source: Source {
        class_names: &published::CIFAR100_CLASSES,
        statistics: Statistics::CIFAR100,
        files: FILES,
        classes: Some(|config, _| open(&CIFAR100, config)),
        label_maps: None,
        objects: None,
    },
    kind: DatasetKind::Cifar100,
    other: &CIFAR10,
    archives: ["cifar-100-binary", "cifar-100-python"],
    folders: ["cifar-100-binary", "cifar-100-python"],
    train: &["train"],
    test: "test",
    label_bytes: 2, // coarse, then fine
    label_key: "fine_labels",
};

const FILES: super::Files = super::Files::Archive { size: [SIZE; 2], images: [50_000, 10_000] };

/// One part, training or test, of CIFAR-10 or CIFAR-100 (with its 100 fine labels).
#[derive(Debug)]
pub struct Cifar {
    layout: &'static Layout,
    /// `train` or `test`, for messages.
    part: &'static str,
    class_names: Vec<String>,
    /// `[N, H, W, 3]`.
    pixels: Vec<u8>,
    /// `[N]`, checked to be below the number of classes.
    labels: Vec<u8>,
}

/// Images and labels as one file holds them.
struct RawImages {
    /// `[N, 3, H, W]`.
    planes: Vec<u8>,
    /// `[N]`, as read.
    labels: Vec<i64>,
}

/// Reads the training and the test part. The number of images is the files' own.
fn open(layout: &'static Layout, config: &DataConfig) -> Result<Splits, DataError> {
    let mut files = files::read(layout, config.required_path()?)?;
    let train = part(layout, "train", &mut files, layout.train)?;
    let test = part(layout, "test", &mut files, &[layout.test])?;
    Ok(Splits::new(train, test))
}

/// Joins the files of one part.
fn part(
    layout: &'static Layout,
    part: &'static str,
    files: &mut Files,
    stems: &[&str],
) -> Result<Cifar, DataError> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for stem in stems {
        let (file, bytes) = files.take(stem)?;
        let mut records = match files.version {
            Version::Binary => decode_binary(layout, &file, &bytes)?,
            Version::Python => python::decode(layout, &file, &bytes)?,
        };
        drop(bytes);
        labels.extend(checked_labels(layout, &file, &records.labels)?);
        interleave(&mut records.planes);
        if pixels.is_empty() {
            pixels = records.planes; // CIFAR-100's only file: moved, not copied
        } else {
            pixels.append(&mut records.planes);
        }
    }
    Ok(Cifar { layout, part, class_names: owned(layout.source.class_names), pixels, labels })
}

/// Splits a `.bin` file into images and labels.
fn decode_binary(layout: &Layout, file: &Location, bytes: &[u8]) -> Result<RawImages, DataError> {
    let record = layout.label_bytes + IMAGE;
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        return Err(DataError::RecordSize { file: file.clone(), bytes: bytes.len(), record });
    }
    let count = bytes.len() / record;
    let mut records =
        RawImages { planes: Vec::with_capacity(count * IMAGE), labels: Vec::with_capacity(count) };
    for record in bytes.chunks_exact(record) {
        let (labels, planes) = record.split_at(layout.label_bytes);
        // CIFAR-100 has the coarse label first.
        records.labels.push(i64::from(labels[layout.label_bytes - 1]));
        records.planes.extend_from_slice(planes);
    }
    Ok(records)
}

fn checked_labels(layout: &Layout, file: &Location, labels: &[i64]) -> Result<Vec<u8>, DataError> {
    let classes = layout.source.class_names.len();
    let check = |(index, &label)| match u8::try_from(label) {
        Ok(class) if usize::from(class) < classes => Ok(class),
        _ => Err(DataError::LabelOutOfRange { file: file.clone(), index, label, classes }),
    };
    labels.iter().enumerate().map(check).collect()
}

/// Turns images of three planes into images of RGB pixels, in place.
fn interleave(images: &mut [u8]) {
    let mut planes = [0; IMAGE];
    for image in images.chunks_exact_mut(IMAGE) {
        planes.copy_from_slice(image);
        for (at, pixel) in image.chunks_exact_mut(3).enumerate() {
            pixel.copy_from_slice(&[planes[at], planes[PLANE + at], planes[2 * PLANE + at]]);
        }
    }
}

impl Dataset for Cifar {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn encoding(&self) -> Encoding {
        Encoding::Pixels { size: [SIZE; 2] }
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn label(&self, index: usize) -> Class {
        Class::from(self.labels[index])
    }

    fn name(&self, index: usize) -> String {
        format!("{} {} image {index}", self.layout.kind.name(), self.part)
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        into.image.clear();
        into.image.extend_from_slice(&self.pixels[index * IMAGE..(index + 1) * IMAGE]);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.layout.source.statistics
    }

    fn fingerprint_by(&self, _names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint {
        // There are at most 100 classes, under whatever labels.
        let labels: Vec<u8> =
            self.labels.iter().map(|&class| label(Class::from(class)) as u8).collect();
        Fingerprint::of(|hasher| {
            let name = self.layout.kind.name().as_bytes();
            hasher.update(name).update(&labels).update(&self.pixels);
        })
    }
}
