//! JPEGs: their markers (ITU-T T.81, annex B), their four-channel colours, and zune-jpeg.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{DecodeError, Header, ImageKind};
use crate::pixels::Pixels;

/// Start of image, end of image, and what follows `0xff` inside a scan.
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const STUFFED: u8 = 0x00;
/// Markers without a segment: temporary, and the eight restarts.
const TEM: u8 = 0x01;
const RST0: u8 = 0xd0;
const RST7: u8 = 0xd7;

/// The markers of a file with their segments, up to the end of image; scans are skipped.
struct Markers<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Markers<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.at += memchr::memchr(0xff, self.file.get(self.at..)?)?;
            // Any number of 0xff may come before the code.
            self.at += self.file[self.at..].iter().position(|&byte| byte != 0xff)?;
            let code = self.file[self.at];
            self.at += 1;
            match code {
                STUFFED | TEM | RST0..=RST7 | SOI => {}
                EOI => return Some((EOI, &[])),
                code => {
                    let length: [u8; 2] = self.file.get(self.at..self.at + 2)?.try_into().ok()?;
                    let length = usize::from(u16::from_be_bytes(length)).max(2);
                    let segment = self.file.get(self.at + 2..self.at + length)?;
                    self.at += length;
                    return Some((code, segment));
                }
            }
        }
    }
}

/// Size and kind of the image, from the first frame header.
pub(super) fn header(file: &[u8]) -> Result<Header, DecodeError> {
    let kind = ImageKind::Jpeg;
    for (code, segment) in (Markers { file, at: 0 }) {
        // Every SOFn; DHT, JPG and DAC are in the same range.
        let frame = matches!(code, 0xc0..=0xcf) && !matches!(code, 0xc4 | 0xc8 | 0xcc);
        if !frame {
            continue;
        }
        let &[_precision, high, low, left, right, components, ..] = segment else {
            return Err(DecodeError::corrupt(kind, "its frame header is too short"));
        };
        return Ok(Header {
            kind,
            height: u16::from_be_bytes([high, low]).into(),
            width: u16::from_be_bytes([left, right]).into(),
            components: components.into(),
            progressive: matches!(code, 0xc2 | 0xc6 | 0xca | 0xce),
        });
    }
    Err(DecodeError::Truncated { kind })
}

/// Whether the file has an end-of-image marker: without it, Pillow takes the file for cut short.
pub(super) fn has_end(file: &[u8]) -> bool {
    // Nearly every file ends with it; some have bytes after it.
    file.ends_with(&[0xff, EOI]) || Markers { file, at: 0 }.any(|(code, _)| code == EOI)
}

/// Converts cyan, magenta, yellow and black `[pixels, 4]` as stored in a JPEG to `[pixels, 3]`.
///
/// # Source
/// Pillow: JPEGs hold CMYK inverted, as Adobe writes it; then `convert("RGB")`, where products of
/// bytes are divided by 255 by shifts.
pub(super) fn cmyk_to_rgb(stored: &[u8], rgb: &mut [u8]) {
    let (stored, rgb) = (stored.as_chunks::<4>().0, rgb.as_chunks_mut::<3>().0);
    for (&[cyan, magenta, yellow, light], rgb) in stored.iter().zip(rgb) {
        *rgb = [cyan, magenta, yellow].map(|stored| {
            let ink = u32::from(255 - stored) * u32::from(light) + 128;
            light.saturating_sub(((ink + (ink >> 8)) >> 8) as u8)
        });
    }
}

/// Decodes the whole file by zune-jpeg.
///
/// In strict mode, since the lenient one accepts half a file. Strict mode still accepts a missing
/// end, which is checked first.
pub(super) fn decode(
    file: &[u8],
    header: &Header,
    raw: &mut Vec<u8>,
    into: &mut Pixels,
) -> Result<(), DecodeError> {
    let kind = ImageKind::Jpeg;
    if !has_end(file) {
        return Err(DecodeError::Truncated { kind });
    }
    let is_cmyk = header.components == 4;
    // Four components are converted here, as Pillow does.
    let colors = if is_cmyk { ColorSpace::CMYK } else { ColorSpace::RGB };
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(colors);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    into.reshape([header.height, header.width]);
    let out = if is_cmyk {
        raw.resize(4 * header.height * header.width, 0);
        &mut *raw
    } else {
        &mut into.data
    };
    decoder.decode_into(out).map_err(|error| DecodeError::corrupt(kind, error))?;
    if is_cmyk {
        cmyk_to_rgb(raw, &mut into.data);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_inside_a_segment_is_none() {
        // A thumbnail inside APP1 has its own end of image.
        let mut file = vec![0xff, SOI, 0xff, 0xe1, 0, 6, 0xff, SOI, 0xff, EOI];
        file.extend([0xff, 0xda, 0, 2, 1, 2, 0xff, 0x00, 3, 0xff, RST0, 4]);
        assert!(!has_end(&file));
        file.extend([0xff, 0xff, EOI, 0, 0]);
        assert!(has_end(&file));
    }

    #[test]
    fn headers_that_stop_are_no_headers() {
        let whole = [0xff, SOI, 0xff, 0xc2, 0, 17, 8, 0, 3, 0, 5, 3, 1, 17, 0, 2, 17, 1, 3, 17, 1];
        let header = |file| super::header(file).map(|header| (header.height, header.width));
        assert_eq!(header(&whole), Ok((3, 5)));
        for length in 0..whole.len() {
            assert!(header(&whole[..length]).is_err(), "{length}");
        }
    }
}
