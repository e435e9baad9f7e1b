//! BMP, GIF and WebP, by the `image` crate.

use std::io::Cursor;

use image::{ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::{DecodeError, Decoded, Header, ImageKind, prepare};
use crate::pixels::Pixels;

/// Size and channels.
pub(super) fn header(kind: ImageKind, file: &[u8]) -> Result<Header, DecodeError> {
    let decoder = reader(kind, file)?.into_decoder().map_err(|why| error(kind, why))?;
    let (width, height) = decoder.dimensions();
    Ok(Header {
        kind,
        height: height as usize,
        width: width as usize,
        components: decoder.color_type().channel_count().into(),
        progressive: false,
    })
}

/// Decodes the whole file.
pub(super) fn decode(
    kind: ImageKind,
    file: &[u8],
    into: &mut Pixels,
) -> Result<Decoded, DecodeError> {
    let image = reader(kind, file)?.decode().map_err(|why| error(kind, why))?.into_rgb8();
    prepare(into, image.height() as usize, image.width() as usize);
    into.data.copy_from_slice(&image);
    Ok(Decoded::default())
}

fn reader(kind: ImageKind, file: &[u8]) -> Result<ImageReader<Cursor<&[u8]>>, DecodeError> {
    let format = match kind {
        ImageKind::Bmp => ImageFormat::Bmp,
        ImageKind::Gif => ImageFormat::Gif,
        ImageKind::WebP => ImageFormat::WebP,
        ImageKind::Jpeg | ImageKind::Png => {
            return Err(DecodeError::corrupt(kind, "it has a decoder of its own"));
        }
    };
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    // The size was checked before; this limits the decoder's own memory.
    let mut limits = Limits::default();
    limits.max_alloc = Some(1 << 30);
    reader.limits(limits);
    Ok(reader)
}

fn error(kind: ImageKind, error: ImageError) -> DecodeError {
    if matches!(error, ImageError::IoError(_)) {
        return DecodeError::Truncated { kind };
    }
    DecodeError::corrupt(kind, error)
}
