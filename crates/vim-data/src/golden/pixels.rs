//! Entries about pixels: operations, affine maps, resizing, decoding, the evaluation transform.

use serde::Deserialize;
use serde_json::Value;

use super::{Measured, folder::Folder, largest_difference, read};
use crate::decode::{DecodeLimits, Decoder, JpegLibrary};
use crate::pixels::{Pixels, Region};
use crate::statistics::Statistics;
use crate::transforms::resize::{EVAL_CROP, EvalTransform, Resizer};
use crate::transforms::{self, Op, Scratch};

/// Tolerance in levels for another decoder than Pillow's, which interpolates subsampled colour with
/// other rounding.
const OTHER_DECODER: f64 = 9.0;

/// Compares pixels for equality.
fn same_pixels(ours: &[u8], theirs: &Pixels) -> Measured {
    Measured { max_difference: largest_difference(ours, &theirs.data), tolerance: 0.0 }
}

fn fill(given: Option<[u8; 3]>) -> [u8; 3] {
    given.unwrap_or_else(|| Statistics::IMAGENET.fill())
}

#[derive(Deserialize)]
struct OpEntry {
    input: Value,
    op: String,
    args: Vec<f64>,
    fill: Option<[u8; 3]>,
    file: String,
}

/// An operation of RandAugment or DeiT III.
pub(super) fn op(folder: &Folder, entry: &Value) -> Result<Measured, String> {
    let entry: OpEntry = read(entry)?;
    let mut image = folder.image(&folder.named("inputs", &entry.input)?)?;
    let size = [image.height, image.width];
    let op = Op::named(&entry.op, &entry.args, size)?;
    op.apply(&mut image.data, size, fill(entry.fill), &mut Scratch::default());
    Ok(same_pixels(&image.data, &folder.image(&entry.file)?))
}

impl Op {
    /// The operation of a timm name and its arguments, for an image of `size` (height, width).
    ///
    /// # Errors
    /// If there is no such operation, or it takes other arguments.
    pub fn named(name: &str, args: &[f64], size: [usize; 2]) -> Result<Self, String> {
        let [height, width] = size.map(|side| side as f64);
        let op = match (name, args) {
            ("auto_contrast", []) => Self::AutoContrast,
            ("equalize", []) => Self::Equalize,
            ("invert", []) => Self::Invert,
            ("grayscale" | "gray_scale" | "gray", []) => Self::Grayscale,
            ("rotate", &[degrees]) => Self::Rotate { degrees },
            ("posterize", &[bits]) => Self::Posterize { bits: whole(bits)? },
            ("solarize", []) => Self::Solarize { threshold: 128 },
            ("solarize", &[threshold]) => Self::Solarize { threshold: whole(threshold)? },
            ("solarize_add", &[add] | &[add, 128.0]) => Self::SolarizeAdd { add: whole(add)? },
            ("color", &[factor]) => Self::Color { factor },
            ("contrast", &[factor]) => Self::Contrast { factor },
            ("brightness", &[factor]) => Self::Brightness { factor },
            ("sharpness", &[factor]) => Self::Sharpness { factor },
            ("shear_x", &[factor]) => Self::ShearX { factor },
            ("shear_y", &[factor]) => Self::ShearY { factor },
            ("translate_x_rel", &[share]) => Self::TranslateX { pixels: share * width },
            ("translate_y_rel", &[share]) => Self::TranslateY { pixels: share * height },
            ("translate_x" | "translate_x_abs", &[pixels]) => Self::TranslateX { pixels },
            ("translate_y" | "translate_y_abs", &[pixels]) => Self::TranslateY { pixels },
            ("blur" | "gaussian_blur", &[radius]) => Self::Blur { radius },
            _ => {
                return Err(format!("the operation `{name}` with arguments {args:?} is not known"));
            }
        };
        Ok(op)
    }
}

/// A number that is whole and fits.
fn whole<T: TryFrom<u64>>(number: f64) -> Result<T, String> {
    let fits = (number.fract() == 0.0 && (0.0..1e6).contains(&number))
        .then(|| T::try_from(number as u64).ok())
        .flatten();
    fits.ok_or_else(|| format!("{number} is not a whole number in range"))
}

#[derive(Deserialize)]
struct AffineEntry {
    input: Value,
    #[serde(alias = "args", alias = "coeffs", alias = "coefficients", alias = "data")]
    matrix: [f64; 6],
    #[serde(alias = "fillcolor")]
    fill: Option<[u8; 3]>,
    file: String,
}

/// An affine map, from the output's coordinates to the input's.
pub(super) fn affine(folder: &Folder, entry: &Value) -> Result<Measured, String> {
    let entry: AffineEntry = read(entry)?;
    let mut image = folder.image(&folder.named("inputs", &entry.input)?)?;
    let size = [image.height, image.width];
    transforms::affine(
        &mut image.data,
        size,
        entry.matrix,
        fill(entry.fill),
        &mut Scratch::default(),
    );
    Ok(same_pixels(&image.data, &folder.image(&entry.file)?))
}

/// A square's side, or height and width.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Size {
    Side(usize),
    Sides([usize; 2]),
}

impl Size {
    fn sides(self) -> [usize; 2] {
        match self {
            Self::Side(side) => [side; 2],
            Self::Sides(sides) => sides,
        }
    }
}

#[derive(Deserialize)]
struct ResizeEntry {
    src: Value,
    top: usize,
    left: usize,
    h: usize,
    w: usize,
    size: Size,
    file: String,
}

