//! Examination of images: [`scan`](scan()) reads the headers of all images of a part,
//! [`verify`](verify()) decodes them, and [`KnownImages`] is what is known before that.

mod known;
mod labels;
mod objects;
mod pairs;
mod scan;
mod verify;

use serde::Serialize;

use crate::dataset::Dataset;

pub use known::{BadRule, KnownImages};
pub use labels::{ClassPixels, LabelCounts};
pub use objects::{scan_objects, verify_objects};
pub use pairs::{scan_pairs, verify_pairs};
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
    fn of(dataset: &dyn Dataset, index: usize, what: impl ToString) -> Self {
        let has_class = dataset.label_maps().is_none() && dataset.object_classes().is_none();
        let class = has_class.then(|| dataset.class_names()[dataset.label(index) as usize].clone());
        let (name, class) = (dataset.name(index), class.unwrap_or_default());
        Self { index, name, class, what: what.to_string() }
    }
}
