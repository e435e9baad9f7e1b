//! The index of a part: which images there are, where each one is, and what is known of it.
//!
//! An index is made once, by listing folders or walking archives, and then cached in a file
//! ([`cache`]): listing ImageNet's 1.28 million images takes seconds to minutes, reading the file
//! about a second.

mod builder;
pub(crate) mod cache;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::decode::Header;

pub(crate) use builder::{Builder, FoundImage};

/// The images of one part of a dataset, ordered by class and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    /// Names of the classes, by label.
    pub(crate) classes: Vec<String>,
    /// The folders or archives that hold the images.
    pub(crate) containers: Vec<PathBuf>,
    pub(crate) entries: Vec<IndexEntry>,
    /// What was odd about the listing, a line each.
    pub(crate) notes: Vec<String>,
    /// All names in one string: separate strings would double the memory.
    names: String,
}

/// One image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexEntry {
    /// Which of the containers.
    pub(crate) container: u32,
    pub(crate) label: u32,
    /// Where in an archive; `None` for a file of its own.
    pub(crate) extent: Option<Extent>,
    /// End of its name in `names`; it begins where the one before ends.
    name_end: u64,
    /// CRC-32C of the file, once it has been read whole.
    pub(crate) crc32c: Option<u32>,
    /// What decoding has shown, if the image was decoded.
    pub(crate) facts: Option<Facts>,
}

/// What is known of an image once its file has been decoded; see [`verify`](crate::verify).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Size and format; `None` if not even those can be told.
    pub header: Option<Header>,
    /// The result of decoding.
    pub verdict: Verdict,
}

/// Whether an image can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Decoded.
    Good,
    /// Decoded, with a warning.
    Warned(String),
    /// Not decoded.
    Bad(String),
}

/// A contiguous part of an archive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Index {
    /// Path of an image inside its container.
    pub(crate) fn name(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].name_end);
        &self.names[start as usize..self.entries[index].name_end as usize]
    }

    /// The position among `classes` of each class of this index; `None` if one is missing there.
    pub(crate) fn labels_among(&self, classes: &[String]) -> Option<Vec<u32>> {
        let place = |class| classes.iter().position(|other| other == class);
        self.classes.iter().map(|class| place(class).map(|label| label as u32)).collect()
    }
}

/// What follows the last slash.
pub(crate) fn base_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// Extensions of the images that are listed, in either case.
///
/// # Source
/// `IMG_EXTENSIONS` of torchvision's `ImageFolder`, less the formats that are not decoded here.
const EXTENSIONS: [&str; 5] = ["bmp", "jpeg", "jpg", "png", "webp"];

/// Whether a file name is that of an image that is decoded.
pub(crate) fn is_image(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|ours| EXTENSIONS.iter().any(|known| ours.eq_ignore_ascii_case(known)))
}

/// Whether the last part of a path begins with a dot.
pub(crate) fn is_hidden(name: &str) -> bool {
    base_name(name).starts_with('.')
}
