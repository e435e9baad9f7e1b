//! The archives as their authors publish them.

use std::{fs, path::Path};

use crate::{datasets::kind::DatasetKind, error::DataError};

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
pub static PUBLISHED_ARCHIVES: [PublishedArchive; 4] = [
    PublishedArchive {
        name: "cifar-10-binary.tar.gz",
        dataset: DatasetKind::Cifar10,
        bytes: 170_052_171,
        md5: "c32a1d4ab5d03f1284b67883e8d87530",
    },
    PublishedArchive {
        name: "cifar-10-python.tar.gz",
        dataset: DatasetKind::Cifar10,
        bytes: 170_498_071,
        md5: "c58f30108f718f92721af3b95e74349a",
    },
    PublishedArchive {
        name: "cifar-100-binary.tar.gz",
        dataset: DatasetKind::Cifar100,
        bytes: 168_513_733,
        md5: "03b5dce01913d631647c71ecec9e9cb8",
    },
    PublishedArchive {
        name: "cifar-100-python.tar.gz",
        dataset: DatasetKind::Cifar100,
        bytes: 169_001_437,
        md5: "eb9058c3a382ffc7106e4002c42a8d85",
    },
];

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
