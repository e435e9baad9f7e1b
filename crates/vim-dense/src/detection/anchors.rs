//! Anchors: boxes of a few sizes and shapes around every pixel of a map.

use super::boxes::Edges;

/// Sizes and shapes of the anchors of a pyramid.
///
/// # Source
///
/// Lin et al. 2017, section 4.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Anchors {
    /// The square root of the area on each level, in pixels of the image.
    pub sizes: Vec<f64>,
    /// Height to width.
    pub ratios: Vec<f64>,
    /// Pixels of the image to one of each level.
    pub strides: Vec<usize>,
}

impl Anchors {
    /// The anchors of `level` on a map of `[height, width]`: row by row, pixel by pixel, ratio by
    /// ratio, around the upper left corner of each pixel. Some reach outside the image.
    ///
    /// # Source
    ///
    /// `DefaultAnchorGenerator` of detectron2 with `offset = 0`.
    #[must_use]
    pub fn of_level(&self, level: usize, [height, width]: [usize; 2]) -> Vec<Edges> {
        let (size, stride) = (self.sizes[level], self.strides[level]);
        let shapes: Vec<Edges> = self
            .ratios
            .iter()
            .map(|ratio| {
                let across = (size * size / ratio).sqrt();
                let down = ratio * across;
                [-across, -down, across, down].map(|edge| (edge / 2.0) as f32)
            })
            .collect();
        let mut anchors = Vec::with_capacity(height * width * shapes.len());
        for row in 0..height {
            for column in 0..width {
                let (x, y) = ((column * stride) as f32, (row * stride) as f32);
                let place =
                    |shape: &Edges| [x + shape[0], y + shape[1], x + shape[2], y + shape[3]];
                anchors.extend(shapes.iter().map(place));
            }
        }
        anchors
    }
}
