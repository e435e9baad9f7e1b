//! Resizing as Pillow's `resize(…, BICUBIC)` and `BILINEAR`, bit for bit.
//!
//! # Source
//! Pillow 10.1, `Resample.c` for 8 bits: an antialiased filter with 22-bit fixed-point weights,
//! along the rows first, rounded to bytes, then along the columns. The sums are exact integers: the
//! order of additions does not matter, and the loops below are laid out for vector instructions.
//! Pillow 13.0 goes along the columns first where that is less work, which the bilinear filter
//! follows.

use std::ops::Range;

use super::filter::Filter;
use crate::pixels::{Pixels, Region};
use crate::simd::widest;

/// Fractional bits of a weight.
const PRECISION: u32 = 22;
/// Inputs that are summed at once.
const GROUP: usize = 4;
/// Rows that are filtered side by side.
const ROWS: usize = 64;
/// Added before the shift by the precision, so that it rounds.
const HALF: i32 = 1 << (PRECISION - 1);

/// Resizes images, by the bicubic filter unless told otherwise. Make one per thread: it keeps
/// weights and buffers.
#[derive(Debug, Default)]
pub struct Resizer {
    filter: Filter,
    columns: Axis,
    rows: Axis,
    /// `[columns, lanes]`: up to [`ROWS`] rows of the crop, column by column.
    block: Vec<u8>,
    /// `[rows, 3 · width]`: the crop at its new width.
    between: Vec<u8>,
    sums: Vec<i32>,
    /// A column of the block at its new place.
    bytes: Vec<u8>,
}

