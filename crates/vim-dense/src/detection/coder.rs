//! Boxes as differences to other boxes.

use super::boxes::Edges;

/// The largest logarithm by which a side grows: that of 1000/16.
const MOST_GROWTH: f32 = 4.135_166_6;

/// Weights of the differences: centre across and down, logarithm of width and height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxCoder(pub [f32; 4]);

/// Width, height, and centre across and down.
fn measures([left, top, right, bottom]: Edges) -> [f32; 4] {
    let (width, height) = (right - left, bottom - top);
    [width, height, left + 0.5 * width, top + 0.5 * height]
}

impl BoxCoder {
    /// The differences from `from`, which has an inside, to `to`.
    ///
    /// # Source
    ///
    /// Girshick et al. 2014, appendix C; `Box2BoxTransform` of detectron2.
    #[must_use]
    pub fn encode(&self, from: Edges, to: Edges) -> [f32; 4] {
        let [width, height, x, y] = measures(from);
        let [to_width, to_height, to_x, to_y] = measures(to);
        let [across, down, wide, high] = self.0;
        [
            across * (to_x - x) / width,
            down * (to_y - y) / height,
            wide * (to_width / width).ln(),
            high * (to_height / height).ln(),
        ]
    }

    /// The box at `deltas` from `from`. A side grows by 62.5 at most.
    #[must_use]
    pub fn decode(&self, from: Edges, deltas: [f32; 4]) -> Edges {
        let [width, height, x, y] = measures(from);
        let [across, down, wide, high] = self.0;
        let (to_x, to_y) = (deltas[0] / across * width + x, deltas[1] / down * height + y);
        // Not `min`, which would make a number of what is none.
        let grow = |delta: f32| if delta > MOST_GROWTH { MOST_GROWTH.exp() } else { delta.exp() };
        let to_width = grow(deltas[2] / wide) * width;
        let to_height = grow(deltas[3] / high) * height;
        [
            to_x - 0.5 * to_width,
            to_y - 0.5 * to_height,
            to_x + 0.5 * to_width,
            to_y + 0.5 * to_height,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_the_inverse() {
        let coder = BoxCoder([10.0, 20.0, 5.0, 15.0]);
        for (from, to) in [
            ([3.0, 4.0, 13.0, 24.0], [5.5, 1.0, 9.0, 33.0]),
            ([0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.75, 60.0]),
        ] {
            let back = coder.decode(from, coder.encode(from, to));
            assert!(back.iter().zip(to).all(|(a, b)| (a - b).abs() < 1e-4), "{back:?} {to:?}");
        }
    }

    #[test]
    fn growth_has_a_limit_and_nan_stays() {
        let coder = BoxCoder([1.0; 4]);
        let [left, _, right, _] = coder.decode([0.0, 0.0, 16.0, 16.0], [0.0, 0.0, 1e9, 0.0]);
        assert!((right - left - 1000.0).abs() < 0.01);
        assert!(coder.decode([0.0, 0.0, 1.0, 1.0], [f32::NAN; 4]).iter().all(|x| x.is_nan()));
    }
}
