//! Image files: one read for a prediction, several written as one PNG.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::decode::{DecodeError, DecodeLimits, Decoder};
use crate::{pixels::Pixels, transforms::resize::EvalTransform};

/// An image that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file is no image that can be decoded.
    #[error("{} {source}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// The decoder's reason.
        source: DecodeError,
    },
}

/// Reads the image at `path` at the size `[height, width]`, rows of red, green and blue, as
/// evaluation sees it.
///
/// # Errors
/// [`PictureError`] names the file.
pub fn read_picture(path: &Path, size: [usize; 2]) -> Result<Vec<u8>, PictureError> {
    let bytes =
        fs::read(path).map_err(|source| PictureError::Read { path: path.to_owned(), source })?;
    let decode_error = |source| PictureError::Decode { path: path.to_owned(), source };
    let mut pixels = Pixels::default();
    // A file whose damage Pillow accepts is shown as far as it decodes.
    let _ = Decoder::new(DecodeLimits::default())
        .and_then(|mut decoder| decoder.decode(&bytes, &mut pixels))
        .map_err(decode_error)?;
    let mut seen = vec![0; 3 * size[0] * size[1]];
    EvalTransform::default().apply(&pixels, size, &mut seen);
    Ok(seen)
}

/// Pixels between images.
const GAP: usize = 4;
/// Grey around them.
const BACKGROUND: u8 = 64;

/// Puts images of one size into rows of `columns`.
///
/// # Panics
/// If they are not of one size, or `columns` is 0.
pub fn contact_sheet(images: &[Pixels], columns: usize) -> Pixels {
    let (height, width) = images.first().map_or((0, 0), |image| (image.height, image.width));
    let rows = images.len().div_ceil(columns);
    let columns = columns.min(images.len());
    let mut sheet = Pixels::black(rows * (height + GAP) + GAP, columns * (width + GAP) + GAP);
    sheet.data.fill(BACKGROUND);
    for (place, image) in images.iter().enumerate() {
        assert_eq!((image.height, image.width), (height, width), "images of several sizes");
        let (top, left) = (place / columns * (height + GAP), place % columns * (width + GAP));
        for (y, line) in image.data.chunks_exact(3 * width).enumerate() {
            let to = 3 * ((top + GAP + y) * sheet.width + left + GAP);
            sheet.data[to..to + line.len()].copy_from_slice(line);
        }
    }
    sheet
}

/// Writes a PNG.
///
/// # Errors
/// If the file cannot be written, or the image has no pixels.
pub fn write_png(path: &Path, image: &Pixels) -> io::Result<()> {
    let side = |side| u32::try_from(side).map_err(io::Error::other);
    let mut file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(&mut file, side(image.width)?, side(image.height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&image.data)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_is_in_its_place() {
        let images: Vec<Pixels> =
            (1..=5).map(|value| Pixels { height: 2, width: 3, data: vec![value; 18] }).collect();
        let sheet = contact_sheet(&images, 2);
        assert_eq!((sheet.height, sheet.width), (3 * 6 + 4, 2 * 7 + 4));
        let at = |y: usize, x: usize| sheet.data[3 * (y * sheet.width + x)];
        assert_eq!([at(4, 4), at(5, 13), at(10, 4), at(11, 11), at(16, 6)], [1, 2, 3, 4, 5]);
        assert_eq!([at(0, 0), at(6, 4), at(16, 11)], [BACKGROUND; 3]);
    }
}
