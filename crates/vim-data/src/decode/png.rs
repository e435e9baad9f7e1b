//! PNGs.

use std::io::Cursor;

use png::{ColorType, DecodingError, Limits, Reader, Transformations};

use super::{DecodeError, Decoded, Header, ImageKind, prepare};
use crate::pixels::Pixels;

/// Bytes that the decoder may allocate beside the pixels.
const ALLOCATION: usize = 64 << 20;

/// Size and channels.
pub(super) fn header(file: &[u8]) -> Result<Header, DecodeError> {
    let mut decoder =
        png::Decoder::new_with_limits(Cursor::new(file), Limits { bytes: ALLOCATION });
    let info = decoder.read_header_info().map_err(error)?;
    Ok(Header {
        kind: ImageKind::Png,
        height: info.height as usize,
        width: info.width as usize,
        components: info.color_type.samples(),
        progressive: false,
    })
}

/// Decodes the whole file. Palettes and fewer bits are widened to 8; of 16 bits the upper 8 are
/// kept.
pub(super) fn decode(
    file: &[u8],
    header: &Header,
    raw: &mut Vec<u8>,
    into: &mut Pixels,
) -> Result<Decoded, DecodeError> {
    let mut decoder =
        png::Decoder::new_with_limits(Cursor::new(file), Limits { bytes: ALLOCATION });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(error)?;
    prepare(into, header.height, header.width);
    let (color, _) = reader.output_color_type();
    if color == ColorType::Rgb {
        return read(&mut reader, &mut into.data);
    }
    let channels = color.samples();
    raw.resize(channels * header.height * header.width, 0);
    let decoded = read(&mut reader, raw)?;
    let pixels = into.data.as_chunks_mut::<3>().0.iter_mut().zip(raw.chunks_exact(channels));
    for (to, from) in pixels {
        *to = match *from {
            [red, green, blue, _] => [red, green, blue],
            // Grey, perhaps with transparency.
            [grey, ..] => [grey; 3],
            [] => [0; 3],
        };
    }
    Ok(decoded)
}

fn read(reader: &mut Reader<Cursor<&[u8]>>, into: &mut [u8]) -> Result<Decoded, DecodeError> {
    reader.next_frame(into).map_err(error)?;
    Ok(Decoded::default())
}

fn error(error: DecodingError) -> DecodeError {
    let kind = ImageKind::Png;
    match error {
        DecodingError::IoError(_) => DecodeError::Truncated { kind },
        DecodingError::Format(_) | DecodingError::Parameter(_) | DecodingError::LimitsExceeded => {
            DecodeError::corrupt(kind, error)
        }
    }
}
