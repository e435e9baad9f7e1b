//! Image files: one read for a prediction, several written as one PNG.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::decode::{DecodeError, DecodeLimits, Decoder, Exif};
use crate::input::{InputKind, read_input};
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
    /// An image in memory is none.
    #[error(
        "an image of {height} × {width} pixels has {bytes} bytes: it needs pixels, and three bytes \
         for each"
    )]
    Shape {
        /// Its height.
        height: usize,
        /// Its width.
        width: usize,
        /// Its bytes.
        bytes: usize,
    },
}

impl Pixels {
    /// Checks that there are pixels, and that the bytes are theirs.
    ///
    /// # Errors
    /// [`PictureError::Shape`].
    pub fn check(&self) -> Result<(), PictureError> {
        let Self { height, width, data } = self;
        let needed = height.checked_mul(*width).and_then(|pixels| pixels.checked_mul(3));
        if needed.is_some_and(|needed| needed > 0 && needed == data.len()) {
            return Ok(());
        }
        Err(PictureError::Shape { height: *height, width: *width, bytes: data.len() })
    }
}

/// Reads the image at `path` at the size `[height, width]`, rows of red, green and blue, as
/// evaluation sees it; turned as its EXIF orientation says if `exif` is to be applied.
///
/// # Errors
/// [`PictureError`] names the file.
pub fn read_picture(path: &Path, size: [usize; 2], exif: Exif) -> Result<Vec<u8>, PictureError> {
    let pixels = read_whole_picture(path, exif)?;
    let mut seen = vec![0; 3 * size[0] * size[1]];
    EvalTransform::default().apply(&pixels, size, &mut seen);
    Ok(seen)
}

/// Reads the whole image at `path`, turned as its EXIF orientation says if `exif` is to be applied.
///
/// # Errors
/// [`PictureError`] names the file.
pub fn read_whole_picture(path: &Path, exif: Exif) -> Result<Pixels, PictureError> {
    let decode_error = |source| PictureError::Decode { path: path.to_owned(), source };
    let bytes = read_input(path, InputKind::Image).map_err(|source| {
        if source.kind() != io::ErrorKind::FileTooLarge {
            return PictureError::Read { path: path.to_owned(), source };
        }
        let most = InputKind::Image.most_bytes() as usize;
        let stated = fs::metadata(path).map_or(0, |found| found.len() as usize);
        decode_error(DecodeError::FileTooLarge { bytes: stated.max(most + 1), most })
    })?;
    let mut pixels = Pixels::default();
    // A file whose damage Pillow accepts is shown as far as it decodes.
    let decoder = Decoder::new(DecodeLimits::default()).map_err(decode_error);
    let mut decoder = decoder?;
    let _ = decoder.decode(&bytes, &mut pixels).map_err(decode_error)?;
    if exif == Exif::Apply {
        pixels.turn(decoder.stored(&bytes, [pixels.height, pixels.width]).orientation);
    }
    Ok(pixels)
}

/// Pixels between images.
const GAP: usize = 4;
/// Grey around them.
const BACKGROUND: u8 = 64;

/// Puts images of one size into rows of `columns`; `None` leaves a place empty.
///
/// # Panics
/// If they are not of one size, or `columns` is 0.
pub fn contact_sheet(images: &[Option<Pixels>], columns: usize) -> Pixels {
    let first = images.iter().flatten().next();
    let (height, width) = first.map_or((0, 0), |image| (image.height, image.width));
    let rows = images.len().div_ceil(columns);
    let columns = columns.min(images.len());
    let mut sheet = Pixels::black(rows * (height + GAP) + GAP, columns * (width + GAP) + GAP);
    sheet.data.fill(BACKGROUND);
    for (place, image) in images.iter().enumerate() {
        let Some(image) = image else { continue };
        assert_eq!((image.height, image.width), (height, width), "images of several sizes");
        let (top, left) = (place / columns * (height + GAP), place % columns * (width + GAP));
        for (y, line) in image.data.chunks_exact(3 * width).enumerate() {
            let to = 3 * ((top + GAP + y) * sheet.width + left + GAP);
            sheet.data[to..to + line.len()].copy_from_slice(line);
        }
    }
    sheet
}

/// A PNG in memory.
///
/// # Errors
/// If the image has no pixels.
pub fn encode_png(image: &Pixels) -> io::Result<Vec<u8>> {
    let side = |side| u32::try_from(side).map_err(io::Error::other);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side(image.width)?, side(image.height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&image.data)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_three_bytes_for_each_pixel() {
        let check = |height, width, bytes| {
            Pixels { height, width, data: vec![0; bytes] }
                .check()
                .map_err(|error| error.to_string())
        };
        assert_eq!(check(2, 3, 18), Ok(()));
        let said =
            "an image of 2 × 3 pixels has 6 bytes: it needs pixels, and three bytes for each";
        assert_eq!(check(2, 3, 6), Err(said.to_owned()));
        assert!(check(0, 3, 0).is_err() && check(usize::MAX, 2, 6).is_err());
    }

    #[test]
    fn what_is_larger_than_an_image_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.png");
        std::fs::File::create(&path).unwrap().set_len(3 << 30).unwrap();
        for (path, bytes) in
            [(path.as_path(), 3_usize << 30), (Path::new("/dev/zero"), (256 << 20) + 1)]
        {
            let error = read_whole_picture(path, Exif::Ignore).unwrap_err();
            let PictureError::Decode { source, .. } = error else { panic!("{error}") };
            let said = source.to_string();
            assert!(said.starts_with(&format!("has {bytes} bytes, more than the ")), "{said}");
        }
        let error =
            read_whole_picture(&folder.path().join("absent.png"), Exif::Ignore).unwrap_err();
        assert!(matches!(error, PictureError::Read { .. }), "{error}");
    }

    #[test]
    fn every_image_is_in_its_place() {
        let image = |value: u8| Pixels { height: 2, width: 3, data: vec![value; 18] };
        let mut images: Vec<Option<Pixels>> = (1..=5).map(|value| Some(image(value))).collect();
        let sheet = contact_sheet(&images, 2);
        assert_eq!((sheet.height, sheet.width), (3 * 6 + 4, 2 * 7 + 4));
        let at = |y: usize, x: usize| sheet.data[3 * (y * sheet.width + x)];
        assert_eq!([at(4, 4), at(5, 13), at(10, 4), at(11, 11), at(16, 6)], [1, 2, 3, 4, 5]);
        assert_eq!([at(0, 0), at(6, 4), at(16, 11)], [BACKGROUND; 3]);
        images[1] = None;
        let sheet = contact_sheet(&images, 2);
        assert_eq!(sheet.data[3 * (5 * sheet.width + 13)], BACKGROUND);
        let pixel = Pixels { height: 1, width: 2, data: vec![1, 2, 3, 4, 5, 6] }.enlarged(2);
        let row = [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6];
        assert_eq!((pixel.height, pixel.width, pixel.data), (2, 4, [row, row].concat()));
    }
}
