//! One image file, made ready for a model as evaluation does.

use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use image::imageops::{self, FilterType};
use image::{ImageFormat, RgbImage};
use zune_png::PngDecoder;
use zune_png::zune_core::options::DecoderOptions;

/// Share of the resized image that is kept at its centre.
///
/// # Source
/// The original's `--eval-crop-ratio`.
const CROP: f64 = 0.875;
/// Up to this side images are taken whole, as the original takes CIFAR's.
const SMALL: usize = 32;

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
    #[error("{} is no readable PNG or JPEG: {why}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// The decoder's reason.
        why: String,
    },
}

/// Reads the PNG or JPEG at `path` at the size `[height, width]`, rows of red, green and blue.
///
/// The image is resized to just cover `size / 0.875` (`size` itself up to 32 pixels) by an antialiased
/// bicubic filter, and the middle cut out. Grey images become colour, transparency is dropped, and the
/// orientation in the metadata is not looked at: all as the original's loader does.
///
/// # Errors
/// [`PictureError`] names the file.
pub fn read_picture(path: &Path, size: [usize; 2]) -> Result<Vec<u8>, PictureError> {
    let bytes =
        fs::read(path).map_err(|source| PictureError::Read { path: path.to_owned(), source })?;
    let picture = decode(bytes).map_err(|why| PictureError::Decode {
        path: path.to_owned(),
        why: why.replace('\n', " "),
    })?;
    Ok(fit(&picture, size).into_raw())
}

fn decode(bytes: Vec<u8>) -> Result<RgbImage, String> {
    if bytes.starts_with(b"\x89PNG") {
        return decode_png(bytes);
    }
    if bytes.starts_with(b"\xff\xd8") {
        let image = image::load_from_memory_with_format(&bytes, ImageFormat::Jpeg);
        return image.map(|image| image.to_rgb8()).map_err(|error| error.to_string());
    }
    Err("it begins as neither".to_owned())
}

fn decode_png(bytes: Vec<u8>) -> Result<RgbImage, String> {
    let options = DecoderOptions::default().png_set_strip_to_8bit(true);
    let mut decoder = PngDecoder::new_with_options(Cursor::new(bytes), options);
    let pixels = decoder.decode_raw().map_err(|error| format!("{error:?}"))?;
    let (width, height) = decoder.dimensions().ok_or("it has no size")?;
    let channels = decoder.colorspace().ok_or("it has no colours")?.num_components();
    let rgb: Vec<u8> = match channels {
        1 | 2 => pixels.chunks_exact(channels).flat_map(|pixel| [pixel[0]; 3]).collect(),
        3 | 4 => pixels.chunks_exact(channels).flat_map(|p| [p[0], p[1], p[2]]).collect(),
        other => return Err(format!("it has {other} channels")),
    };
    let size = |length| u32::try_from(length).map_err(|_| "it is too large".to_owned());
    RgbImage::from_raw(size(width)?, size(height)?, rgb).ok_or_else(|| "it ends early".to_owned())
}

/// Resizes and crops.
///
/// # Source
/// torchvision's `Resize` and `CenterCrop`: the longer side is rounded down, the corner half to even.
fn fit(picture: &RgbImage, [height, width]: [usize; 2]) -> RgbImage {
    let whole = height.max(width) <= SMALL;
    let larger = |side: usize| if whole { side as u32 } else { (side as f64 / CROP) as u32 };
    let (full_height, full_width) = (larger(height), larger(width));
    let (old_width, old_height) = picture.dimensions();
    // At most 65536, whatever the proportions.
    let scaled = |length: u32, by: u32, over: u32| {
        (u64::from(length) * u64::from(by) / u64::from(over.max(1))).min(1 << 16) as u32
    };
    let is_wider = u64::from(old_width) * u64::from(full_height)
        >= u64::from(old_height) * u64::from(full_width);
    let (new_width, new_height) = if is_wider {
        (scaled(full_height, old_width, old_height), full_height)
    } else {
        (full_width, scaled(full_width, old_height, old_width))
    };
    // CatmullRom is the bicubic filter with a = −0.5, Pillow's.
    let resized = imageops::resize(picture, new_width, new_height, FilterType::CatmullRom);
    let corner = |length: u32, side: u32| (f64::from(length - side) / 2.0).round_ties_even() as u32;
    let (height, width) = (height as u32, width as u32);
    let (left, top) = (corner(new_width, width), corner(new_height, height));
    imageops::crop_imm(&resized, left, top, width, height).to_image()
}
