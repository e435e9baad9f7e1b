//! Features of boxes in f64, sample by sample.

use super::RoiSampling;

/// Boxes on images; shapes as in [`crate::roi_align()`], row-major.
#[derive(Clone, Debug, Default)]
pub struct OracleRoiAlign {
    /// `[B, H, W, C]`.
    pub from: [usize; 4],
    /// `[B, H, W, C]`.
    pub x: Vec<f64>,
    /// The image of each box, and its left, top, right and bottom edge.
    pub rois: Vec<(usize, [f64; 4])>,
    /// Pixels of `x` to one of the image.
    pub scale: f64,
    /// Bins along a side.
    pub bins: usize,
    /// Where a bin's samples lie.
    pub sampling: RoiSampling,
}

impl OracleRoiAlign {
    /// The result, `[R, bins, bins, C]`.
    #[must_use]
    pub fn forward(&self) -> Vec<f64> {
        let mut y = vec![0.0; self.rois.len() * self.bins * self.bins * self.from[3]];
        self.terms(|to, from, share| y[to] += self.x[from] * share);
        y
    }

    /// The gradient of `x` of `Σ grad_y·y`.
    #[must_use]
    pub fn backward(&self, grad_y: &[f64]) -> Vec<f64> {
        let mut x = vec![0.0; self.x.len()];
        self.terms(|to, from, share| x[from] += grad_y[to] * share);
        x
    }

    /// Calls `term` with an index of the result, one that it reads, and the share of that.
    fn terms(&self, mut term: impl FnMut(usize, usize, f64)) {
        let ([_, height, width, channels], bins) = (self.from, self.bins);
        let RoiSampling { ratio, aligned } = self.sampling;
        let to_centre = if aligned { 0.5 } else { 0.0 };
        let least = if aligned { f64::NEG_INFINITY } else { 1.0 };
        for (roi, &(image, corners)) in self.rois.iter().enumerate() {
            let [left, top, right, bottom] = corners.map(|edge| edge * self.scale - to_centre);
            let size = [bottom - top, right - left].map(|size| size.max(least) / bins as f64);
            let of_size = |size: f64| size.ceil().max(0.0) as usize;
            let grid = if ratio > 0 { [ratio; 2] } else { size.map(of_size) };
            let count = (grid[0] * grid[1]).max(1) as f64;
            for bin in 0..bins * bins {
                for point in 0..grid[0] * grid[1] {
                    let at = |low: f64, axis: usize, bin: usize, point: usize| {
                        low + size[axis] * (bin as f64 + (point as f64 + 0.5) / grid[axis] as f64)
                    };
                    let y = at(top, 0, bin / bins, point / grid[1]);
                    let x = at(left, 1, bin % bins, point % grid[1]);
                    for (row, of_row) in neighbours(y, height) {
                        for (column, of_column) in neighbours(x, width) {
                            let to = (roi * bins * bins + bin) * channels;
                            let from = ((image * height + row) * width + column) * channels;
                            for c in 0..channels {
                                term(to + c, from + c, of_row * of_column / count);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The two pixels, which may be the same, that `place` lies between, and their shares: none of a
/// place more than a pixel outside.
fn neighbours(place: f64, pixels: usize) -> Vec<(usize, f64)> {
    if place < -1.0 || place > pixels as f64 {
        return Vec::new();
    }
    let last = pixels - 1;
    let place = place.clamp(0.0, last as f64);
    let lower = place.floor() as usize;
    let share = place - lower as f64;
    vec![(lower, 1.0 - share), ((lower + 1).min(last), share)]
}