impl Resizer {
    /// Without buffers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Without buffers yet, by another filter.
    pub fn with_filter(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Resizes `crop` of `source` to `size`, `[height, width]`, into `into`, `[height, width, 3]`.
    ///
    /// The filter sees no pixels outside the crop, which the original cuts out first.
    ///
    /// # Panics
    /// If `crop` is empty or not inside `source`, or `size` is 0 or not that of `into`.
    pub fn resize(&mut self, source: &Pixels, crop: Region, size: [usize; 2], into: &mut [u8]) {
        let window = Region { top: 0, left: 0, height: size[0], width: size[1] };
        self.resize_window(source, crop, size, window, into);
    }

    /// As [`Self::resize`], but computes only `window` of the resized image, into `into` of its
    /// size.
    ///
    /// # Panics
    /// If `crop` is empty or not inside `source`, or `window` is empty, not inside `size` or not
    /// the size of `into`.
    pub fn resize_window(
        &mut self,
        source: &Pixels,
        crop: Region,
        size: [usize; 2],
        window: Region,
        into: &mut [u8],
    ) {
        let Region { top, left, height, width } = window;
        assert_eq!(into.len(), 3 * height * width, "the output is not [{height}, {width}, 3]");
        assert!(window.is_inside(size), "{window:?} is not inside {size:?}");
        let whole = [source.height, source.width];
        assert!(crop.is_inside(whole), "{crop:?} is not inside {whole:?}");
        if self.filter.columns_first([crop.height, crop.width], size) {
            // The columns of an image are the rows of its transpose.
            let turned = transposed(&source.data, source.width, crop);
            let turned = Pixels { height: crop.width, width: crop.height, data: turned };
            let window = Region { top: left, left: top, height: width, width: height };
            let mut part = vec![0; into.len()];
            self.passes(&turned, turned.region(), [size[1], size[0]], window, &mut part);
            let whole = Region { top: 0, left: 0, height: width, width: height };
            into.copy_from_slice(&transposed(&part, height, whole));
            return;
        }
        self.passes(source, crop, size, window, into);
    }

    /// Filters along the rows, then along the columns.
    fn passes(
        &mut self,
        source: &Pixels,
        crop: Region,
        size: [usize; 2],
        window: Region,
        into: &mut [u8],
    ) {
        let Region { top, left, height, width } = window;
        self.rows.prepare(self.filter, crop.height, size[0], top..top + height);
        self.columns.prepare(self.filter, crop.width, size[1], left..left + width);
        widest(
            #[inline(always)]
            || {
                self.along_rows(source, crop, width);
                self.along_columns(width, into);
            },
        );
    }

    /// Fills `between` with the rows of `crop` that are needed, at their new width.
    ///
    /// The bytes of several rows at one column are adjacent, so that columns are added as vectors.
    #[inline(always)]
    fn along_rows(&mut self, source: &Pixels, crop: Region, width: usize) {
        let (rows, columns) = (self.rows.inputs.clone(), self.columns.inputs.clone());
        self.between.resize(3 * rows.len() * width, 0);
        let first_column = crop.left + columns.start;
        let blocks = self.between.chunks_mut(3 * ROWS * width);
        for (number, lines) in blocks.enumerate() {
            let lanes = lines.len() / width;
            self.block.resize(lanes * columns.len(), 0);
            for line in 0..lanes / 3 {
                let y = crop.top + rows.start + number * ROWS + line;
                let start = 3 * (y * source.width + first_column);
                let row = source.data[start..start + 3 * columns.len()].as_chunks::<3>().0;
                for (column, pixel) in self.block.chunks_exact_mut(lanes).zip(row) {
                    column[3 * line..3 * line + 3].copy_from_slice(pixel);
                }
            }
            self.bytes.resize(lanes, 0);
            for x in 0..width {
                self.columns.filter(x, &self.block, &mut self.sums, &mut self.bytes);
                let pixels = self.bytes.as_chunks::<3>().0;
                for (line, pixel) in lines.chunks_exact_mut(3 * width).zip(pixels) {
                    line[3 * x..3 * x + 3].copy_from_slice(pixel);
                }
            }
        }
    }

    /// Filters `between` along its columns into `into`.
    #[inline(always)]
    fn along_columns(&mut self, width: usize, into: &mut [u8]) {
        for (y, row) in into.chunks_exact_mut(3 * width).enumerate() {
            self.rows.filter(y, &self.between, &mut self.sums, row);
        }
    }
}

/// The part `crop` of pixels in rows of `width`, rows and columns exchanged.
fn transposed(data: &[u8], width: usize, crop: Region) -> Vec<u8> {
    let mut turned = Vec::with_capacity(3 * crop.height * crop.width);
    for column in crop.left..crop.left + crop.width {
        for row in crop.top..crop.top + crop.height {
            turned.extend_from_slice(&data[3 * (row * width + column)..][..3]);
        }
    }
    turned
}

/// The inputs and weights that each output in a part of an axis sums.
#[derive(Debug, Default)]
struct Axis {
    /// What the weights were computed for: inputs, outputs, and the range of outputs.
    made_for: (usize, usize, Range<usize>),
    /// Of each output: its first input, counted from the first of all, and its groups of inputs.
    taps: Vec<(usize, usize)>,
    /// `[outputs, most]` groups, each row filled from its start, and with zeros, also past the last
    /// input.
    weights: Vec<[i32; GROUP]>,
    /// Groups of an output, at most.
    most: usize,
    /// First input of any output, and the end of them.
    inputs: Range<usize>,
    /// Weights of one output before they are normalised to a sum of 1.
    raw: Vec<f64>,
}

impl Axis {
    /// Computes the weights from `from` inputs to those of `to` outputs that are in `part`, unless
    /// it has them.
    ///
    /// # Source
    /// `precompute_coeffs` and `normalize_coeffs_8bpc` of Pillow's `Resample.c`, in double
    /// precision: the kernel is stretched when shrinking, cut off at the edges, and weights are
    /// rounded away from zero.
    fn prepare(&mut self, filter: Filter, from: usize, to: usize, part: Range<usize>) {
        if self.made_for == (from, to, part.clone()) {
            return;
        }
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        self.most = (2 * support.ceil() as usize + 1).div_ceil(GROUP);
        self.taps.clear();
        self.weights.clear();
        self.weights.resize(part.len() * self.most, [0; GROUP]);
        for (output, weights) in part.clone().zip(self.weights.chunks_exact_mut(self.most)) {
            let center = (output as f64 + 0.5) * scale;
            // The casts truncate; negative numbers become 0.
            let first = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            self.raw.clear();
            self.raw.extend((first..end).map(|input| {
                let distance = input as f64 - center + 0.5;
                filter.weight(distance * (1.0 / stretch))
            }));
            let sum: f64 = self.raw.iter().sum();
            for (weight, raw) in weights.as_flattened_mut().iter_mut().zip(&self.raw) {
                let scaled = raw / sum * f64::from(1 << PRECISION);
                *weight = (scaled + 0.5_f64.copysign(scaled)) as i32;
            }
            if self.taps.is_empty() {
                self.inputs = first..end;
            }
            self.inputs.end = self.inputs.end.max(end);
            self.taps.push((first - self.inputs.start, (end - first).div_ceil(GROUP)));
        }
        self.made_for = (from, to, part);
    }

