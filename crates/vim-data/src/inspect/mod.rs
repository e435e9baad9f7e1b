//! Looking at all images of a part: [`scan`](scan()) by their headers, [`verify`](verify()) by decoding them.

mod scan;
mod verify;
mod workers;

use serde::Serialize;

pub use scan::{Extremes, ScanReport, Sides, scan};
pub use verify::{VerifyOptions, VerifyReport, verify};

use crate::dataset::Dataset;
use crate::storage::images::Images;

/// An image, and what there is to say about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Number of the image in its part.
    pub index: usize,
    /// Where it is: a path, or `archive:member`.
    pub name: String,
    /// Its class.
    pub class: String,
    /// What was found.
    pub what: String,
}

impl Finding {
    fn new(images: &Images, index: usize, what: impl ToString) -> Self {
        let class = images.class_names()[images.label(index) as usize].clone();
        Self { index, name: images.name(index), class, what: what.to_string() }
    }
}
