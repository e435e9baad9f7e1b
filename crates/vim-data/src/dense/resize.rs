//! Resizing as OpenCV does it: images bilinearly in fixed point, label maps to the nearest pixel.
//!
//! The results are OpenCV's bit for bit. Only a region of the resized image is computed, since a
//! crop of it is all that training needs.
//!
//! # Source
//! OpenCV 4.10, `modules/imgproc/src/resize.cpp`: `HResizeLinear`, `VResizeLinear` for 8 bits,
//! `resizeNN`, and `ResizeAreaFast` where both sides are halved; mmcv 1.7.2, `rescale_size`.

use crate::pixels::{Pixels, Region};

/// Bits behind the point of an interpolation weight.
const BITS: u32 = 11;
/// A weight of 1.
const ONE: i32 = 1 << BITS;

/// The size, at least 1 pixel, of an image of `size` rescaled with its aspect kept, so that its
/// longer side is at most the larger of `scale` and its shorter one at most the smaller.
///
/// Both are `[height, width]` in pixels, the order within `scale` is of no consequence.
pub fn rescaled(size: [usize; 2], scale: [usize; 2]) -> [usize; 2] {
    let ends = |sides: [usize; 2]| [sides[0].max(sides[1]) as f64, sides[0].min(sides[1]) as f64];
    let ([long, short], [most_long, most_short]) = (ends(size), ends(scale));
    let factor = (most_long / long).min(most_short / short);
    size.map(|side| ((side as f64 * factor + 0.5) as usize).max(1))
}

/// The two source pixels that one of the target lies between, and their weights.
#[derive(Clone, Copy, Debug)]
struct Tap {
    at: [usize; 2],
    weights: [i32; 2],
}

/// The taps of the pixels `range` of a side of `to` pixels, made from `from` pixels.
///
/// Beyond the border the outermost pixel is repeated. Along a row OpenCV gives that pixel the whole
/// weight (`whole`), along a column it keeps both weights, which rounds differently.
fn taps(from: usize, to: usize, range: std::ops::Range<usize>, whole: bool) -> Vec<Tap> {
    let scale = 1.0 / (to as f64 / from as f64);
    let last = from as i64 - 1;
    range
        .map(|place| {
            let exact = ((place as f64 + 0.5) * scale - 0.5) as f32;
            let floor = exact.floor();
            let (mut first, mut fraction) = (floor as i64, exact - floor);
            if whole && first < 0 {
                (first, fraction) = (0, 0.0);
            }
            if whole && first >= last {
                (first, fraction) = (last, 0.0);
            }
            let weight = |share: f32| (share * ONE as f32).round_ties_even() as i32;
            Tap {
                at: [first, first + 1].map(|at| at.clamp(0, last) as usize),
                weights: [weight(1.0 - fraction), weight(fraction)],
            }
        })
        .collect()
}

/// Writes the part `region` of `source`, resized bilinearly to `size`, to `into`.
///
/// # Shapes
/// `into` is `[region.height, region.width, 3]`.
///
/// # Panics
/// If the region is not inside `size`, or a length does not fit.
pub fn bilinear(source: &Pixels, size: [usize; 2], region: Region, into: &mut [u8]) {
    assert!(region.is_inside(size), "{region:?} is not inside {size:?}");
    assert_eq!(into.len(), 3 * region.height * region.width, "the target is not {region:?}");
    let stored = [source.height, source.width];
    let row_bytes = 3 * region.width;
    if stored == size {
        for (line, to) in into.chunks_exact_mut(row_bytes).enumerate() {
            let from = 3 * ((region.top + line) * source.width + region.left);
            to.copy_from_slice(&source.data[from..from + row_bytes]);
        }
        return;
    }
    if stored == size.map(|side| 2 * side) {
        return halved(source, region, into);
    }
    let columns = taps(source.width, size[1], region.left..region.left + region.width, true);
    let rows = taps(source.height, size[0], region.top..region.top + region.height, false);
    // Rows are used by several of the target: the two made last are kept.
    let mut kept = [(usize::MAX, vec![0; row_bytes]), (usize::MAX, vec![0; row_bytes])];
    for (tap, to) in rows.iter().zip(into.chunks_exact_mut(row_bytes)) {
        let [above, below] = tap.at;
        if kept[1].0 == above {
            kept.swap(0, 1);
        }
        for (slot, at) in [above, below].into_iter().enumerate() {
            if kept[slot].0 != at {
                horizontal(source, at, &columns, &mut kept[slot].1);
                kept[slot].0 = at;
            }
        }
        let [weight, other] = tap.weights;
        for ((to, &a), &b) in to.iter_mut().zip(&kept[0].1).zip(&kept[1].1) {
            let sum = ((weight * (a >> 4)) >> 16) + ((other * (b >> 4)) >> 16);
            *to = ((sum + 2) >> 2).clamp(0, 255) as u8;
        }
    }
}

