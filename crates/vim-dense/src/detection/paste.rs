//! A mask of the head in its place in the image.

use super::boxes::{Edges, is_nonempty};

/// The pixels of an image of `[height, width]` in which a mask of `side · side` probabilities,
/// stretched over the box `edges`, is at least `threshold`: `[height, width]`, row by row.
///
/// Probabilities are interpolated bilinearly between the cells' centres and are 0 outside them. A
/// box without an inside, or with an edge that is no number, has no pixels.
///
/// # Source
///
/// He et al. 2017; `paste_masks_in_image` of detectron2, in its order of operations.
#[must_use]
pub fn paste(
    probabilities: &[f32],
    side: usize,
    edges: Edges,
    [height, width]: [usize; 2],
    threshold: f32,
) -> Vec<bool> {
    let mut pixels = vec![false; height * width];
    if !is_nonempty(edges) || side == 0 || probabilities.len() < side * side {
        return pixels;
    }
    let [left, top, right, bottom] = edges;
    // Where the centre of a pixel is, in cells.
    let place = |pixel: usize, low: f32, high: f32| {
        let share = (pixel as f32 + 0.5 - low) / (high - low) * 2.0 - 1.0;
        ((share + 1.0) * side as f32 - 1.0) / 2.0
    };
    let columns: Vec<f32> = (0..width).map(|pixel| place(pixel, left, right)).collect();
    let is_near = |place: f32| place > -1.0 && place < side as f32;
    for (row, pixels) in pixels.chunks_exact_mut(width.max(1)).enumerate() {
        let y = place(row, top, bottom);
        if !is_near(y) {
            continue;
        }
        for (&x, pixel) in columns.iter().zip(pixels).filter(|(x, _)| is_near(**x)) {
            *pixel = between(probabilities, side, x, y) >= threshold;
        }
    }
    pixels
}

/// The probability at a place between cells.
fn between(probabilities: &[f32], side: usize, x: f32, y: f32) -> f32 {
    let (left, top) = (x.floor(), y.floor());
    let cell = |row: f32, column: f32| {
        let is_in = |at: f32| at >= 0.0 && at < side as f32;
        if is_in(row) && is_in(column) {
            probabilities[row as usize * side + column as usize]
        } else {
            0.0
        }
    };
    let (right, bottom) = (left + 1.0, top + 1.0);
    cell(top, left) * ((right - x) * (bottom - y))
        + cell(top, right) * ((x - left) * (bottom - y))
        + cell(bottom, left) * ((right - x) * (y - top))
        + cell(bottom, right) * ((x - left) * (y - top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mask_is_its_box_but_for_what_fades_at_the_edge() {
        // Cells of two pixels: at the outermost pixels' centres three quarters are left.
        let pasted = paste(&[1.0; 4], 2, [1.0, 2.0, 5.0, 6.0], [7, 6], 0.5);
        for (at, is_in) in pasted.into_iter().enumerate() {
            let (row, column) = (at / 6, at % 6);
            assert_eq!(is_in, (1..5).contains(&column) && (2..6).contains(&row), "{at}");
        }
    }

    #[test]
    fn boxes_outside_and_empty_ones_have_no_pixels() {
        for edges in [
            [20.0, 20.0, 30.0, 30.0],
            [3.0, 1.0, 3.0, 4.0],
            [4.0, 1.0, 3.0, 4.0],
            [f32::NAN, 0.0, 4.0, 4.0],
        ] {
            assert!(!paste(&[1.0; 9], 3, edges, [6, 5], 0.5).contains(&true), "{edges:?}");
        }
        assert_eq!(paste(&[1.0], 1, [0.0, 0.0, 1.0, 1.0], [0, 0], 0.5), Vec::<bool>::new());
        let one = paste(&[1.0], 1, [2.0, 1.0, 3.0, 2.0], [3, 4], 0.5);
        assert_eq!(one.iter().position(|&is_in| is_in), Some(6));
    }
}
