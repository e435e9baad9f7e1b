//! What the mask head is to find: the part of an instance's mask in a box, on a grid.

use hotcoco::mask::{decode, fr_polys};
use hotcoco::{Rle, Segmentation};
use vim_kernels::roi_axis;

use super::boxes::Edges;
use crate::error::DenseError;

/// The least side of a box that polygons are scaled by, in pixels.
const LEAST_SIDE: f64 = 0.1;
/// The share of a cell from which it is in the mask.
const HALF: f64 = 0.5;

/// An instance's mask in an image.
#[derive(Clone, Debug)]
pub enum InstanceMask {
    /// Outlines, each `x, y, x, y, …` in pixels.
    Polygons(Vec<Vec<f64>>),
    /// Pixels.
    Bitmap {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Whether each is in it, `[height, width]`.
        pixels: Vec<bool>,
    },
}

impl InstanceMask {
    /// The mask of an annotation of an image of `[height, width]`; run lengths are decoded.
    ///
    /// # Errors
    ///
    /// [`DenseError::Mask`] if run lengths are damaged, or of an image of another size.
    pub fn of(
        segmentation: &Segmentation,
        [height, width]: [usize; 2],
    ) -> Result<Self, DenseError> {
        let wrong = |why: String| DenseError::Mask { why };
        if let Some(polygons) = segmentation.polygons() {
            return Ok(Self::Polygons(polygons.into_owned()));
        }
        let too_large = |_| wrong(format!("of an image of {height}×{width} pixels"));
        let size = [u32::try_from(height).map_err(too_large)?, width as u32];
        let rle =
            segmentation.to_rle(size[0], size[1]).map_err(|error| wrong(error.to_string()))?;
        if [rle.h, rle.w] != size {
            let size = format!("{}×{} of an image of {height}×{width} pixels", rle.h, rle.w);
            return Err(wrong(size));
        }
        Ok(Self::Bitmap { height, width, pixels: rows(&rle) })
    }

    /// The mask within `edges` on a grid of `side · side` cells, row by row.
    ///
    /// Polygons are moved and scaled to the grid and drawn there, as COCO's reference draws them;
    /// of a bitmap a cell is in the mask where its mean by [`vim_kernels::roi_align()`] is a half
    /// or more.
    ///
    /// # Errors
    ///
    /// [`DenseError::Mask`] if `edges` are not finite, or so large that they cannot be sampled.
    ///
    /// # Source
    ///
    /// `rasterize_polygons_within_box` and `BitMasks.crop_and_resize` of detectron2.
    pub fn target(&self, edges: Edges, side: usize) -> Result<Vec<bool>, DenseError> {
        let wrong = |why: String| DenseError::Mask { why };
        if !super::boxes::is_finite(edges) {
            return Err(wrong(format!("a box with the edges {edges:?}")));
        }
        let [left, top, right, bottom] = edges;
        match self {
            Self::Polygons(polygons) => {
                let factor = |size: f32| side as f64 / f64::from(size).max(LEAST_SIDE);
                let (across, down) = (factor(right - left), factor(bottom - top));
                let moved = |polygon: &Vec<f64>| -> Vec<f64> {
                    let (points, _) = polygon.as_chunks::<2>();
                    let point = |&[x, y]: &[f64; 2]| {
                        [(x - f64::from(left)) * across, (y - f64::from(top)) * down]
                    };
                    points.iter().flat_map(point).collect()
                };
                let polygons: Vec<Vec<f64>> = polygons.iter().map(moved).collect();
                let cells = u32::try_from(side).map_err(|error| wrong(error.to_string()))?;
                let rle =
                    fr_polys(&polygons, cells, cells).map_err(|error| wrong(error.to_string()))?;
                Ok(rows(&rle))
            }
            Self::Bitmap { height, width, pixels } => {
                let axis = |ends, pixels| {
                    roi_axis(ends, side, pixels).map_err(|error| wrong(error.to_string()))
                };
                let (down, across) = (axis([top, bottom], *height)?, axis([left, right], *width)?);
                let mean = |(top, of_rows): &(usize, Vec<f32>), column: &(usize, Vec<f32>)| {
                    let mut sum = 0.0;
                    for (row, of_row) in of_rows.iter().enumerate() {
                        let line = &pixels[(top + row) * width + column.0..];
                        let line = line.iter().zip(&column.1).filter(|(is_in, _)| **is_in);
                        let line: f64 = line.map(|(_, weight)| f64::from(*weight)).sum();
                        sum += f64::from(*of_row) * line;
                    }
                    sum
                };
                let cells =
                    down.iter().flat_map(|row| across.iter().map(move |column| (row, column)));
                // The sums of weights are rounded.
                Ok(cells.map(|(row, column)| mean(row, column) >= HALF - 1e-6).collect())
            }
        }
    }

