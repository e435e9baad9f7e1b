//! Decodes image files to pixels.
//!
//! The first bytes decide the format, not the name: ImageNet holds a PNG called `.JPEG`. Every
//! image becomes 8-bit RGB as by Pillow's `convert("RGB")`: grey is repeated, transparency dropped,
//! CMYK inverted as Adobe stores it. One difference: of 16-bit grey PNGs the upper 8 bits are kept,
//! which Pillow makes nearly white. Pixels are decoded as they lie in the file; [`Exif`] says when
//! they are then turned.
//!
//! A file that Pillow refuses is an error, so that no half image is trained on.

pub(crate) mod exif;
mod head;
mod jpeg;
mod others;
#[cfg(feature = "turbo")]
mod turbo;
mod zune;

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

use strum::VariantArray;

use crate::input::InputKind;
use crate::pixels::{Pixels, Region};

pub use exif::Exif;
pub(crate) use exif::Stored;
pub(crate) use head::Head;

/// The largest files and images that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Most pixels of an image; 64 · 2²⁰ by default.
    pub pixels: usize,
    /// Most bytes of a file; those of [`InputKind::Image`] by default.
    pub bytes: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { pixels: 64 << 20, bytes: InputKind::Image.most_bytes() as usize }
    }
}

/// The format of a file.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    VariantArray,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "UPPERCASE")]
pub enum ImageKind {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// Windows bitmap.
    Bmp,
    /// GIF, of which the first frame is taken.
    Gif,
    /// WebP.
    #[strum(serialize = "WebP")]
    WebP,
    // Packs have the numbers of variants: new ones come last.
    /// TIFF, of which the first page is taken.
    Tiff,
    /// PPM, PGM, PBM or PAM.
    #[strum(serialize = "PNM")]
    Pnm,
}

impl ImageKind {
    /// The format that the first bytes of `file` say.
    pub fn of(file: &[u8]) -> Option<Self> {
        match file {
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [b'G', b'I', b'F', b'8', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            [b'B', b'M', ..] => Some(Self::Bmp),
            [b'I', b'I', b'*' | b'+', 0, ..] | [b'M', b'M', 0, b'*' | b'+', ..] => Some(Self::Tiff),
            [b'P', b'1'..=b'7', space, ..] if space.is_ascii_whitespace() => Some(Self::Pnm),
            _ => None,
        }
    }

    /// Extensions of all files that are decoded.
    pub fn all_extensions() -> impl Iterator<Item = &'static str> {
        Self::VARIANTS.iter().flat_map(|kind| kind.extensions()).copied()
    }

    /// Extensions of such files, the usual one first.
    pub(crate) fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Jpeg => &["jpg", "jpeg", "jfif"],
            Self::Png => &["png"],
            Self::Bmp => &["bmp"],
            Self::Gif => &["gif"],
            Self::WebP => &["webp"],
            Self::Tiff => &["tif", "tiff"],
            Self::Pnm => &["ppm", "pgm", "pbm", "pnm"],
        }
    }
}

/// What the header of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// The format.
    pub kind: ImageKind,
    /// In pixels.
    pub height: usize,
    /// In pixels.
    pub width: usize,
    /// Values stored per pixel: 1 grey, 3 colour, 4 CMYK or with transparency; a palette counts as
    /// 1.
    pub components: usize,
    /// Whether a JPEG is progressive: it takes three times as long, and a part of it nearly as long
    /// as all.
    pub progressive: bool,
}

/// The outcome of decoding an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Decoded {
    /// Damage that Pillow accepts silently. It is accepted here too, and reported as far as the
    /// library tells: libjpeg-turbo notices most of it, zune-jpeg inside a scan no more than that a
    /// marker breaks it off, and of other formats none is reported.
    pub warning: Option<String>,
}

/// The library that decodes JPEGs. They differ in speed, and by up to 9 levels where colour is
/// subsampled.
///
/// The default is the first of those compiled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum JpegLibrary {
    /// libjpeg-turbo: pixels equal to Pillow's, and parts of an image.
    #[cfg(feature = "turbo")]
    #[default]
    LibjpegTurbo,
    /// zune-jpeg: pure Rust.
    #[cfg_attr(not(feature = "turbo"), default)]
    ZuneJpeg,
}

/// Decodes files. Make one per thread: it keeps buffers. What an image becomes does not depend on
/// those before it.
#[derive(Debug)]
pub struct Decoder {
    limits: DecodeLimits,
    library: JpegLibrary,
    /// Rows as a decoder returns them, if they are not RGB.
    raw: Vec<u8>,
    /// A JPEG as zune-jpeg reads it.
    clean: Vec<u8>,
}