/// A crop, resized.
pub(super) fn resize(folder: &Folder, entry: &Value) -> Result<Measured, String> {
    let entry: ResizeEntry = read(entry)?;
    let source = folder.image(&folder.named("resize_src", &entry.src)?)?;
    let crop = Region { top: entry.top, left: entry.left, height: entry.h, width: entry.w };
    if !crop.is_inside([source.height, source.width]) {
        return Err(format!("the crop {crop:?} is not inside the image"));
    }
    let size = entry.size.sides();
    let mut resized = vec![0; 3 * size[0] * size[1]];
    Resizer::new().resize(&source, crop, size, &mut resized);
    Ok(same_pixels(&resized, &folder.image(&entry.file)?))
}

#[derive(Deserialize)]
struct DecodeEntry {
    #[serde(alias = "src", alias = "image")]
    jpg: String,
    #[serde(alias = "rgb")]
    file: String,
}

/// A whole file, decoded by the library that training decodes with.
pub(super) fn decode(folder: &Folder, entry: &Value) -> Result<Measured, String> {
    let entry: DecodeEntry = read(entry)?;
    let theirs = folder.image(&entry.file)?;
    let ours = decoded(folder, &entry.jpg)?;
    if [ours.height, ours.width] != [theirs.height, theirs.width] {
        return Err(format!("`{}` is {} × {} pixels", entry.jpg, ours.height, ours.width));
    }
    let tolerance = if is_pillows() { 0.0 } else { OTHER_DECODER };
    Ok(Measured { tolerance, ..same_pixels(&ours.data, &theirs) })
}

fn decoded(folder: &Folder, name: &str) -> Result<Pixels, String> {
    let bytes = folder.bytes(name)?;
    let mut image = Pixels::default();
    let mut decoder =
        Decoder::new(DecodeLimits::default()).map_err(|error| format!("`{name}` {error}"))?;
    let decoded = decoder.decode(&bytes, &mut image);
    decoded.map(|_| image).map_err(|error| format!("`{name}` {error}"))
}

/// Whether JPEGs are decoded by Pillow's own library.
fn is_pillows() -> bool {
    match JpegLibrary::default() {
        #[cfg(feature = "turbo")]
        JpegLibrary::LibjpegTurbo => true,
        JpegLibrary::ZuneJpeg => false,
    }
}

#[derive(Deserialize)]
struct EvalEntry {
    /// Width and height, in Pillow's order.
    src_size: [usize; 2],
    src: Option<Value>,
    size: Option<Size>,
    note: Option<String>,
    file: String,
}

/// The evaluation transform, normalised: every n-th number of `[3, H, W]`, n as the note says.
/// `None` if the source image is not in the folder.
pub(super) fn evaluation(folder: &Folder, entry: &Value) -> Result<Option<Measured>, String> {
    let entry: EvalEntry = read(entry)?;
    let (shape, theirs) = folder.floats(&entry.file)?;
    let Some((source, tolerance)) = evaluated(folder, &entry)? else { return Ok(None) };
    let [height, width] = entry.size.map_or([224; 2], Size::sides);
    let stride = entry.note.as_deref().map_or(Some(1), first_number).unwrap_or(1);
    if shape != [3, height.div_ceil(stride), width.div_ceil(stride)] {
        return Err(format!("every {stride} of {height} × {width} pixels is not {shape:?}"));
    }
    let mut seen = vec![0; 3 * height * width];
    EvalTransform::new(EVAL_CROP).apply(&source, [height, width], &mut seen);
    let Statistics { mean, std } = Statistics::IMAGENET;
    let mut ours = Vec::with_capacity(theirs.len());
    for channel in 0..3 {
        for y in (0..height).step_by(stride) {
            for x in (0..width).step_by(stride) {
                let value = f32::from(seen[3 * (y * width + x) + channel]) / 255.0;
                ours.push((value - mean[channel]) / std[channel]);
            }
        }
    }
    Ok(Some(Measured { max_difference: largest_difference(&ours, &theirs), tolerance }))
}

/// The source image of an evaluation, and the tolerance for its normalised pixels: the image that
/// the entry names, else the first source of its size.
fn evaluated(folder: &Folder, entry: &EvalEntry) -> Result<Option<(Pixels, f64)>, String> {
    let [width, height] = entry.src_size;
    if let Some(reference) = &entry.src {
        let image = folder.image(&folder.named("resize_src", reference)?)?;
        return Ok(Some((image, 0.0)));
    }
    let smallest = Statistics::IMAGENET.std.into_iter().fold(f32::INFINITY, f32::min);
    let levels = OTHER_DECODER / 255.0 / f64::from(smallest);
    let tolerance = if is_pillows() { 0.0 } else { levels };
    // Stored pixels come before files that must be decoded, and the sources of resizing before
    // other pixels: others of the same size are other decodings of the same file.
    let named = (0_u64..).map_while(|at| folder.named("resize_src", &at.into()).ok());
    let sources = |name: &&str| name.starts_with("src");
    let listed = folder.listed().filter(sources).map(str::to_owned);
    let pixels = named.chain(listed).filter_map(|name| Some((folder.image(&name).ok()?, 0.0)));
    let files = folder.images().into_iter().filter(|name| sources(&name.as_str()));
    let decoded = files.filter_map(|name| Some((decoded(folder, &name).ok()?, tolerance)));
    // An unreadable file is reported by its own entry.
    Ok(pixels.chain(decoded).find(|(image, _)| [image.height, image.width] == [height, width]))
}

fn first_number(text: &str) -> Option<usize> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    numbers.find(|number| !number.is_empty())?.parse().ok().filter(|&number| number > 0)
}
