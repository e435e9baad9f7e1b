//! What is done to the pixels of a stored image: a plan, drawn by [`recipe`], and its operations.
//!
//! Operations equal Pillow's bit for bit. An image is `[height, width, 3]` bytes of red, green and
//! blue, changed in place.
//!
//! # Source
//! timm 0.4.12 `auto_augment.py` (which operations, and their arguments), Pillow 10.1 (`ImageOps`,
//! `ImageEnhance`, `Image.transform`, `ImageFilter.GaussianBlur`: the arithmetic).

mod affine;
mod blend;
mod blur;
pub(crate) mod filter;
mod place;
pub(crate) mod recipe;
pub(crate) mod resize;
mod table;

use serde::{Deserialize, Serialize};

use crate::pixels::{Pixels, Region};
use resize::{EvalTransform, Resizer};

pub use place::{flip, pad_crop, reflect_crop};

/// The augmentation of one draw of an image, in the order that it is applied.
///
/// The crop produces the target's size, which the flip and the operations keep; these three work on
/// bytes. Boxes are erased after normalisation. The default is the plan of evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplePlan {
    /// From the source to the target's size.
    pub crop: CropPlan,
    /// Whether the crop is mirrored left to right.
    pub flip: bool,
    /// Applied in this order.
    pub ops: Vec<Op>,
    /// Erased in this order: a later box lies over an earlier one.
    pub erase: Vec<EraseBox>,
}

/// How an image of any size becomes one of the target's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CropPlan {
    /// As in evaluation: nothing is random.
    #[default]
    Evaluation,
    /// Black pixels on all sides, then a crop of the target's size.
    Padded {
        /// Rows added above and below, columns added left and right.
        padding: [usize; 2],
        /// First row of the crop in the padded image.
        top: usize,
        /// First column of the crop in the padded image.
        left: usize,
    },
    /// A part of the source, resized to the target; the filter sees nothing outside the part.
    Resized {
        /// The part.
        region: Region,
    },
    /// The source resized, a border of reflected pixels (the edge itself is not repeated), then a
    /// crop of the target's size.
    Simple {
        /// Height and width that the whole source is resized to.
        resized: [usize; 2],
        /// Pixels reflected on each side.
        padding: usize,
        /// First row of the crop in the padded image.
        top: usize,
        /// First column of the crop in the padded image.
        left: usize,
    },
}

/// A box of the normalised image that is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EraseBox {
    /// Where, inside the image.
    pub region: Region,
    /// With what.
    pub fill: EraseFill,
}

/// What an erased box holds, in units of the normalised image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseFill {
    /// 0.
    Constant,
    /// One colour: red, green, blue.
    Colour([f32; 3]),
    /// Normally distributed noise per pixel and channel, a function of the seed and the position.
    Pixels {
        /// Of the noise.
        seed: u32,
    },
}

/// Applies plans to images. Make one per thread: it keeps buffers.
#[derive(Debug)]
pub struct Transform {
    resizer: Resizer,
    evaluation: EvalTransform,
    scratch: Scratch,
    resized: Pixels,
    fill: [u8; 3],
}

impl Transform {
    /// `eval_crop_ratio` is for plans whose crop is that of evaluation; `fill` is the colour of
    /// pixels that an operation moves in from outside the image.
    pub fn new(eval_crop_ratio: f64, fill: [u8; 3]) -> Self {
        Self {
            resizer: Resizer::new(),
            evaluation: EvalTransform::new(eval_crop_ratio),
            scratch: Scratch::default(),
            resized: Pixels::default(),
            fill,
        }
    }

    /// Applies `plan` to `source`, writing `[height, width, 3]` of `size` to `into`. The plan's
    /// boxes are left out: they are erased after normalisation.
    ///
    /// # Panics
    /// If the plan was drawn for another size of the source or the target.
    pub fn apply(&mut self, plan: &SamplePlan, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        self.crop(plan, source, source.region(), size, into);
        self.alter(plan, size, into);
    }

    /// The first half: the crop. `source` is the region `part` of the image, which contains all
    /// that the crop needs.
    pub(crate) fn crop(
        &mut self,
        plan: &SamplePlan,
        source: &Pixels,
        part: Region,
        size: [usize; 2],
        into: &mut [u8],
    ) {
        match plan.crop {
            CropPlan::Evaluation => self.evaluation.apply(source, size, into),
            CropPlan::Padded { padding, top, left } => {
                pad_crop(source, padding, [top, left], size, into);
            }
            CropPlan::Resized { region } => {
                let (top, left) = (region.top - part.top, region.left - part.left);
                self.resizer.resize(source, Region { top, left, ..region }, size, into);
            }
            CropPlan::Simple { resized, padding, top, left } => {
                self.resized.reshape(resized);
                self.resizer.resize(source, source.region(), resized, &mut self.resized.data);
                reflect_crop(&self.resized, padding, [top, left], size, into);
            }
        }
    }

    /// The second half: the flip and the operations.
    pub(crate) fn alter(&mut self, plan: &SamplePlan, size: [usize; 2], image: &mut [u8]) {
        if plan.flip {
            flip(image, size);
        }
        for op in &plan.ops {
            op.apply(image, size, self.fill, &mut self.scratch);
        }
    }
}

/// An operation and its argument.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
