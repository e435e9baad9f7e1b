//! Names and record formats of the two datasets.

use super::names;
use crate::{datasets::kind::DatasetKind, statistics::Statistics};

/// The two published forms that are read; MATLAB's is a third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Fixed-length records.
    Binary,
    /// Pickled dictionaries.
    Python,
}

/// What distinguishes CIFAR-10 from CIFAR-100.
///
/// # Source
/// The description on the datasets' page, <https://www.cs.toronto.edu/~kriz/cifar.html>.
#[derive(Debug)]
pub(super) struct Layout {
    /// The other dataset, which this one may be confused with.
    pub(super) other: &'static Layout,
    pub(super) kind: DatasetKind,
    pub(super) class_names: &'static [&'static str],
    pub(super) statistics: Statistics,
    /// Folder in the binary archive.
    binary_folder: &'static str,
    /// Folder in the python archive.
    python_folder: &'static str,
    /// Names of the archives without `.tar.gz`.
    archives: [&'static str; 2],
    /// Files of the training part, without the binary version's `.bin`.
    pub(super) train: &'static [&'static str],
    /// File of the test part, likewise.
    pub(super) test: &'static str,
    /// Label bytes at the start of a binary record; the last one is used.
    pub(super) label_bytes: usize,
    /// Key of the labels in the pickled dictionary.
    pub(super) label_key: &'static str,
}

pub(super) static CIFAR10: Layout = Layout {
    other: &CIFAR100,
    kind: DatasetKind::Cifar10,
    class_names: &names::CIFAR10,
    statistics: Statistics::CIFAR10,
    binary_folder: "cifar-10-batches-bin",
    python_folder: "cifar-10-batches-py",
    archives: ["cifar-10-binary", "cifar-10-python"],
    train: &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"],
    test: "test_batch",
    label_bytes: 1,
    label_key: "labels",
};

pub(super) static CIFAR100: Layout = Layout {
    other: &CIFAR10,
    kind: DatasetKind::Cifar100,
    class_names: &names::CIFAR100,
    statistics: Statistics::CIFAR100,
    binary_folder: "cifar-100-binary",
    python_folder: "cifar-100-python",
    archives: ["cifar-100-binary", "cifar-100-python"],
    train: &["train"],
    test: "test",
    label_bytes: 2, // coarse, then fine
    label_key: "fine_labels",
};

impl Layout {
    /// The training files, then the test file.
    pub(super) fn stems(&self) -> impl Iterator<Item = &'static str> {
        self.train.iter().copied().chain([self.test])
    }

    /// Which file a name stands for.
    pub(super) fn recognise(&self, name: &str) -> Option<(Version, &'static str)> {
        self.stems().find_map(|stem| match name.strip_prefix(stem)? {
            ".bin" => Some((Version::Binary, stem)),
            "" => Some((Version::Python, stem)),
            _ => None,
        })
    }

    /// The folders that the archives unpack to.
    pub(super) fn folders(&self) -> [&'static str; 2] {
        [self.binary_folder, self.python_folder]
    }

    /// The names under which the archives may lie on disk.
    pub(super) fn archive_names(&self) -> impl Iterator<Item = String> {
        self.archives.iter().flat_map(|stem| [format!("{stem}.tar.gz"), format!("{stem}.tar")])
    }

    /// For an error message: everything that `data.path` may point at.
    pub(super) fn expected(&self) -> String {
        let [binary, python] = self.archives;
        let [binary_folder, python_folder] = self.folders();
        format!(
            "one of `{binary}.tar.gz`, `{python}.tar.gz`, `{binary_folder}/`, `{python_folder}/`"
        )
    }
}

impl Version {
    /// The name of a file in this version.
    pub(super) fn file_name(self, stem: &str) -> String {
        match self {
            Self::Binary => format!("{stem}.bin"),
            Self::Python => stem.to_owned(),
        }
    }
}
