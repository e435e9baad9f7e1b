//! CIFAR without its files: as many images as are published, of which none can be read.

use super::layout::{self, Layout};
use super::{SIZE, name};
use crate::{
    config::DatasetKind,
    dataset::{Dataset, Fingerprint, Stored},
    error::DataError,
    statistics::Statistics,
};

/// Images of the training and of the test part of either dataset, as published.
const IMAGES: [usize; 2] = [50_000, 10_000];

/// What is known of a part before there are files.
#[derive(Debug)]
pub(crate) struct Outline {
    layout: &'static Layout,
    class_names: Vec<String>,
    images: usize,
}

/// The training and the test part.
pub(crate) fn outlines(kind: DatasetKind) -> (Outline, Outline) {
    let layout = layout::of(kind);
    let class_names: Vec<String> = layout.class_names.iter().map(|&name| name.to_owned()).collect();
    let [train, test] =
        IMAGES.map(|images| Outline { layout, class_names: class_names.clone(), images });
    (train, test)
}

impl Dataset for Outline {
    fn len(&self) -> usize {
        self.images
    }

    fn stored(&self) -> Stored {
        Stored::Pixels { size: [SIZE; 2] }
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn label(&self, index: usize) -> u32 {
        // There are as many of every class.
        (index % self.class_names.len()) as u32
    }

    fn name(&self, index: usize) -> String {
        format!("{} image {index}", name(self.layout.kind))
    }

    fn read(&self, _index: usize, _into: &mut Vec<u8>) -> Result<(), DataError> {
        Err(DataError::MissingPath { dataset: self.layout.kind })
    }

    fn statistics(&self) -> Statistics {
        self.layout.statistics
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(|hasher| {
            hasher.update(name(self.layout.kind).as_bytes()).update(b" without its files");
        })
    }
}
