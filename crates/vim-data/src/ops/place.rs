//! Where pixels go: the mirror image and the zero-padded crop.

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

/// Cuts a crop of the image's own size, `[height, width, 3]`, out of it with `padding` black pixels around.
///
/// `corner` is the crop's row and column in the padded image; `[padding, padding]` is the image itself.
///
/// # Source
/// torchvision's `RandomCrop(size, padding)`.
///
/// # Panics
/// If a length is not `3 · height · width`.
pub fn pad_crop(
    source: &[u8],
    [height, width]: [usize; 2],
    padding: usize,
    corner: [usize; 2],
    target: &mut [u8],
) {
    assert_eq!(source.len(), 3 * height * width, "the source is not [{height}, {width}, 3]");
    assert_eq!(target.len(), source.len(), "the target is not the source's size");
    target.fill(0);
    // Where source and crop overlap; everything else stays black.
    let (top, bottom) = overlap(corner[0], padding, height);
    let (left, right) = overlap(corner[1], padding, width);
    if left == right {
        return; // an image narrower than the padding, cropped past its edge
    }
    let length = 3 * (right - left);
    for y in top..bottom {
        let from = 3 * ((y + corner[0] - padding) * width + left + corner[1] - padding);
        let to = 3 * (y * width + left);
        target[to..to + length].copy_from_slice(&source[from..from + length]);
    }
}

/// The rows (or columns) of a crop starting at `offset` that lie inside the unpadded image.
fn overlap(offset: usize, padding: usize, side: usize) -> (usize, usize) {
    let start = padding.saturating_sub(offset).min(side);
    let end = (side + padding).saturating_sub(offset).min(side).max(start);
    (start, end)
}
