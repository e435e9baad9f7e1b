//! Label maps as pictures.

use std::io;

use super::label_map::IGNORED;
use crate::pixels::Pixels;

/// `image` with half of its colour replaced by that of each pixel's class; ignored pixels and those
/// of a black class, as a background is, stay.
///
/// # Panics
/// If there are not as many labels as pixels.
pub fn overlay(image: &Pixels, labels: &[u8], colours: &[[u8; 3]]) -> Pixels {
    assert_eq!(image.data.len(), 3 * labels.len(), "a label for each pixel");
    let mut mixed = image.clone();
    for (pixel, &label) in mixed.data.as_chunks_mut::<3>().0.iter_mut().zip(labels) {
        let colour = colours.get(usize::from(label)).filter(|&&colour| colour != [0; 3]);
        let Some(colour) = colour else { continue };
        for (value, &own) in pixel.iter_mut().zip(colour) {
            *value = u16::midpoint(u16::from(*value), u16::from(own)) as u8;
        }
    }
    mixed
}

/// The classes' colours alone; ignored pixels are black.
///
/// # Panics
/// If there are not as many labels as pixels.
pub fn coloured(labels: &[u8], [height, width]: [usize; 2], colours: &[[u8; 3]]) -> Pixels {
    assert_eq!(labels.len(), height * width, "a label for each pixel");
    let colour = |&label: &u8| colours.get(usize::from(label)).copied().unwrap_or_default();
    Pixels { height, width, data: labels.iter().flat_map(colour).collect() }
}

/// A PNG whose values are the labels, shown in the colours of the classes.
///
/// # Errors
/// If the map has no pixels.
pub fn encode_palette(labels: &[u8], size: [usize; 2], colours: &[[u8; 3]]) -> io::Result<Vec<u8>> {
    let mut palette = colours.to_vec();
    // A viewer refuses values beyond the palette.
    palette.resize(usize::from(IGNORED) + 1, [0; 3]);
    encode(labels, size, png::ColorType::Indexed, |encoder| {
        encoder.set_palette(palette.into_flattened());
    })
}

/// A grey PNG whose values are the labels.
///
/// # Errors
/// If the map has no pixels.
pub fn encode_grey(labels: &[u8], size: [usize; 2]) -> io::Result<Vec<u8>> {
    encode(labels, size, png::ColorType::Grayscale, |_| {})
}

fn encode(
    labels: &[u8],
    [height, width]: [usize; 2],
    colour: png::ColorType,
    set: impl FnOnce(&mut png::Encoder<'_, &mut Vec<u8>>),
) -> io::Result<Vec<u8>> {
    let side = |side| u32::try_from(side).map_err(io::Error::other);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side(width)?, side(height)?);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    set(&mut encoder);
    encoder.write_header()?.write_image_data(labels)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::decode::{DecodeLimits, Decoder};

    const COLOURS: [[u8; 3]; 2] = [[200, 0, 100], [0, 50, 0]];

    #[test]
    fn classes_are_seen_through_and_ignored_pixels_are_not() {
        let image = Pixels { height: 1, width: 3, data: vec![100; 9] };
        let mixed = overlay(&image, &[0, IGNORED, 1], &COLOURS);
        assert_eq!(mixed.data, [150, 50, 100, 100, 100, 100, 50, 75, 50]);
        let seen = overlay(&image, &[0, 0, 1], &[[0; 3], [0, 50, 0]]);
        assert_eq!(seen.data, [100, 100, 100, 100, 100, 100, 50, 75, 50], "a black class");
        let plain = coloured(&[1, IGNORED], [1, 2], &COLOURS);
        assert_eq!(plain.data, [0, 50, 0, 0, 0, 0]);
    }

    #[test]
    fn written_maps_are_read_as_what_they_are() {
        let labels = [0, 1, IGNORED, 1, 0, 0];
        let mut decoder = Decoder::new(DecodeLimits::default()).unwrap();
        let mut read = Vec::new();
        let grey = encode_grey(&labels, [2, 3]).unwrap();
        assert_eq!(decoder.decode_values(&grey, &BTreeMap::new(), &mut read), Ok([2, 3]));
        assert_eq!(read, labels);
        let palette = encode_palette(&labels, [2, 3], &COLOURS).unwrap();
        let mut shown = Pixels::default();
        let _ = decoder.decode(&palette, &mut shown).unwrap();
        assert_eq!(shown, coloured(&labels, [2, 3], &COLOURS));
        assert_eq!(decoder.decode_values(&palette, &BTreeMap::new(), &mut read), Ok([2, 3]));
        assert_eq!(read, labels);
    }
}
