//! Operations that move pixels: the mirror image, and crops with a border.

use std::ops::Range;

use crate::pixels::Pixels;

/// Mirrors `image`, `[height, width, 3]`, left to right.
///
/// # Panics
/// If the length of `image` is not `3 · height · width`.
pub fn flip(image: &mut [u8], [height, width]: [usize; 2]) {
    assert_eq!(image.len(), 3 * height * width, "the image is not [{height}, {width}, 3]");
    if width > 0 {
        for row in image.chunks_exact_mut(3 * width) {
            row.as_chunks_mut::<3>().0.reverse();
        }
    }
}

/// Cuts a crop of `size`, `[height, width]`, out of `source` with black pixels around it.
///
/// `padding` is the rows above and below and the columns left and right; `corner` is the crop's row
/// and column in the padded image. Pixels outside the padding are black too.
///
/// # Source
/// torchvision's `RandomCrop(size, padding)`.
///
/// # Panics
/// If the length of `into` is not `3 · height · width`.
pub fn pad_crop(
    source: &Pixels,
    padding: [usize; 2],
    corner: [usize; 2],
    [height, width]: [usize; 2],
    into: &mut [u8],
) {
    assert_eq!(into.len(), 3 * height * width, "the target is not [{height}, {width}, 3]");
    into.fill(0);
    let rows = overlap(corner[0], padding[0], source.height, height);
    let columns = overlap(corner[1], padding[1], source.width, width);
    if columns.is_empty() {
        return;
    }
    let length = 3 * columns.len();
    for y in rows {
        let row = y + corner[0] - padding[0];
        let from = 3 * (row * source.width + columns.start + corner[1] - padding[1]);
        let to = 3 * (y * width + columns.start);
        into[to..to + length].copy_from_slice(&source.data[from..from + length]);
    }
}

/// The rows (or columns) of a crop of `length` from `offset` on that lie inside the unpadded image.
fn overlap(offset: usize, padding: usize, side: usize, length: usize) -> Range<usize> {
    let start = padding.saturating_sub(offset).min(length);
    let end = (side + padding).saturating_sub(offset).min(length).max(start);
    start..end
}

/// Cuts a crop of `size`, `[height, width]`, out of `source` with `padding` pixels mirrored on
/// every side; the edge itself is not repeated.
///
/// `corner` is the crop's row and column in the padded image.
///
/// # Source
/// torchvision's `RandomCrop(size, padding, padding_mode="reflect")`.
///
/// # Panics
/// If the length of `into` is not `3 · height · width`, the crop is not inside the padded image, or
/// the source has no more pixels along an axis than are mirrored.
pub fn reflect_crop(
    source: &Pixels,
    padding: usize,
    corner: [usize; 2],
    [height, width]: [usize; 2],
    into: &mut [u8],
) {
    assert_eq!(into.len(), 3 * height * width, "the target is not [{height}, {width}, 3]");
    let inside = |place: usize, side: usize| {
        let place = place.abs_diff(padding);
        if place < side { place } else { 2 * (side - 1) - place }
    };
    let columns: Vec<usize> = (0..width).map(|x| inside(x + corner[1], source.width)).collect();
    for (y, row) in into.as_chunks_mut::<3>().0.chunks_exact_mut(width).enumerate() {
        let from = inside(y + corner[0], source.height) * source.width;
        for (pixel, &x) in row.iter_mut().zip(&columns) {
            pixel.copy_from_slice(&source.data[3 * (from + x)..][..3]);
        }
    }
}
