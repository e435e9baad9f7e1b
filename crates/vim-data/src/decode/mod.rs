//! Decodes image files to pixels.
//!
//! The first bytes decide the format, not the name: ImageNet holds a PNG called `.JPEG`. Every
//! image becomes 8-bit RGB as by Pillow's `convert("RGB")`: grey is repeated, transparency dropped,
//! CMYK inverted as Adobe stores it, the orientation in the metadata ignored. One difference: of
//! 16-bit grey PNGs the upper 8 bits are kept, which Pillow makes nearly white.
//!
//! A file that Pillow refuses is an error, so that no half image is trained on.

mod cmyk;
mod error;
mod markers;
mod others;
mod png;
#[cfg(feature = "turbo")]
mod turbo;
mod zune;

use std::panic::{self, AssertUnwindSafe};

use crate::pixels::{Pixels, Region};

pub use error::DecodeError;

/// The largest files and images that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Most pixels of an image; 64 · 2²⁰ by default.
    pub pixels: usize,
    /// Most bytes of a file; 256 MiB by default.
    pub bytes: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { pixels: 64 << 20, bytes: 256 << 20 }
    }
}

/// The format of a file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ImageKind {
    /// JPEG.
    #[strum(serialize = "JPEG")]
    Jpeg,
    /// PNG.
    #[strum(serialize = "PNG")]
    Png,
    /// Windows bitmap.
    #[strum(serialize = "BMP")]
    Bmp,
    /// GIF, of which the first frame is taken.
    #[strum(serialize = "GIF")]
    Gif,
    /// WebP.
    #[strum(serialize = "WebP")]
    WebP,
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
            _ => None,
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
    /// Damage that Pillow accepts silently. It is accepted here too, and reported.
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

/// Decodes files. Make one per thread: it keeps the decoders' handles and buffers.
#[derive(Debug)]
pub struct Decoder {
    limits: DecodeLimits,
    jpeg: JpegDecoder,
    /// Rows as a decoder returns them, if they are not RGB.
    raw: Vec<u8>,
}

#[derive(Debug)]
enum JpegDecoder {
    #[cfg(feature = "turbo")]
    Turbo(turbo::Turbo),
    Zune,
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
        let jpeg = match library {
            #[cfg(feature = "turbo")]
            JpegLibrary::LibjpegTurbo => JpegDecoder::Turbo(turbo::Turbo::new()?),
            JpegLibrary::ZuneJpeg => JpegDecoder::Zune,
        };
        Ok(Self { limits, jpeg, raw: Vec::new() })
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
        let Some(kind) = ImageKind::of(file) else {
            return Err(DecodeError::unknown(file));
        };
        let header = match kind {
            ImageKind::Jpeg => markers::header(file),
            ImageKind::Png => shielded(kind, || png::header(file)),
            ImageKind::Bmp | ImageKind::Gif | ImageKind::WebP => {
                shielded(kind, || others::header(kind, file))
            }
        }?;
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
        let header = self.header(file)?;
        self.decode_whole(file, &header, into)
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
        let header = self.header(file)?;
        let size = [header.height, header.width];
        assert!(wanted.is_inside(size), "{wanted:?} is not inside {size:?}");
        #[cfg(feature = "turbo")]
        if let (ImageKind::Jpeg, JpegDecoder::Turbo(turbo)) = (header.kind, &mut self.jpeg) {
            return turbo.decode(file, &header, Some(wanted), &mut self.raw, into);
        }
        let decoded = self.decode_whole(file, &header, into)?;
        Ok((into.region(), decoded))
    }

    fn decode_whole(
        &mut self,
        file: &[u8],
        header: &Header,
        into: &mut Pixels,
    ) -> Result<Decoded, DecodeError> {
        let raw = &mut self.raw;
        match header.kind {
            ImageKind::Jpeg => match &mut self.jpeg {
                #[cfg(feature = "turbo")]
                JpegDecoder::Turbo(turbo) => {
                    turbo.decode(file, header, None, raw, into).map(|(_, decoded)| decoded)
                }
                JpegDecoder::Zune => {
                    shielded(header.kind, || zune::decode(file, header, raw, into))
                }
            },
            ImageKind::Png => shielded(header.kind, || png::decode(file, header, raw, into)),
            kind @ (ImageKind::Bmp | ImageKind::Gif | ImageKind::WebP) => {
                shielded(kind, || others::decode(kind, file, into))
            }
        }
    }
}

/// Resizes `into` to `height` × `width`, with arbitrary content.
fn prepare(into: &mut Pixels, height: usize, width: usize) {
    (into.height, into.width) = (height, width);
    into.data.resize(3 * height * width, 0);
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
