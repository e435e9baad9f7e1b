//! Operations that blend the image with a degenerate one: `d + factor · (v − d)`.
//!
//! # Source
//! `ImageEnhance` and `Image.blend`: in single precision, truncated, cut to 0..=255. A factor of 0
//! or 1 needs no case of its own: the formula is exact there.

use crate::simd::{byte_of_f32, widest};

/// `degenerate + factor · (value − degenerate)` as a byte.
#[inline(always)]
fn blend(degenerate: u8, value: u8, factor: f32) -> u8 {
    let difference = i32::from(value) - i32::from(degenerate);
    byte_of_f32(f32::from(degenerate) + factor * difference as f32)
}

/// Red, green and blue to luma (ITU-R 601-2, 16 fractional bits, rounded).
///
/// # Source
/// Pillow's `convert("L")`.
#[inline(always)]
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let sum = 19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue);
    ((sum + 0x8000) >> 16) as u8
}

/// Blends with black.
pub(super) fn brightness(image: &mut [u8], factor: f32) {
    with_constant(image, 0, factor);
}

/// Blends with the mean luma, rounded.
pub(super) fn contrast(image: &mut [u8], factor: f32) {
    let pixels = image.as_chunks::<3>().0;
    let sum: u64 = widest(
        #[inline(always)]
        move || {
            // At most 255 · 2¹⁶ per chunk.
            let chunk =
                |pixels: &[[u8; 3]]| pixels.iter().map(|&p| u32::from(luma(p))).sum::<u32>();
            pixels.chunks(1 << 16).map(|pixels| u64::from(chunk(pixels))).sum()
        },
    );
    let mean = (sum as f64 / pixels.len() as f64 + 0.5) as u8;
    with_constant(image, mean, factor);
}

/// Blends with the luma.
pub(super) fn color(image: &mut [u8], factor: f32, greys: &mut Vec<u8>) {
    greys.clear();
    greys.extend_from_slice(image);
    grayscale(greys);
    let greys = greys.as_slice();
    widest(
        #[inline(always)]
        move || {
            for (value, &grey) in image.iter_mut().zip(greys) {
                *value = blend(grey, *value, factor);
            }
        },
    );
}

/// The luma in all channels.
pub(super) fn grayscale(image: &mut [u8]) {
    widest(
        #[inline(always)]
        move || {
            for pixel in image.as_chunks_mut::<3>().0 {
                *pixel = [luma(*pixel); 3];
            }
        },
    );
}

fn with_constant(image: &mut [u8], degenerate: u8, factor: f32) {
    widest(
        #[inline(always)]
        move || {
            for value in image {
                *value = blend(degenerate, *value, factor);
            }
        },
    );
}

/// Blends with the image smoothed by `[1 1 1; 1 5 1; 1 1 1] / 13`.
///
/// The border of one pixel is not smoothed, and so does not change.
///
/// # Source
/// `ImageEnhance.Sharpness` and `ImageFilter.SMOOTH`: single precision, the three rows from the
/// lower to the upper, each summed from left to right; any other order rounds differently.
pub(super) fn sharpness(image: &mut [u8], width: usize, factor: f32, rows: &mut Vec<f32>) {
    let stride = 3 * width;
    let height = image.len() / stride;
    if height < 3 || width < 3 {
        return;
    }
    // Weighted sums along each of three rows: as a row above or below, and as the middle one.
    rows.clear();
    rows.resize(4 * stride, 0.0);
    let (above, rest) = rows.split_at_mut(stride);
    let (at, rest) = rest.split_at_mut(stride);
    let (below, middle) = rest.split_at_mut(stride);
    let [mut above, mut at, mut below] = [above, at, below];

    widest(
        #[inline(always)]
        move || {
            sum_of_three(&image[..stride], 1.0, above);
            sum_of_three(&image[stride..2 * stride], 1.0, at);
            for y in 1..height - 1 {
                sum_of_three(&image[(y + 1) * stride..(y + 2) * stride], 1.0, below);
                let row = &mut image[y * stride..(y + 1) * stride];
                sum_of_three(row, 5.0, middle);
                let inner = 3..stride - 3;
                let sums = below[inner.clone()].iter().zip(&middle[inner.clone()]);
                let sums = sums.zip(&above[inner.clone()]);
                for (value, ((below, middle), above)) in row[inner].iter_mut().zip(sums) {
                    let smooth = ((0.5 + below) + middle) + above;
                    *value = blend(byte_of_f32(smooth), *value, factor);
                }
                (above, at, below) = (at, below, above);
            }
        },
    );
}

/// `(left + centre · middle + right) / 13` for every byte that has neighbours in its row.
#[inline(always)]
fn sum_of_three(row: &[u8], centre: f32, sums: &mut [f32]) {
    let (side, centre) = (1.0 / 13.0, centre / 13.0);
    let length = row.len() - 6;
    let (left, middle, right) = (&row[..length], &row[3..3 + length], &row[6..]);
    let neighbours = left.iter().zip(middle).zip(right);
    for (sum, ((&left, &middle), &right)) in sums[3..3 + length].iter_mut().zip(neighbours) {
        *sum = (f32::from(left) * side + f32::from(middle) * centre) + f32::from(right) * side;
    }
}