impl Decoder {
    /// A decoder with the default JPEG library.
    ///
    /// # Errors
    /// If the library cannot allocate what it needs.
    pub fn new(limits: DecodeLimits) -> Result<Self, DecodeError> {
        Self::with(JpegLibrary::default(), limits)
    }

    /// A decoder with a chosen JPEG library.
    ///
    /// # Errors
    /// If the library cannot allocate what it needs.
    pub fn with(library: JpegLibrary, limits: DecodeLimits) -> Result<Self, DecodeError> {
        match library {
            // Each image gets a handle of its own; this one shows that there can be one.
            #[cfg(feature = "turbo")]
            JpegLibrary::LibjpegTurbo => drop(turbo::Turbo::new()?),
            JpegLibrary::ZuneJpeg => {}
        }
        Ok(Self { limits, library, raw: Vec::new(), clean: Vec::new() })
    }

    /// Reads the header alone, without decoding.
    ///
    /// # Errors
    /// If the file is of no known format, its header is damaged, or it exceeds the limits.
    pub fn header(&self, file: &[u8]) -> Result<Header, DecodeError> {
        let (bytes, most) = (file.len(), self.limits.bytes);
        if bytes > most {
            return Err(DecodeError::FileTooLarge { bytes, most });
        }
        let kind = ImageKind::of(file).ok_or_else(|| match &file[..bytes.min(8)] {
            [] => DecodeError::Empty,
            // ISO's container, of which phones' images are one kind.
            [_, _, _, _, b'f', b't', b'y', b'p'] => DecodeError::Heif,
            start => DecodeError::Unknown { start: start.escape_ascii().to_string() },
        })?;
        let header = shielded(kind, || match kind {
            ImageKind::Jpeg => jpeg::header(file, self.library),
            ImageKind::Png => others::png_header(file),
            ImageKind::Bmp
            | ImageKind::Gif
            | ImageKind::WebP
            | ImageKind::Tiff
            | ImageKind::Pnm => others::header(kind, file),
        })?;
        let Header { height, width, .. } = header;
        if height == 0 || width == 0 {
            return Err(DecodeError::corrupt(kind, "it has no pixels"));
        }
        let most = self.limits.pixels;
        if height.checked_mul(width).is_none_or(|pixels| pixels > most) {
            return Err(DecodeError::ImageTooLarge { kind, height, width, most });
        }
        Ok(header)
    }

    /// Decodes the whole image.
    ///
    /// # Errors
    /// If the file is of no known format, damaged or truncated (whenever Pillow raises an error),
    /// or exceeds the limits. The content of `into` is then meaningless.
    pub fn decode(&mut self, file: &[u8], into: &mut Pixels) -> Result<Decoded, DecodeError> {
        self.decode_region(file, None, into).map(|(_, decoded)| decoded)
    }

    /// Decodes the region `wanted` and as little around it as the format allows; returns the region
    /// that `into` then holds.
    ///
    /// The pixels equal those of a whole decode. Only libjpeg-turbo decodes parts; others decode
    /// everything. Damage below the part goes unnoticed, unless the file is truncated.
    ///
    /// # Errors
    /// As for [`Self::decode`].
    ///
    /// # Panics
    /// If `wanted` is not inside the image or has no pixels.
    pub fn decode_part(
        &mut self,
        file: &[u8],
        wanted: Region,
        into: &mut Pixels,
    ) -> Result<(Region, Decoded), DecodeError> {
        self.decode_region(file, Some(wanted), into)
    }

    /// Decodes a label map, a PNG that is grey or has a palette, or one of the colours `by_colour`,
    /// into `into`, a byte for each pixel; gives its height and width.
    ///
    /// # Errors
    /// As for [`Self::decode`], and if the file is of another kind or has another colour.
    pub(crate) fn decode_values(
        &mut self,
        file: &[u8],
        by_colour: &BTreeMap<[u8; 3], u8>,
        into: &mut Vec<u8>,
    ) -> Result<[usize; 2], DecodeError> {
        let kind = self.header(file)?.kind;
        let raw = &mut self.raw;
        match kind {
            ImageKind::Png => shielded(kind, || others::decode_values(file, by_colour, raw, into)),
            ImageKind::Jpeg
            | ImageKind::Bmp
            | ImageKind::Gif
            | ImageKind::WebP
            | ImageKind::Tiff
            | ImageKind::Pnm => Err(DecodeError::NotLabels { found: kind.to_string() }),
        }
    }

