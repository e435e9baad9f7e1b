//! JPEGs by zune-jpeg.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{DecodeError, Decoded, Header, ImageKind, cmyk, markers, prepare};
use crate::pixels::Pixels;

/// Decodes the whole file.
///
/// In strict mode, since the lenient one accepts half a file. Strict mode still accepts a missing
/// end, which is checked first.
pub(super) fn decode(
    file: &[u8],
    header: &Header,
    raw: &mut Vec<u8>,
    into: &mut Pixels,
) -> Result<Decoded, DecodeError> {
    let kind = ImageKind::Jpeg;
    if !markers::has_end(file) {
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

    let Header { height, width, .. } = *header;
    prepare(into, height, width);
    let out = if is_cmyk {
        raw.resize(4 * height * width, 0);
        &mut *raw
    } else {
        &mut into.data
    };
    decoder.decode_into(out).map_err(|error| DecodeError::corrupt(kind, error))?;
    if is_cmyk {
        cmyk::to_rgb(raw, &mut into.data);
    }
    Ok(Decoded::default())
}
