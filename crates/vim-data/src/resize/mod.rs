//! Resizing as Pillow's `resize(…, BICUBIC)`, bit for bit.
//!
//! # Source
//! Pillow 10.1, `Resample.c` for 8 bits: an antialiased filter of 22-bit fixed-point weights, the rows first
//! and rounded to bytes, then the columns. The sums are exact integers, so that any order of adding them
//! gives the same result, and the loops below are laid out for vector instructions.

mod weights;

use weights::{Axis, PRECISION};

use crate::simd::widest;
use crate::{Pixels, Region};

/// Rows whose pixels are filtered side by side.
const ROWS: usize = 8;
/// Their bytes at one column.
const LANES: usize = 3 * ROWS;
/// Bytes of a row that are filtered side by side with those below.
const TILE: usize = 32;
/// What makes the shift by the precision round.
const HALF: i32 = 1 << (PRECISION - 1);

/// Resizes images. Make one per thread: it keeps weights and buffers.
#[derive(Debug, Default)]
pub struct Resizer {
    columns: Axis,
    rows: Axis,
    /// `[columns, LANES]`: some rows of the crop, column by column.
    block: Vec<[u8; LANES]>,
    /// `[rows, tiles of a row]`: the crop at its new width.
    between: Vec<[u8; TILE]>,
}

impl Resizer {
    /// Without buffers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Resizes `crop` of `source` to `size`, `[height, width]`, into `into`, `[height, width, 3]`.
    ///
    /// The filter does not see pixels outside the crop: it is cut out first, as the original does.
    ///
    /// # Panics
    /// If `crop` is empty or not inside `source`, or `size` is 0 or not that of `into`.
    pub fn resize(&mut self, source: &Pixels, crop: Region, size: [usize; 2], into: &mut [u8]) {
        let window = Region { top: 0, left: 0, height: size[0], width: size[1] };
        self.resize_window(source, crop, size, window, into);
    }

    /// As [`Self::resize`], but computes only `window` of the resized image, into `into` of its size.
    ///
    /// # Panics
    /// If `crop` is empty or not inside `source`, or `window` is empty, not inside `size` or not the size of
    /// `into`.
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

    /// Fills `between`: those rows of `crop` that are needed, at their new width.
    #[inline(always)]
    fn along_rows(&mut self, source: &Pixels, crop: Region, width: usize) {
        let tiles = (3 * width).div_ceil(TILE);
        let (rows, columns) = (self.rows.inputs(), self.columns.inputs());
        self.between.resize(rows.len() * tiles, [0; TILE]);
        self.block.resize(columns.len(), [0; LANES]);
        let between = self.between.as_flattened_mut();
        for (number, lines) in between.chunks_mut(ROWS * tiles * TILE).enumerate() {
            let lines_here = lines.len() / (tiles * TILE);
            // The last block may hold fewer rows; its other lanes keep what they had, to no effect.
            for line in 0..lines_here {
                let y = crop.top + rows.start + number * ROWS + line;
                let start = 3 * (y * source.width + crop.left + columns.start);
                let row = source.data[start..start + 3 * columns.len()].as_chunks::<3>().0;
                for (cell, pixel) in self.block.iter_mut().zip(row) {
                    cell[3 * line..3 * line + 3].copy_from_slice(pixel);
                }
            }
            for x in 0..width {
                let (first, weights) = self.columns.taps(x);
                let mut sums = [HALF; LANES];
                for (pixels, &weight) in self.block[first..].iter().zip(weights) {
                    add(&mut sums, pixels, weight);
                }
                let bytes = sums.map(to_byte);
                for (line, pixel) in bytes.as_chunks::<3>().0[..lines_here].iter().enumerate() {
                    let at = line * tiles * TILE + 3 * x;
                    lines[at..at + 3].copy_from_slice(pixel);
                }
            }
        }
    }

    /// Filters `between` along its columns into `into`.
    #[inline(always)]
    fn along_columns(&self, width: usize, into: &mut [u8]) {
        let tiles = (3 * width).div_ceil(TILE);
        for (y, row) in into.chunks_exact_mut(3 * width).enumerate() {
            let (first, weights) = self.rows.taps(y);
            for (tile, out) in row.chunks_mut(TILE).enumerate() {
                let mut sums = [HALF; TILE];
                let column = self.between[first * tiles + tile..].iter().step_by(tiles);
                for (bytes, &weight) in column.zip(weights) {
                    add(&mut sums, bytes, weight);
                }
                out.copy_from_slice(&sums.map(to_byte)[..out.len()]);
            }
        }
    }
}

/// `sums += weight · bytes`.
#[inline(always)]
fn add<const N: usize>(sums: &mut [i32; N], bytes: &[u8; N], weight: i32) {
    for (sum, &byte) in sums.iter_mut().zip(bytes) {
        *sum += i32::from(byte) * weight;
    }
}

/// A sum rounded, and cut to 0..=255.
#[inline(always)]
fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}
