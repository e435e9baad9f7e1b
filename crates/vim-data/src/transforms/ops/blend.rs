//! Operations that blend the image with a degenerate one: `d + factor · (v − d)`.
//!
//! # Source
//! `ImageEnhance` and `Image.blend`: in single precision, truncated, cut to 0..=255. A factor of 0
//! or 1 needs no case of its own: the formula is exact there.

use crate::simd::{byte_of_f32, widest};

/// `degenerate + factor · (value − degenerate)` as a byte.
#[inline(always)]
pub(super) fn blend(degenerate: u8, value: u8, factor: f32) -> u8 {
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
