//! Polygons cut off at the borders of an image. A polygon is x and y of each corner in turn.

/// The part of `polygon` from 0 to `[height, width]`; empty if there is none.
///
/// What lies outside in several places stays joined along the border, by lines without area.
///
/// # Source
/// Sutherland and Hodgman 1974, "Reentrant polygon clipping".
pub(super) fn clip(polygon: &[f64], [height, width]: [f64; 2]) -> Vec<f64> {
    let mut corners: Vec<[f64; 2]> = polygon.as_chunks::<2>().0.to_vec();
    // Axis, and the border times the sign that makes what is beyond it larger.
    for (axis, border, sign) in [(0, 0.0, -1.0), (0, width, 1.0), (1, 0.0, -1.0), (1, height, 1.0)]
    {
        let is_inside = |corner: &[f64; 2]| sign * corner[axis] <= sign * border;
        let mut kept = Vec::with_capacity(corners.len() + 4);
        for (place, &corner) in corners.iter().enumerate() {
            let next = corners[(place + 1) % corners.len()];
            if is_inside(&corner) {
                kept.push(corner);
            }
            if is_inside(&corner) != is_inside(&next) {
                kept.push(crossing(corner, next, axis, border));
            }
        }
        corners = kept;
    }
    corners.into_flattened()
}

/// Where the line from `from` to `to`, on two sides of a border, crosses it.
fn crossing(from: [f64; 2], to: [f64; 2], axis: usize, border: f64) -> [f64; 2] {
    let share = (border - from[axis]) / (to[axis] - from[axis]);
    let mut at = [0, 1].map(|axis| from[axis] + share * (to[axis] - from[axis]));
    at[axis] = border;
    at
}

/// The box `[x0, y0, x1, y1]` around what `polygons` cover from 0 to `[height, width]`; `None` if
/// that is nothing or has no area.
///
/// The extremes of a cut polygon are among the ends of its sides' parts inside, and the corners of
/// the image that it covers.
pub(super) fn bounds(polygons: &[Vec<f64>], [height, width]: [f64; 2]) -> Option<[f64; 4]> {
    let mut found = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    let mut add = |[x, y]: [f64; 2]| {
        found = [found[0].min(x), found[1].min(y), found[2].max(x), found[3].max(y)];
    };
    for polygon in polygons {
        let corners = polygon.as_chunks::<2>().0;
        let sides =
            || (0..corners.len()).map(|at| [corners[at], corners[(at + 1) % corners.len()]]);
        sides().filter_map(|side| inside(side, [height, width])).flatten().for_each(&mut add);
        for corner in [[0.0, 0.0], [width, 0.0], [0.0, height], [width, height]] {
            // Parity of the sides to the right of it.
            let is_right = |[a, b]: &[[f64; 2]; 2]| {
                (a[1] > corner[1]) != (b[1] > corner[1])
                    && corner[0] < a[0] + (corner[1] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
            };
            if sides().filter(is_right).count() % 2 == 1 {
                add(corner);
            }
        }
    }
    (found[2] - found[0] > LEAST && found[3] - found[1] > LEAST).then_some(found)
}

/// What a box's sides must be longer than, in pixels.
///
/// # Source
/// detectron2, `Boxes.nonempty` as `filter_empty_instances` calls it.
pub(super) const LEAST: f64 = 1e-5;

/// The ends of the part of a side that lies from 0 to `[height, width]`.
fn inside([from, to]: [[f64; 2]; 2], [height, width]: [f64; 2]) -> Option<[[f64; 2]; 2]> {
    let (mut start, mut end) = (0.0_f64, 1.0_f64);
    for (axis, most) in [(0, width), (1, height)] {
        let along = to[axis] - from[axis];
        if along == 0.0 {
            if !(0.0..=most).contains(&from[axis]) {
                return None;
            }
            continue;
        }
        let crossings = [(0.0 - from[axis]) / along, (most - from[axis]) / along];
        start = start.max(crossings[0].min(crossings[1]));
        end = end.min(crossings[0].max(crossings[1]));
    }
    let most = [width, height];
    let at = |share: f64| {
        [0, 1].map(|axis| (from[axis] + share * (to[axis] - from[axis])).clamp(0.0, most[axis]))
    };
    (start <= end).then(|| [at(start), at(end)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_stays_as_it_is() {
        let polygon = [1.0, 1.0, 8.0, 2.5, 4.0, 9.0];
        assert_eq!(clip(&polygon, [10.0, 10.0]), polygon);
        assert_eq!(bounds(&[polygon.to_vec()], [10.0, 10.0]), Some([1.0, 1.0, 8.0, 9.0]));
    }

    #[test]
    fn a_corner_is_cut_off() {
        let square = vec![6.0, 6.0, 14.0, 6.0, 14.0, 14.0, 6.0, 14.0];
        let cut = clip(&square, [10.0, 12.0]);
        assert_eq!(cut, [6.0, 6.0, 12.0, 6.0, 12.0, 10.0, 6.0, 10.0]);
        assert_eq!(bounds(&[square], [10.0, 12.0]), Some([6.0, 6.0, 12.0, 10.0]));
    }

    #[test]
    fn nothing_is_left_of_what_is_outside_or_only_touches() {
        for outside in [
            vec![11.0, 1.0, 15.0, 1.0, 15.0, 5.0],
            vec![10.0, 1.0, 15.0, 1.0, 10.0, 5.0],
            // Around the corner, without crossing it.
            [-1.0, 4.0, 4.0, -1.0, -9.0, -9.0].iter().map(|x| x - 3.0).collect(),
        ] {
            assert_eq!(bounds(&[outside], [10.0, 10.0]), None);
        }
        assert!(clip(&[11.0, 1.0, 15.0, 1.0, 15.0, 5.0], [10.0, 10.0]).is_empty());
    }

    #[test]
    fn an_image_inside_a_polygon_is_its_box() {
        let around = vec![-5.0, -5.0, 30.0, -5.0, 30.0, 30.0, -5.0, 30.0];
        assert_eq!(bounds(&[around], [10.0, 12.0]), Some([0.0, 0.0, 12.0, 10.0]));
    }

    // A horseshoe whose upper arm is outside: the line that joins the arms along the border is no
    // part of it.
    #[test]
    fn what_joins_the_parts_does_not_count() {
        let shoe = vec![
            5.0, -6.0, 5.0, -3.0, -4.0, -3.0, -4.0, 6.0, 5.0, 6.0, 5.0, 9.0, -9.0, 9.0, -9.0, -6.0,
        ];
        assert_eq!(bounds(&[shoe], [20.0, 20.0]), Some([0.0, 6.0, 5.0, 9.0]));
    }
}
