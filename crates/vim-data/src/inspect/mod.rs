//! Examination of all images of a part: [`scan`](scan()) reads their headers, [`verify`](verify())
//! decodes them.

mod parallel;
mod scan;
mod verify;

use serde::Serialize;

use crate::{dataset::Dataset, storage::images::Images};

pub use scan::{ClassCount, ScanReport, Sides, scan};
pub use verify::{VerifyOptions, VerifyReport, verify};

/// A remark on an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Number of the image in its part.
    pub index: usize,
    /// Where it is: a path, or `archive:member`.
    pub name: String,
    /// Its class.
    pub class: String,
    /// The remark.
    pub what: String,
}

impl Finding {
    fn new(images: &Images, index: usize, what: impl ToString) -> Self {
        let class = images.class_names()[images.label(index) as usize].clone();
        Self { index, name: images.name(index), class, what: what.to_string() }
    }
}
