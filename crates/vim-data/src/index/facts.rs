//! What looking inside an image file has shown.

use serde::{Deserialize, Serialize};

/// What is known of an image once its file has been decoded; see [`verify`](crate::verify).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// In pixels.
    pub height: u32,
    /// In pixels.
    pub width: u32,
    /// By its content; the name may say otherwise.
    pub format: Format,
    /// Channels in the file: 1 for grey, 3 for colour, 4 for CMYK or transparency.
    pub components: u8,
    /// Whether it is a progressive JPEG.
    pub progressive: bool,
    /// What decoding said.
    pub verdict: Verdict,
}

/// The format of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// Neither: nothing that is decoded.
    Other,
}

impl Format {
    /// What a file is by its first bytes.
    #[must_use]
    pub fn of(file: &[u8]) -> Self {
        if file.starts_with(b"\xff\xd8") {
            Self::Jpeg
        } else if file.starts_with(b"\x89PNG") {
            Self::Png
        } else {
            Self::Other
        }
    }
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
