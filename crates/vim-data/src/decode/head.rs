//! What the start of a file tells of an image beside its size.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use png::{BitDepth, ColorType};
use zune_core::bytestream::ZCursor;
use zune_jpeg::JpegDecoder;

use super::{DecodeError, Decoder, Header, ImageKind, shielded};

/// What the start of a file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Head {
    /// Size and format.
    pub(crate) header: Header,
    /// How the pixels lie by the EXIF data, 1 to 8: 1 as they are to be seen, or nothing is said.
    pub(crate) orientation: u8,
    /// Whether it is a grey PNG of 8 bits, as label maps are.
    pub(crate) is_grey8: bool,
}

impl Head {
    /// Height and width in pixels.
    pub(crate) fn size(&self) -> [usize; 2] {
        [self.header.height, self.header.width]
    }
}

impl Decoder {
    /// Reads the head of a file, of which `start` is the beginning, or the whole if `is_whole`.
    ///
    /// # Errors
    /// As for [`Self::header`]; of a beginning, also if it is too short.
    pub(crate) fn head(&self, start: &[u8], is_whole: bool) -> Result<Head, DecodeError> {
        let header = self.header(start)?;
        let kind = header.kind;
        shielded(kind, || {
            let (mut exif, mut is_grey8) = (None, false);
            match kind {
                ImageKind::Jpeg => {
                    let mut decoder = JpegDecoder::new(ZCursor::new(start));
                    // Whether the file can be decoded is not asked here: what is wrong behind the
                    // EXIF data does not matter.
                    let _ = decoder.decode_headers();
                    exif = decoder.exif().cloned();
                }
                ImageKind::Png => {
                    let reader = png::Decoder::new(Cursor::new(start)).read_info();
                    let truncated = |_| DecodeError::Truncated { kind };
                    let reader = reader.map_err(truncated)?;
                    let info = reader.info();
                    is_grey8 = (info.color_type, info.bit_depth)
                        == (ColorType::Grayscale, BitDepth::Eight);
                    exif = info.exif_metadata.as_ref().map(|exif| exif.to_vec());
                }
                // The data follow the image.
                ImageKind::WebP if !is_whole => return Err(DecodeError::Truncated { kind }),
                ImageKind::WebP => {
                    let decoder = WebPDecoder::new(Cursor::new(start)).ok();
                    exif = decoder.and_then(|mut decoder| decoder.exif_metadata().ok().flatten());
                }
                ImageKind::Bmp | ImageKind::Gif => {}
            }
            let orientation = exif.and_then(|exif| Orientation::from_exif_chunk(&exif));
            let orientation = orientation.map_or(1, Orientation::to_exif);
            Ok(Head { header, orientation, is_grey8 })
        })
    }
}