    /// The smallest box around the mask; of pixels it ends behind the last one. All 0 of nothing.
    ///
    /// # Source
    ///
    /// `get_bounding_boxes` of detectron2's masks.
    #[must_use]
    pub fn bounding_box(&self) -> Edges {
        let mut edges = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let mut reach = |left: f32, top: f32, right: f32, bottom: f32| {
            edges =
                [edges[0].min(left), edges[1].min(top), edges[2].max(right), edges[3].max(bottom)];
        };
        match self {
            Self::Polygons(polygons) => {
                for [x, y] in polygons.iter().flat_map(|polygon| polygon.as_chunks::<2>().0) {
                    let (x, y) = (*x as f32, *y as f32);
                    reach(x, y, x, y);
                }
            }
            Self::Bitmap { width, pixels, .. } => {
                for at in pixels.iter().enumerate().filter(|(_, is_in)| **is_in).map(|(at, _)| at) {
                    let (x, y) = ((at % width) as f32, (at / width) as f32);
                    reach(x, y, x + 1.0, y + 1.0);
                }
            }
        }
        if edges[0].is_finite() { edges } else { [0.0; 4] }
    }
}

/// Run lengths, which go down columns, as rows of pixels.
fn rows(rle: &Rle) -> Vec<bool> {
    let (height, width) = (rle.h as usize, rle.w as usize);
    let columns = decode(rle);
    (0..height * width).map(|at| columns[at % width * height + at / width] != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A square from (2, 2) to (6, 6).
    fn square() -> [InstanceMask; 2] {
        let polygon = vec![2.0, 2.0, 6.0, 2.0, 6.0, 6.0, 2.0, 6.0];
        let is_in = |at: usize| (2..6).contains(&(at % 10)) && (2..6).contains(&(at / 10));
        let bitmap =
            InstanceMask::Bitmap { height: 8, width: 10, pixels: (0..80).map(is_in).collect() };
        [InstanceMask::Polygons(vec![polygon]), bitmap]
    }

    #[test]
    fn a_square_fills_its_box_and_half_of_a_box_twice_as_wide() {
        for mask in square() {
            assert_eq!(mask.bounding_box(), [2.0, 2.0, 6.0, 6.0]);
            assert_eq!(mask.target([2.0, 2.0, 6.0, 6.0], 4).unwrap(), [true; 16]);
            let half = mask.target([2.0, 2.0, 10.0, 6.0], 8).unwrap();
            for (at, is_in) in half.into_iter().enumerate() {
                assert_eq!(is_in, at % 8 < 4, "{mask:?} {at}");
            }
            assert_eq!(mask.target([7.0, 0.0, 9.0, 1.0], 3).unwrap(), [false; 9]);
            // Boxes outside and without area.
            assert_eq!(mask.target([60.0, 60.0, 64.0, 64.0], 2).unwrap(), [false; 4]);
            assert_eq!(mask.target([9.0, 7.0, 9.0, 7.0], 2).unwrap().len(), 4);
            assert!(mask.target([0.0, f32::NAN, 1.0, 1.0], 2).is_err());
        }
    }

    #[test]
    fn nothing_has_no_box() {
        assert_eq!(InstanceMask::Polygons(vec![]).bounding_box(), [0.0; 4]);
        assert_eq!(
            InstanceMask::Polygons(vec![]).target([0.0, 0.0, 4.0, 4.0], 2).unwrap(),
            [false; 4]
        );
        let pixels = vec![false; 6];
        let none = InstanceMask::Bitmap { height: 2, width: 3, pixels };
        assert_eq!(none.bounding_box(), [0.0; 4]);
    }

    #[test]
    fn run_lengths_are_of_the_image() {
        let rle = Segmentation::UncompressedRle { size: [2, 3], counts: vec![1, 2, 3] };
        let InstanceMask::Bitmap { pixels, .. } = InstanceMask::of(&rle, [2, 3]).unwrap() else {
            panic!("run lengths are decoded")
        };
        assert_eq!(pixels, [false, true, false, true, false, false]);
        assert!(InstanceMask::of(&rle, [3, 2]).is_err());
        let damaged = Segmentation::UncompressedRle { size: [2, 3], counts: vec![1, 9] };
        assert!(InstanceMask::of(&damaged, [2, 3]).is_err());
    }
}
