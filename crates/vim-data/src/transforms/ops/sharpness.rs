//! Sharpness: a blend with a smoothed image.

use super::blend::blend;
use crate::simd::{byte_of_f32, widest};

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
