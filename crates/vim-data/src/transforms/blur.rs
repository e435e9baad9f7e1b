//! Gaussian blur, as Pillow approximates it.
//!
//! # Source
//! `ImageFilter.GaussianBlur`: three box blurs along the rows, then three along the columns, each
//! of a fractional radius ("extended box filter", Gwosdek et al. 2011, equations 7, 11 and 14) in
//! 24-bit fixed point, rounded to a byte each time; the edge is repeated outside.

use super::Scratch;
use crate::simd::widest;

/// Box blurs per axis.
const PASSES: usize = 3;

/// A box of fractional radius: `2 · radius + 1` values of full weight, and one at each end of less.
#[derive(Clone, Copy)]
struct Kernel {
    radius: usize,
    /// Weight of a value inside, 24 fractional bits.
    inner: u32,
    /// Weight of the two at the ends.
    outer: u32,
}

impl Kernel {
    /// One of the boxes that make a Gaussian of standard deviation `sigma`.
    fn of_gaussian(sigma: f32) -> Self {
        // Pillow computes the square root and the fraction in double and stores single precision.
        let variance = sigma * sigma / PASSES as f32;
        let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
        let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
        let fraction = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance)
            / (6.0 * (variance - (whole + 1.0) * (whole + 1.0)));
        let size = whole + fraction;
        let radius = size as usize;
        let inner = ((1 << 24) as f32 / (size * 2.0 + 1.0)) as u32;
        let outer = ((1 << 24) - (2 * radius as u32 + 1) * inner) / 2;
        Self { radius, inner, outer }
    }
}

/// Blurs `image`, `[height, width, 3]`, by a Gaussian of standard deviation `sigma` in pixels.
pub(super) fn gaussian(image: &mut [u8], size: [usize; 2], sigma: f32, scratch: &mut Scratch) {
    if sigma.is_nan() || sigma <= 0.0 {
        return;
    }
    let kernel = Kernel::of_gaussian(sigma);
    let Scratch { bytes, words, .. } = scratch;
    bytes.resize(image.len(), 0);
    let [height, width] = size;
    // Columns are blurred by adding whole rows, so rows are transposed to columns first.
    transpose(image, width, bytes);
    for pass in 0..2 * PASSES {
        if pass == PASSES {
            transpose(image, height, bytes);
        }
        let stride = 3 * if pass < PASSES { height } else { width };
        let (from, to) = if pass % PASSES == 1 {
            (&*image, bytes.as_mut_slice())
        } else {
            (bytes.as_slice(), &mut *image)
        };
        widest(
            #[inline(always)]
            || blur_columns(from, to, stride, kernel, words),
        );
    }
}

/// Rows of `width` pixels to columns.
fn transpose(from: &[u8], width: usize, to: &mut [u8]) {
    let height = from.len() / 3 / width;
    let (from, to) = (from.as_chunks::<3>().0, to.as_chunks_mut::<3>().0);
    for (y, row) in from.chunks_exact(width).enumerate() {
        for (pixel, to) in row.iter().zip(to[y..].iter_mut().step_by(height)) {
            *to = *pixel;
        }
    }
}

/// One box blur along the columns of an image with rows of `stride` bytes.
#[inline(always)]
fn blur_columns(from: &[u8], to: &mut [u8], stride: usize, kernel: Kernel, sums: &mut Vec<u32>) {
    let last = from.len() / stride - 1;
    let Kernel { radius, inner, outer } = kernel;
    // Rows are counted from one box before the first row, and repeat the first row there.
    let row = |place: usize| {
        let place = place.saturating_sub(radius + 1).min(last);
        &from[place * stride..(place + 1) * stride]
    };
    // The sums of the rows inside the box around the place before the first.
    sums.clear();
    sums.resize(stride, 0);
    for place in 0..2 * radius + 1 {
        for (sum, &value) in sums.iter_mut().zip(row(place)) {
            *sum += u32::from(value);
        }
    }
    for (place, to) in to.chunks_exact_mut(stride).enumerate() {
        let (before, entering) = (row(place), row(place + 2 * radius + 1));
        let after = row(place + 2 * radius + 2);
        let values = before.iter().zip(entering).zip(after);
        for ((to, sum), ((&before, &entering), &after)) in to.iter_mut().zip(&mut *sums).zip(values)
        {
            *sum = *sum + u32::from(entering) - u32::from(before);
            let ends = (u32::from(before) + u32::from(after)) * outer;
            *to = ((*sum * inner + ends + (1 << 23)) >> 24) as u8;
        }
    }
}
