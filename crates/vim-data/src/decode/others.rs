//! PNG by the `png` crate; BMP, GIF, WebP, TIFF and PNM by the `image` crate.

use std::collections::BTreeMap;
use std::io::Cursor;

use image::metadata::Orientation;
use image::{ColorType as Stored, ImageDecoder, ImageError, ImageFormat, ImageReader};
use png::{ColorType, Decoder, DecodingError, Transformations};

use super::{DecodeError, Header, ImageKind, one_line};
use crate::pixels::Pixels;

/// A decoder that may allocate 64 MiB beside the pixels.
fn png_decoder(file: &[u8]) -> Decoder<Cursor<&[u8]>> {
    Decoder::new_with_limits(Cursor::new(file), png::Limits { bytes: 64 << 20 })
}

/// Size and channels of a PNG.
pub(super) fn png_header(file: &[u8]) -> Result<Header, DecodeError> {
    let mut decoder = png_decoder(file);
    let info = decoder.read_header_info().map_err(png_error)?;
    Ok(Header {
        kind: ImageKind::Png,
        height: info.height as usize,
        width: info.width as usize,
        components: info.color_type.samples(),
        progressive: false,
    })
}

/// Decodes a whole PNG. Palettes and fewer bits are widened to 8; of 16 bits the upper 8 are kept.
pub(super) fn decode_png(
    file: &[u8],
    header: &Header,
    raw: &mut Vec<u8>,
    into: &mut Pixels,
) -> Result<(), DecodeError> {
    let mut decoder = png_decoder(file);
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(png_error)?;
    into.reshape([header.height, header.width]);
    let (color, _) = reader.output_color_type();
    if color == ColorType::Rgb {
        reader.next_frame(&mut into.data).map_err(png_error)?;
        return Ok(());
    }
    let channels = color.samples();
    raw.resize(channels * into.height * into.width, 0);
    reader.next_frame(raw).map_err(png_error)?;
    let pixels = into.data.as_chunks_mut::<3>().0.iter_mut().zip(raw.chunks_exact(channels));
    for (to, from) in pixels {
        *to = match *from {
            [red, green, blue, _] => [red, green, blue],
            // Grey, perhaps with transparency.
            [grey, ..] => [grey; 3],
            [] => [0; 3],
        };
    }
    Ok(())
}

/// Decodes a label map into `into`, a byte for each pixel: the values of a grey PNG of 8 bits and
/// the places in a palette as they are, colours as `by_colour` has them. Gives its height and
/// width.
///
/// Other PNGs are refused: their values are of another scale.
pub(super) fn decode_values(
    file: &[u8],
    by_colour: &BTreeMap<[u8; 3], u8>,
    raw: &mut Vec<u8>,
    into: &mut Vec<u8>,
) -> Result<[usize; 2], DecodeError> {
    let mut reader = png_decoder(file).read_info().map_err(png_error)?;
    let info = reader.info();
    let (color, bits) = (info.color_type, usize::from(info.bit_depth as u8));
    let size = [info.height as usize, info.width as usize];
    into.resize(size[0] * size[1], 0);
    let found = match (color, bits) {
        (ColorType::Grayscale | ColorType::Indexed, 8) => {
            reader.next_frame(into).map_err(png_error)?;
            return Ok(size);
        }
        (ColorType::Indexed, _) => {
            let line = (size[1] * bits).div_ceil(8);
            raw.resize(size[0] * line, 0);
            reader.next_frame(raw).map_err(png_error)?;
            for (to, from) in into.chunks_exact_mut(size[1]).zip(raw.chunks_exact(line)) {
                for (at, value) in to.iter_mut().enumerate() {
                    let first = at * bits; // from the byte's highest bit down
                    *value = from[first / 8] << (first % 8) >> (8 - bits);
                }
            }
            return Ok(size);
        }
        (ColorType::Rgb | ColorType::Rgba, 8) if !by_colour.is_empty() => {
            raw.resize(color.samples() * into.len(), 0);
            reader.next_frame(raw).map_err(png_error)?;
            for (value, pixel) in into.iter_mut().zip(raw.chunks_exact(color.samples())) {
                let colour = [pixel[0], pixel[1], pixel[2]];
                *value = *by_colour.get(&colour).ok_or(DecodeError::LabelColour { colour })?;
            }
            return Ok(size);
        }
        (ColorType::Grayscale, _) => format!("grey PNG of {bits} bits"),
        (ColorType::GrayscaleAlpha, _) => "grey PNG with transparency".to_owned(),
        (ColorType::Rgb | ColorType::Rgba, 16) => "PNG of colours of 16 bits".to_owned(),
        (ColorType::Rgb | ColorType::Rgba, _) => {
            "PNG of colours, and no list gives each class its own".to_owned()
        }
    };
    Err(DecodeError::NotLabels { found })
}

pub(super) fn png_error(error: DecodingError) -> DecodeError {
    let kind = ImageKind::Png;
    match error {
        DecodingError::IoError(_) => DecodeError::Truncated { kind },
        DecodingError::Format(_) | DecodingError::Parameter(_) | DecodingError::LimitsExceeded => {
            DecodeError::corrupt(kind, error)
        }
    }
}

/// Size and channels of a file of another format.
pub(super) fn header(kind: ImageKind, file: &[u8]) -> Result<Header, DecodeError> {
    let decoder = reader(kind, file).into_decoder().map_err(|why| error(kind, why))?;
    let (width, height) = decoder.dimensions();
    if matches!(decoder.color_type(), Stored::Rgb32F | Stored::Rgba32F) {
        // Nothing says which of them is white.
        let why = "its values are floating-point numbers".to_owned();
        return Err(DecodeError::Unsupported { kind, why });
    }
    Ok(Header {
        kind,
        height: height as usize,
        width: width as usize,
        components: decoder.color_type().channel_count().into(),
        progressive: false,
    })
}

/// Decodes the whole file.
pub(super) fn decode(kind: ImageKind, file: &[u8], into: &mut Pixels) -> Result<(), DecodeError> {
    let image = reader(kind, file).decode().map_err(|why| error(kind, why))?.into_rgb8();
    into.reshape([image.height() as usize, image.width() as usize]);
    into.data.copy_from_slice(&image);
    Ok(())
}

/// How the pixels lie by the metadata of a file whose decoder tells it.
pub(super) fn orientation(kind: ImageKind, file: &[u8]) -> Option<Orientation> {
    reader(kind, file).into_decoder().ok()?.orientation().ok()
}

fn reader(kind: ImageKind, file: &[u8]) -> ImageReader<Cursor<&[u8]>> {
    let format = match kind {
        ImageKind::Jpeg => ImageFormat::Jpeg,
        ImageKind::Png => ImageFormat::Png,
        ImageKind::Bmp => ImageFormat::Bmp,
        ImageKind::Gif => ImageFormat::Gif,
        ImageKind::WebP => ImageFormat::WebP,
        ImageKind::Tiff => ImageFormat::Tiff,
        ImageKind::Pnm => ImageFormat::Pnm,
    };
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    // The size was checked before; this limits the decoder's own memory.
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(1 << 30);
    reader.limits(limits);
    reader
}

fn error(kind: ImageKind, error: ImageError) -> DecodeError {
    if matches!(error, ImageError::IoError(_)) {
        return DecodeError::Truncated { kind };
    }
    if let ImageError::Unsupported(why) = &error {
        return DecodeError::Unsupported { kind, why: one_line(why) };
    }
    DecodeError::corrupt(kind, error)
}