    fn decode_region(
        &mut self,
        file: &[u8],
        wanted: Option<Region>,
        into: &mut Pixels,
    ) -> Result<(Region, Decoded), DecodeError> {
        let header = &self.header(file)?;
        let (kind, size) = (header.kind, [header.height, header.width]);
        if let Some(wanted) = wanted {
            assert!(wanted.is_inside(size), "{wanted:?} is not inside {size:?}");
        }
        let Self { library, raw, clean, .. } = self;
        let warning = match (kind, *library) {
            #[cfg(feature = "turbo")]
            (ImageKind::Jpeg, JpegLibrary::LibjpegTurbo) => {
                return turbo::Turbo::new()?.decode(file, header, wanted, raw, into);
            }
            (ImageKind::Jpeg, JpegLibrary::ZuneJpeg) => {
                shielded(kind, || zune::decode(file, header, (clean, raw), into))?
            }
            (ImageKind::Png, _) => {
                shielded(kind, || others::decode_png(file, header, raw, into))?;
                None
            }
            (
                ImageKind::Bmp
                | ImageKind::Gif
                | ImageKind::WebP
                | ImageKind::Tiff
                | ImageKind::Pnm,
                _,
            ) => {
                shielded(kind, || others::decode(kind, file, into))?;
                None
            }
        };
        Ok((into.region(), Decoded { warning }))
    }
}

/// Runs a decoder; a panic becomes an error about the file, so that damage does not end a run.
fn shielded<T>(
    kind: ImageKind,
    decode: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    // The decoder leaves only buffers that are overwritten before they are read.
    panic::catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(DecodeError::corrupt(kind, "its decoder panicked")))
}

/// A file that cannot be used. Each text says what the file is or lacks, and follows its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are of no format known.
    #[error(
        "begins with `{start}`, which is no JPEG, PNG, BMP, GIF, WebP, TIFF or PNM; replace or \
         remove the file"
    )]
    Unknown {
        /// The first bytes, escaped.
        start: String,
    },
    /// A phone's HEIC, an AVIF or the like.
    #[error("is a HEIC, an AVIF or a video, which are not read; convert it to JPEG or PNG")]
    Heif,
    /// A file of a kind that its decoder does not know.
    #[error("is a {kind} of a kind that is not read: {why}; save it as a PNG or a JPEG of 8 bits")]
    Unsupported {
        /// Format.
        kind: ImageKind,
        /// The decoder's reason, one line.
        why: String,
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
    /// A JPEG of a kind that is not read.
    #[error("is {what} JPEG, {reader}; save it as an ordinary JPEG or a PNG")]
    Process {
        /// Its kind, with an article.
        what: &'static str,
        /// Who reads it.
        reader: &'static str,
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
    /// An image that is no label map.
    #[error(
        "is a {found}; a label map is a PNG, grey of 8 bits or with a palette, whose values are the \
         classes, or one of their colours: docs/segmentation.md says how to convert it"
    )]
    NotLabels {
        /// What it is.
        found: String,
    },
    /// An image that fits what belongs to it as it is seen, and is to stay as it is stored.
    #[error(
        "has {} × {} pixels as stored, and {} × {}, as what belongs to it, as its EXIF orientation \
         {orientation} turns it; set data.exif = \"apply\"", stored[0], stored[1], seen[0], seen[1]
    )]
    Turned {
        /// 2 to 8.
        orientation: u8,
        /// Height and width as stored.
        stored: [usize; 2],
        /// Height and width as seen.
        seen: [usize; 2],
    },
    /// A label map of colours with one that no class has.
    #[error(
        "has the colour #{:02x}{:02x}{:02x}, which the list of classes gives none; add it to the \
         list, or make the map again", colour[0], colour[1], colour[2]
    )]
    LabelColour {
        /// Red, green and blue.
        colour: [u8; 3],
    },
    /// The decoder could not be set up.
    #[error("cannot be decoded: libjpeg-turbo could not be started ({why}); free some memory")]
    Start {
        /// The library's reason.
        why: String,
    },
}

impl DecodeError {
    /// With the decoder's reason brought to one line.
    fn corrupt(kind: ImageKind, why: impl ToString) -> Self {
        Self::Corrupt { kind, why: one_line(why) }
    }
}

fn one_line(text: impl ToString) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