    /// Computes one output: `lines`, `[inputs, lanes]`, summed by its weights into `out`,
    /// `[lanes]`.
    #[inline(always)]
    fn filter(&self, output: usize, lines: &[u8], sums: &mut Vec<i32>, out: &mut [u8]) {
        let lanes = out.len();
        let last = self.inputs.len() - 1;
        sums.resize(lanes, 0);
        let (first, count) = self.taps[output];
        let weights = &self.weights[output * self.most..][..count];
        for (group, weights) in weights.iter().enumerate() {
            let first = first + GROUP * group;
            // Weights beyond the last line are 0.
            let line = |tap: usize| &lines[(first + tap).min(last) * lanes..][..lanes];
            let lines = [line(0), line(1), line(2), line(3)];
            if group == 0 {
                weigh(sums, lines, *weights, |_, weighed| HALF + weighed);
            } else {
                weigh(sums, lines, *weights, |sum, weighed| sum + weighed);
            }
        }
        for (byte, &sum) in out.iter_mut().zip(&*sums) {
            *byte = (sum >> PRECISION).clamp(0, 255) as u8;
        }
    }
}

/// Updates each sum by several lines, each by its weight: one store for all of them.
#[inline(always)]
fn weigh(
    sums: &mut [i32],
    lines: [&[u8]; GROUP],
    weights: [i32; GROUP],
    update: impl Fn(i32, i32) -> i32,
) {
    let [first, second, third, fourth] = lines;
    let lines = first.iter().zip(second).zip(third).zip(fourth);
    for (sum, (((&first, &second), &third), &fourth)) in sums.iter_mut().zip(lines) {
        let weighed = i32::from(first) * weights[0]
            + i32::from(second) * weights[1]
            + i32::from(third) * weights[2]
            + i32::from(fourth) * weights[3];
        *sum = update(*sum, weighed);
    }
}

/// Default share of the resized image's side that the central crop keeps.
///
/// # Source
/// The original's `--eval-crop-ratio`.
pub const EVAL_CROP: f64 = 0.875;
/// Images up to this side are not cropped, as in the original for CIFAR.
pub(crate) const SMALL: usize = 32;

/// What an image is resized to cover before its middle of `size`, `[height, width]`, is cut out.
#[must_use]
pub fn covered(size: [usize; 2], crop: f64) -> [usize; 2] {
    let whole = size[0].max(size[1]) <= SMALL;
    size.map(|side| if whole { side } else { (side as f64 / crop) as usize })
}

/// Resizes an image to just cover a size, and cuts out its middle. Make one per thread: it keeps
/// buffers.
///
/// # Source
/// The original's `build_transform`: `Resize(int(size / crop))` by the bicubic filter, then
/// `CenterCrop(size)`. There the size is a square; here it may be any rectangle.
#[derive(Debug)]
pub struct EvalTransform {
    crop: f64,
    resizer: Resizer,
}

impl Default for EvalTransform {
    fn default() -> Self {
        Self::new(EVAL_CROP)
    }
}

impl EvalTransform {
    /// Keeps `crop` of the resized side, above 0 and at most 1. Sizes up to 32 are kept whole.
    ///
    /// # Panics
    /// If `crop` is out of range.
    pub fn new(crop: f64) -> Self {
        assert!(crop > 0.0 && crop <= 1.0, "a crop of {crop} is not a share");
        Self { crop, resizer: Resizer::new() }
    }

    /// Transforms `source` to `size`, `[height, width]`, into `into`, `[height, width, 3]`.
    ///
    /// # Panics
    /// If `source` or `size` has no pixels, or `into` is not of `size`.
    pub fn apply(&mut self, source: &Pixels, size: [usize; 2], into: &mut [u8]) {
        let (resized, window) = self.placed([source.height, source.width], size);
        self.resizer.resize_window(source, source.region(), resized, window, into);
    }

    /// The size that an image of size `source` is resized to, and the part of it that is cut out
    /// for `size`.
    pub fn placed(&self, source: [usize; 2], size: [usize; 2]) -> ([usize; 2], Region) {
        let resized = self.resized(source, size);
        // Rounds half to even, as Python's `round`.
        let corner = |axis: usize| ((resized[axis] - size[axis]) as f64 / 2.0).round_ties_even();
        let (top, left) = (corner(0) as usize, corner(1) as usize);
        (resized, Region { top, left, height: size[0], width: size[1] })
    }

    /// The size that covers `size / crop` in both directions and keeps the proportions of `source`;
    /// the longer side is rounded down.
    fn resized(&self, source: [usize; 2], size: [usize; 2]) -> [usize; 2] {
        let covered = covered(size, self.crop);
        let scaled = |length: usize, by: usize, over: usize| {
            let scaled = length as u128 * by as u128 / over.max(1) as u128;
            usize::try_from(scaled).unwrap_or(usize::MAX)
        };
        let is_wider =
            source[1] as u128 * covered[0] as u128 >= source[0] as u128 * covered[1] as u128;
        if is_wider {
            [covered[0], scaled(covered[0], source[1], source[0])]
        } else {
            [scaled(covered[1], source[0], source[1]), covered[1]]
        }
    }
}
