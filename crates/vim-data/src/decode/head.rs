//! What the start of a file tells of an image beside its size.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_jpeg::JpegDecoder;

use super::{DecodeError, Decoder, Header, ImageKind, Stored, others, shielded};

/// What the start of a file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Head {
    /// Size and format.
    pub(crate) header: Header,
    /// How the pixels lie by the EXIF data, 1 to 8: 1 as they are to be seen, or nothing is said.
    pub(crate) orientation: u8,
}

impl Head {
    /// How the pixels lie.
    pub(crate) fn stored(&self) -> Stored {
        let Header { height, width, .. } = self.header;
        Stored { size: [height, width], orientation: self.orientation }
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
            let mut exif = None;
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
                    let reader = reader.map_err(others::png_error)?;
                    exif = reader.info().exif_metadata.as_ref().map(|exif| exif.to_vec());
                }
                // The data follow the image, and its flags say whether there are any.
                ImageKind::WebP if !is_whole && has_exif(start) => {
                    return Err(DecodeError::Truncated { kind });
                }
                ImageKind::WebP => {
                    let decoder = WebPDecoder::new(Cursor::new(start)).ok();
                    exif = decoder.and_then(|mut decoder| decoder.exif_metadata().ok().flatten());
                }
                ImageKind::Bmp | ImageKind::Gif | ImageKind::Tiff | ImageKind::Pnm => {}
            }
            let of_exif = |exif: Vec<u8>| Orientation::from_exif_chunk(&exif);
            let orientation = match kind == ImageKind::Tiff {
                true => others::orientation(kind, start),
                false => exif.and_then(of_exif),
            };
            let orientation = orientation.map_or(1, Orientation::to_exif);
            Ok(Head { header, orientation })
        })
    }
}

/// Whether a WebP has EXIF data by the flags of its first chunk.
fn has_exif(start: &[u8]) -> bool {
    const EXIF: u8 = 0x08;
    start.get(12..16) == Some(b"VP8X") && start.get(20).is_some_and(|flags| flags & EXIF != 0)
}

#[cfg(test)]
mod tests {
    use super::super::DecodeLimits;
    use super::*;

    /// A JPEG with EXIF data before all else: a directory of one entry, big-endian, and `fill`
    /// bytes of a preview.
    fn jpeg(orientation: u8, fill: usize) -> Vec<u8> {
        let plain = include_bytes!("../../tests/golden/src0.jpg");
        let mut exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        exif.resize(exif.len() + fill, 0);
        let length = (exif.len() as u16 + 2).to_be_bytes();
        [&plain[..2], &[0xff, 0xe1], &length, &exif, &plain[2..]].concat()
    }

    #[test]
    fn jpegs_tell_how_they_lie() {
        let decoder = Decoder::new(DecodeLimits::default()).unwrap();
        let plain = include_bytes!("../../tests/golden/src0.jpg");
        let head = decoder.head(plain, true).unwrap();
        assert_eq!(head.orientation, 1);
        for orientation in 1..=8 {
            let turned = decoder.head(&jpeg(orientation, 0), true).unwrap();
            assert_eq!(turned, Head { orientation, ..head });
        }
        // What no orientation is says nothing.
        assert_eq!(decoder.head(&jpeg(9, 0), true).unwrap(), head);
        // A beginning that ends in the data is too short.
        let long = jpeg(6, 40_000);
        assert!(decoder.head(&long[..16 << 10], false).is_err());
        assert_eq!(decoder.head(&long[..50_000], false).unwrap(), Head { orientation: 6, ..head });
    }

    /// A grey TIFF of 3 × 2 pixels, which lie as `orientation` says.
    fn tiff(orientation: u16) -> Vec<u8> {
        let tags = [256, 257, 258, 259, 262, 273, 274, 277, 278, 279];
        let values = [3, 2, 8, 1, 1, 8, orientation, 1, 2, 6];
        // The pixels are before the directory.
        let mut file = b"II*\0\x0e\0\0\0pixels\x0a\0".to_vec();
        for (tag, value) in tags.into_iter().zip(values) {
            let entry: [u16; 6] = [tag, 3, 1, 0, value, 0];
            file.extend(entry.iter().flat_map(|word| word.to_le_bytes()));
        }
        file.extend([0; 4]);
        file
    }

    #[test]
    fn tiffs_tell_how_they_lie() {
        let decoder = Decoder::new(DecodeLimits::default()).unwrap();
        for orientation in 1..=8 {
            let file = tiff(orientation);
            let head = decoder.head(&file, true).unwrap();
            assert_eq!((head.stored().size, u16::from(head.orientation)), ([2, 3], orientation));
            assert!(decoder.head(&file[..40], false).is_err(), "its directory is at the end");
        }
    }
}