/// A row of the source at the target's columns, in units of 1/`ONE` grey level.
fn horizontal(source: &Pixels, row: usize, columns: &[Tap], into: &mut [i32]) {
    let row = &source.data[3 * row * source.width..][..3 * source.width];
    for (tap, to) in columns.iter().zip(into.as_chunks_mut::<3>().0) {
        let [left, right] = tap.at.map(|at| &row[3 * at..3 * at + 3]);
        for (channel, to) in to.iter_mut().enumerate() {
            *to = i32::from(left[channel]) * tap.weights[0]
                + i32::from(right[channel]) * tap.weights[1];
        }
    }
}

/// [`bilinear`] where both sides are halved: the mean of four pixels, rounded.
fn halved(source: &Pixels, region: Region, into: &mut [u8]) {
    let at = |y: usize, x: usize| u32::from(source.data[3 * y * source.width + x]);
    for (line, to) in into.chunks_exact_mut(3 * region.width).enumerate() {
        let y = 2 * (region.top + line);
        for (place, to) in to.iter_mut().enumerate() {
            let x = 6 * (region.left + place / 3) + place % 3;
            let sum = at(y, x) + at(y, x + 3) + at(y + 1, x) + at(y + 1, x + 3);
            *to = ((sum + 2) >> 2) as u8;
        }
    }
}

/// The source's pixel nearest to each pixel of `range` of a side of `to` pixels, made from `from`.
pub(super) fn nearest_places(
    from: usize,
    to: usize,
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = usize> + Clone {
    let scale = 1.0 / (to as f64 / from as f64);
    range.map(move |place| ((place as f64 * scale) as usize).min(from - 1))
}

/// The part `region` of labels `[h, w]` of size `stored`, taken to `size`: to each pixel the
/// nearest one's label.
///
/// # Panics
/// If the region is not inside `size`, or there are not as many labels as pixels.
pub fn nearest(labels: &[u8], stored: [usize; 2], size: [usize; 2], region: Region) -> Vec<u8> {
    assert!(region.is_inside(size), "{region:?} is not inside {size:?}");
    assert_eq!(labels.len(), stored[0] * stored[1], "the labels are not {stored:?}");
    let columns = nearest_places(stored[1], size[1], region.left..region.left + region.width);
    let mut taken = Vec::with_capacity(region.height * region.width);
    for row in nearest_places(stored[0], size[0], region.top..region.top + region.height) {
        let row = &labels[row * stored[1]..][..stored[1]];
        taken.extend(columns.clone().map(|column| row[column]));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_the_aspect_and_fit_both_limits() {
        for (size, scale, expected) in [
            ([512, 683], [2048, 512], [512, 683]),
            ([100, 200], [2048, 512], [512, 1024]),
            ([100, 1000], [2048, 512], [205, 2048]),
            ([1000, 100], [512, 2048], [2048, 205]),
            ([1, 5000], [64, 16], [1, 64]),
        ] {
            assert_eq!(rescaled(size, scale), expected, "{size:?} {scale:?}");
        }
    }

    #[test]
    fn a_region_is_that_part_of_the_whole() {
        let data = (0..3 * 9 * 11).map(|at| (at * 37 % 251) as u8).collect();
        let source = Pixels { height: 9, width: 11, data };
        for size in [[9, 11], [20, 5], [4, 30], [17, 23]] {
            let whole = Region { top: 0, left: 0, height: size[0], width: size[1] };
            let mut all = vec![0; 3 * size[0] * size[1]];
            bilinear(&source, size, whole, &mut all);
            let part = Region { top: 1, left: 2, height: 3, width: 3 };
            let mut few = vec![0; 27];
            bilinear(&source, size, part, &mut few);
            for (line, got) in few.chunks_exact(9).enumerate() {
                let from = 3 * ((1 + line) * size[1] + 2);
                assert_eq!(got, &all[from..from + 9], "{size:?}");
            }
        }
    }

    #[test]
    fn values_between_two_pixels_are_weighted_and_the_border_is_repeated() {
        let source = Pixels { height: 1, width: 2, data: vec![0, 0, 0, 200, 100, 40] };
        let mut into = vec![0; 12];
        let whole = Region { top: 0, left: 0, height: 1, width: 4 };
        bilinear(&source, [1, 4], whole, &mut into);
        assert_eq!(into, [0, 0, 0, 50, 25, 10, 150, 75, 30, 200, 100, 40]);
    }

    #[test]
    fn labels_are_never_mixed() {
        let whole = Region { top: 0, left: 0, height: 2, width: 5 };
        let taken = nearest(&[1, 7, 255], [1, 3], [2, 5], whole);
        assert_eq!(taken, [1, 1, 7, 7, 255, 1, 1, 7, 7, 255]);
    }
}
