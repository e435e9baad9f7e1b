//! Gaussian blur, as Pillow approximates it.
//!
//! # Source
//! `ImageFilter.GaussianBlur`: three box blurs along the rows, then three along the columns, each of a
//! fractional radius ("extended box filter", Gwosdek et al. 2011, equations 7, 11 and 14) in 24-bit fixed
//! point, rounded to a byte each time; the edge is repeated outside.

use std::ops::Range;

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
        // In C the square root and the fraction are of a double; only what is stored is rounded.
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
    let stride = 3 * size[1];
    // Along a row the values of one channel are 3 bytes apart, one at a time; along a column, a whole
    // row of bytes goes at once.
    widest(
        #[inline(always)]
        move || {
            for _ in 0..PASSES {
                bytes.copy_from_slice(image);
                for (from, to) in bytes.chunks_exact(stride).zip(image.chunks_exact_mut(stride)) {
                    pass(from, to, 3, kernel, words);
                }
            }
            for _ in 0..PASSES {
                bytes.copy_from_slice(image);
                pass(bytes, image, stride, kernel, words);
            }
        },
    );
}

/// One box blur over groups of `group` bytes that lie one behind the other: each byte with its
/// counterparts in the groups around.
#[inline(always)]
fn pass(from: &[u8], to: &mut [u8], group: usize, kernel: Kernel, sums: &mut Vec<u32>) {
    let count = from.len() / group;
    let radius = kernel.radius as isize;
    let at = |place: isize| -> Range<usize> {
        let place = place.clamp(0, count as isize - 1) as usize;
        place * group..(place + 1) * group
    };
    // Sums of the values inside the box, from one place before the first.
    sums.clear();
    sums.resize(group, 0);
    for place in -radius - 1..radius {
        for (sum, &value) in sums.iter_mut().zip(&from[at(place)]) {
            *sum += u32::from(value);
        }
    }
    for (place, to) in to.chunks_exact_mut(group).enumerate() {
        let place = place as isize;
        let (leaving, entering) = (&from[at(place - radius - 1)], &from[at(place + radius)]);
        let after = &from[at(place + radius + 1)];
        let values = leaving.iter().zip(entering).zip(after);
        for ((to, sum), ((&leaving, &entering), &after)) in
            to.iter_mut().zip(&mut *sums).zip(values)
        {
            *sum = *sum + u32::from(entering) - u32::from(leaving);
            let ends = (u32::from(leaving) + u32::from(after)) * kernel.outer;
            *to = ((*sum * kernel.inner + ends + (1 << 23)) >> 24) as u8;
        }
    }
}
