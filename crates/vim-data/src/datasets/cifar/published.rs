//! What the authors publish: the names of the classes, and archives.

use std::{fs, path::Path};

use crate::{datasets::DatasetKind, error::DataError};

/// CIFAR-10's classes, by label.
pub(super) static CIFAR10_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// CIFAR-100's fine labels, which are in alphabetical order.
#[rustfmt::skip]
pub(super) static CIFAR100_CLASSES: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle",
    "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle",
    "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch",
    "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake",
    "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle",
    "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];

/// An archive on <https://www.cs.toronto.edu/~kriz/cifar.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedArchive {
    /// File name.
    pub name: &'static str,
    /// The dataset it holds.
    pub dataset: DatasetKind,
    /// Length in bytes.
    pub bytes: u64,
    /// MD5 checksum, as published, in hexadecimal.
    pub md5: &'static str,
}

/// The four archives that are read. Others in the same format are accepted too.
pub static PUBLISHED_ARCHIVES: [PublishedArchive; 4] = {
    use DatasetKind::{Cifar10, Cifar100};
    [
        row("cifar-10-binary.tar.gz", Cifar10, 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
        row("cifar-10-python.tar.gz", Cifar10, 170_498_071, "c58f30108f718f92721af3b95e74349a"),
        row("cifar-100-binary.tar.gz", Cifar100, 168_513_733, "03b5dce01913d631647c71ecec9e9cb8"),
        row("cifar-100-python.tar.gz", Cifar100, 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),
    ]
};

const fn row(
    name: &'static str,
    dataset: DatasetKind,
    bytes: u64,
    md5: &'static str,
) -> PublishedArchive {
    PublishedArchive { name, dataset, bytes, md5 }
}

/// The published archive that a file appears to be, by its name and length.
///
/// The content is not hashed; compare the output of `md5sum` with the entry's `md5`.
///
/// # Errors
/// If the file is missing or cannot be inspected.
pub fn known_archive(path: &Path) -> Result<Option<&'static PublishedArchive>, DataError> {
    let metadata = fs::metadata(path).map_err(DataError::io(path))?;
    let is_same = |archive: &&PublishedArchive| {
        path.file_name().is_some_and(|name| name == archive.name) && metadata.len() == archive.bytes
    };
    Ok(PUBLISHED_ARCHIVES.iter().find(is_same))
}
