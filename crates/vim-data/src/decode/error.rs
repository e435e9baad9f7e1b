//! Why a file could not be decoded.

use super::ImageKind;

/// A file that cannot be used. Each text says what the file is or lacks, and follows its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are of no format known.
    #[error(
        "begins with `{start}`, which is no JPEG, PNG, BMP, GIF or WebP; replace or remove the file"
    )]
    Unknown {
        /// The first bytes, escaped.
        start: String,
    },
    /// The file is empty.
    #[error("is empty; replace or remove the file")]
    Empty,
    /// The file ends before the image does.
    #[error("is a {kind} cut short; copy or download the file again")]
    Truncated {
        /// Format.
        kind: ImageKind,
    },
    /// The contents contradict the format.
    #[error("is a damaged {kind}: {why}; replace or remove the file")]
    Corrupt {
        /// Format.
        kind: ImageKind,
        /// The decoder's reason, one line.
        why: String,
    },
    /// The file is larger than accepted.
    #[error("has {bytes} bytes, more than the {most} accepted; replace or remove the file")]
    FileTooLarge {
        /// Of the file.
        bytes: usize,
        /// Accepted.
        most: usize,
    },
    /// The image is larger than accepted.
    #[error(
        "is a {kind} of {height} × {width} pixels, more than the {most} accepted; shrink or remove \
         the image"
    )]
    ImageTooLarge {
        /// Format.
        kind: ImageKind,
        /// In pixels.
        height: usize,
        /// In pixels.
        width: usize,
        /// Accepted, height times width.
        most: usize,
    },
    /// The decoder could not be set up.
    #[error("cannot be decoded: libjpeg-turbo could not be started ({why}); free some memory")]
    Start {
        /// The library's reason.
        why: String,
    },
}

impl DecodeError {
    /// Of a file that begins as no image.
    pub(super) fn unknown(file: &[u8]) -> Self {
        if file.is_empty() {
            return Self::Empty;
        }
        Self::Unknown { start: file[..file.len().min(8)].escape_ascii().to_string() }
    }

    /// With the decoder's reason brought to one line.
    pub(super) fn corrupt(kind: ImageKind, why: impl ToString) -> Self {
        let why = why.to_string();
        Self::Corrupt { kind, why: why.split_whitespace().collect::<Vec<_>>().join(" ") }
    }
}
