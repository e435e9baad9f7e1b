//! Boxes of images, on the host.

/// Left, top, right and bottom edge, in pixels.
pub type Edges = [f32; 4];

/// The area; negative or none of a box whose edges are in the wrong order or no numbers.
#[must_use]
pub fn area([left, top, right, bottom]: Edges) -> f32 {
    (right - left) * (bottom - top)
}

/// Intersection over union: 0 of boxes that do not meet, of empty ones too.
///
/// # Source
///
/// `pairwise_iou` of detectron2, in its order of operations.
#[must_use]
pub fn iou(one: Edges, two: Edges) -> f32 {
    let width = one[2].min(two[2]) - one[0].max(two[0]);
    let height = one[3].min(two[3]) - one[1].max(two[1]);
    let common = width.max(0.0) * height.max(0.0);
    if common > 0.0 { common / (area(one) + area(two) - common) } else { 0.0 }
}

/// The part of a box within an image of `[height, width]`. What is no number stays none.
#[must_use]
pub fn clip([left, top, right, bottom]: Edges, [height, width]: [usize; 2]) -> Edges {
    let (height, width) = (height as f32, width as f32);
    let [left, right] = [left, right].map(|edge| edge.clamp(0.0, width));
    let [top, bottom] = [top, bottom].map(|edge| edge.clamp(0.0, height));
    [left, top, right, bottom]
}

/// Whether a box has an inside; false of one with an edge that is no number.
#[must_use]
pub fn is_nonempty([left, top, right, bottom]: Edges) -> bool {
    right - left > 0.0 && bottom - top > 0.0
}

/// Whether every edge is a finite number.
#[must_use]
pub fn is_finite(edges: Edges) -> bool {
    edges.iter().all(|edge| edge.is_finite())
}

/// The box of an image that is resized, by the factors of its rows and its columns.
#[must_use]
pub fn scaled([left, top, right, bottom]: Edges, [rows, columns]: [f32; 2]) -> Edges {
    [left * columns, top * rows, right * columns, bottom * rows]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_meet_has_no_overlap() {
        let unit = [0.0, 0.0, 1.0, 1.0];
        assert_eq!(iou(unit, unit), 1.0);
        assert_eq!(iou(unit, [0.5, 0.0, 1.5, 1.0]), 1.0 / 3.0);
        for other in [[1.0, 0.0, 2.0, 1.0], [3.0, 3.0, 4.0, 4.0], [0.5, 0.5, 0.5, 0.5]] {
            assert_eq!(iou(unit, other), 0.0);
        }
        let point = [0.5, 0.5, 0.5, 0.5];
        assert_eq!(iou(point, point), 0.0);
    }

    #[test]
    fn a_clipped_box_is_inside_or_empty() {
        assert_eq!(clip([-3.0, 2.0, 9.0, 7.0], [5, 8]), [0.0, 2.0, 8.0, 5.0]);
        assert!(!is_nonempty(clip([9.0, 9.0, 12.0, 12.0], [5, 8])));
        assert!(!is_nonempty([f32::NAN, 0.0, 1.0, 1.0]));
        assert!(!is_finite([0.0, 0.0, f32::INFINITY, 1.0]));
    }
}
