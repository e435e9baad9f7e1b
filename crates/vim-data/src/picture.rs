//! One image file, made ready for a model as evaluation does.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{DecodeError, DecodeLimits, Decoder, Evaluation, Pixels};

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

/// Reads the image at `path` at the size `[height, width]`, rows of red, green and blue, as evaluation sees it.
///
/// # Errors
/// [`PictureError`] names the file.
pub fn read_picture(path: &Path, size: [usize; 2]) -> Result<Vec<u8>, PictureError> {
    let bytes =
        fs::read(path).map_err(|source| PictureError::Read { path: path.to_owned(), source })?;
    let decode_error = |source| PictureError::Decode { path: path.to_owned(), source };
    let mut pixels = Pixels::default();
    // Of a damaged file that Pillow takes, what could be decoded is shown.
    let _ = Decoder::new(DecodeLimits::default())
        .and_then(|mut decoder| decoder.decode(&bytes, &mut pixels))
        .map_err(decode_error)?;
    let mut seen = vec![0; 3 * size[0] * size[1]];
    Evaluation::default().apply(&pixels, size, &mut seen);
    Ok(seen)
}
