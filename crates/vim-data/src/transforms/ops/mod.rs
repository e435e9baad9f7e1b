//! Operations on the pixels of one image, equal to Pillow's bit for bit.
//!
//! An image is `[height, width, 3]` bytes of red, green and blue, changed in place.
//!
//! # Source
//! timm 0.4.12 `auto_augment.py` (which operations, and their arguments), Pillow 10.1 (`ImageOps`,
//! `ImageEnhance`, `Image.transform`, `ImageFilter.GaussianBlur`: the arithmetic).

mod affine;
mod blend;
mod blur;
mod place;
mod table;

pub use place::{flip, pad_crop, reflect_crop};

/// An operation and its argument.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum Op {
    /// Each channel stretched so that its least value is 0 and its greatest 255.
    AutoContrast,
    /// Each channel mapped so that its histogram is as even as it can be.
    Equalize,
    /// `255 − v`.
    Invert,
    /// Turned about the centre, counter-clockwise.
    Rotate {
        /// Degrees, between −90 and 90.
        degrees: f64,
    },
    /// All but the upper bits cleared.
    Posterize {
        /// How many are kept: 0 gives black, 8 and more change nothing.
        bits: u8,
    },
    /// `255 − v` from the threshold on.
    Solarize {
        /// 0..=256; 256 changes nothing.
        threshold: u16,
    },
    /// Values below 128 raised, at most to 255.
    SolarizeAdd {
        /// What is added.
        add: u8,
    },
    /// Saturation: 0 is grey, 1 the image itself, above 1 more colourful.
    Color {
        /// ≥ 0.
        factor: f64,
    },
    /// 0 is the mean grey, 1 the image itself.
    Contrast {
        /// ≥ 0.
        factor: f64,
    },
    /// 0 is black, 1 the image itself.
    Brightness {
        /// ≥ 0.
        factor: f64,
    },
    /// 0 is a smoothed image, 1 the image itself.
    Sharpness {
        /// ≥ 0.
        factor: f64,
    },
    /// Rows shifted in proportion to their number: output `(x, y)` shows input `(x + factor·y, y)`.
    ShearX {
        /// Columns per row.
        factor: f64,
    },
    /// Columns shifted in proportion to their number: output `(x, y)` shows input `(x, y +
    /// factor·x)`.
    ShearY {
        /// Rows per column.
        factor: f64,
    },
    /// Shifted to the left.
    TranslateX {
        /// Columns; they need not be whole.
        pixels: f64,
    },
    /// Shifted upwards.
    TranslateY {
        /// Rows; they need not be whole.
        pixels: f64,
    },
    /// Every channel replaced by the luma.
    Grayscale,
    /// Gaussian blur, as three box blurs with a fractional radius.
    Blur {
        /// Standard deviation in pixels, ≥ 0.
        radius: f64,
    },
}

/// Buffers that operations work in. Keep one per thread: they grow once and are then reused.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// A copy of the image.
    bytes: Vec<u8>,
    /// What affine maps need.
    lines: affine::Lines,
    /// A few rows of sums.
    floats: Vec<f32>,
    /// A row of sums.
    words: Vec<u32>,
}

/// Applies an affine map to `image`, `[height, width, 3]`: `(x, y)` of the output, pixels' centres
/// at halves, shows the input at `(a·x + b·y + c, d·x + e·y + f)`, or `fill` outside. Bicubic, with
/// `a = −1`.
///
/// # Panics
/// If the length of `image` is not `3 · height · width`.
pub fn affine(
    image: &mut [u8],
    size: [usize; 2],
    map: [f64; 6],
    fill: [u8; 3],
    scratch: &mut Scratch,
) {
    let [height, width] = size;
    assert_eq!(image.len(), 3 * height * width, "the image is not [{height}, {width}, 3]");
    if !image.is_empty() {
        affine::transform(image, size, map, fill, &mut scratch.lines);
    }
}

impl Op {
    /// Changes `image`, `[height, width, 3]`. Pixels from outside the image are `fill`.
    ///
    /// # Panics
    /// If the length of `image` is not `3 · height · width`.
    pub fn apply(&self, image: &mut [u8], size: [usize; 2], fill: [u8; 3], scratch: &mut Scratch) {
        let [height, width] = size;
        assert_eq!(image.len(), 3 * height * width, "the image is not [{height}, {width}, 3]");
        if image.is_empty() {
            return;
        }
        let map = match *self {
            Self::AutoContrast => return table::auto_contrast(image),
            Self::Equalize => return table::equalize(image),
            Self::Invert => return table::invert(image),
            Self::Posterize { bits } => return table::posterize(image, bits),
            Self::Solarize { threshold } => return table::solarize(image, threshold),
            Self::SolarizeAdd { add } => return table::solarize_add(image, add),
            Self::Color { factor } => {
                return blend::color(image, factor as f32, &mut scratch.bytes);
            }
            Self::Contrast { factor } => return blend::contrast(image, factor as f32),
            Self::Brightness { factor } => return blend::brightness(image, factor as f32),
            Self::Sharpness { factor } => {
                return blend::sharpness(image, width, factor as f32, &mut scratch.floats);
            }
            Self::Grayscale => return blend::grayscale(image),
            Self::Blur { radius } => return blur::gaussian(image, size, radius as f32, scratch),
            Self::Rotate { degrees } => affine::rotation(degrees, size),
            Self::ShearX { factor } => [1.0, factor, 0.0, 0.0, 1.0, 0.0],
            Self::ShearY { factor } => [1.0, 0.0, 0.0, factor, 1.0, 0.0],
            Self::TranslateX { pixels } => [1.0, 0.0, pixels, 0.0, 1.0, 0.0],
            Self::TranslateY { pixels } => [1.0, 0.0, 0.0, 0.0, 1.0, pixels],
        };
        affine::transform(image, size, map, fill, &mut scratch.lines);
    }
}
