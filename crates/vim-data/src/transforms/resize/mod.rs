//! Resizing as Pillow's `resize(…, BICUBIC)`, bit for bit.
//!
//! # Source
//! Pillow 10.1, `Resample.c` for 8 bits: an antialiased filter with 22-bit fixed-point weights,
//! along the rows first, rounded to bytes, then along the columns. The sums are exact integers: the
//! order of additions does not matter, and the loops below are laid out for vector instructions.

mod weights;

use weights::{Axis, GROUP, PRECISION};

use crate::pixels::{Pixels, Region};
use crate::simd::widest;

/// Rows that are filtered side by side.
const ROWS: usize = 64;
/// Added before the shift by the precision, so that it rounds.
const HALF: i32 = 1 << (PRECISION - 1);

/// Resizes images. Make one per thread: it keeps weights and buffers.
#[derive(Debug, Default)]
pub struct Resizer {
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
        self.rows.prepare(crop.height, size[0], top..top + height);
        self.columns.prepare(crop.width, size[1], left..left + width);
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
        let (rows, columns) = (self.rows.inputs(), self.columns.inputs());
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

impl Axis {
    /// Computes one output: `lines`, `[inputs, lanes]`, summed by its weights into `out`,
    /// `[lanes]`.
    #[inline(always)]
    fn filter(&self, output: usize, lines: &[u8], sums: &mut Vec<i32>, out: &mut [u8]) {
        let lanes = out.len();
        let last = self.inputs().len() - 1;
        sums.resize(lanes, 0);
        let (first, weights) = self.taps(output);
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
