//! The mask of an object, and what moving an image does to it.

use hotcoco::mask::{decode, encode, fr_polys, to_bbox};
use hotcoco::{Rle, Segmentation};

use super::clip::{bounds, clip};
use super::transform::Placing;

/// Which pixels an object covers.
#[derive(Clone, Debug, PartialEq)]
pub enum Mask {
    /// All that one of the polygons surrounds, each x and y of its corners in turn, in pixels.
    Polygons(Vec<Vec<f64>>),
    /// Lengths of runs of pixels off and on, column by column.
    Runs(Rle),
}

impl Mask {
    /// COCO's mask of an image of `size`, `[height, width]`; `None` if it cannot be decoded.
    pub(crate) fn of(segmentation: Segmentation, [height, width]: [u32; 2]) -> Option<Self> {
        match segmentation {
            Segmentation::Polygon(polygons) => Some(Self::Polygons(polygons)),
            other => other.to_rle(height, width).ok().map(Self::Runs),
        }
    }

    /// As COCO's files have it.
    pub(crate) fn segmentation(&self) -> Segmentation {
        match self {
            Self::Polygons(polygons) => Segmentation::Polygon(polygons.clone()),
            Self::Runs(Rle { h, w, counts }) => {
                Segmentation::UncompressedRle { size: [*h, *w], counts: counts.clone() }
            }
        }
    }

    /// The pixels of an image of `size`, `[height, width]`, row by row: 1 where the object is.
    ///
    /// # Panics
    /// If the mask is of an image of another size, or of more than 2³² pixels.
    pub fn pixels(&self, [height, width]: [usize; 2]) -> Vec<u8> {
        let drawn;
        let rle = match self {
            Self::Runs(rle) => rle,
            Self::Polygons(polygons) => {
                let rle = fr_polys(polygons, height as u32, width as u32);
                drawn = rle.expect("invariant: an image has fewer than 2³² pixels");
                &drawn
            }
        };
        assert_eq!([rle.h as usize, rle.w as usize], [height, width], "the mask's image");
        let columns = decode(rle);
        (0..height * width).map(|at| columns[at % width * height + at / width]).collect()
    }

    /// The mask where `placing` puts it, and the box `[x0, y0, x1, y1]` around what is left of it;
    /// `None` if that is nothing.
    pub(super) fn placed(&self, placing: &Placing) -> Option<(Self, [f32; 4])> {
        let [rows, columns] = placing.content;
        match self {
            Self::Polygons(polygons) => {
                let limits = [rows as f64, columns as f64];
                let moved = |polygon: &Vec<f64>| -> Vec<f64> {
                    polygon.as_chunks::<2>().0.iter().flat_map(|at| placing.point(*at)).collect()
                };
                let moved: Vec<Vec<f64>> = polygons.iter().map(moved).collect();
                let around = bounds(&moved, limits)?;
                let cut = moved.iter().map(|polygon| clip(polygon, limits));
                let cut = cut.filter(|polygon| polygon.len() >= 6).collect();
                Some((Self::Polygons(cut), around.map(|x| x as f32)))
            }
            Self::Runs(rle) => {
                let placed = Self::placed_runs(rle, placing);
                let [x, y, width, height] = to_bbox(&placed);
                let around = [x, y, x + width, y + height].map(|x| x as f32);
                (width > 0.0 && height > 0.0).then_some((Self::Runs(placed), around))
            }
        }
    }

    /// Each pixel is that of the nearest one before.
    ///
    /// # Source
    /// detectron2's `ResizeTransform.apply_segmentation`: Pillow's nearest neighbour.
    fn placed_runs(rle: &Rle, placing: &Placing) -> Rle {
        let Placing { source, flip, resized, corner, content, frame } = *placing;
        let pixels = decode(rle);
        let nearest = |axis: usize| {
            let (from, to) = (source[axis], resized[axis]);
            let place = move |at: usize| (2 * (at + corner[axis]) + 1) * from / (2 * to);
            (0..content[axis]).map(place).collect::<Vec<_>>()
        };
        let (rows, columns) = (nearest(0), nearest(1));
        let mut placed = vec![0; frame[0] * frame[1]];
        for (into, &column) in placed.chunks_exact_mut(frame[0]).zip(&columns) {
            let column = if flip { source[1] - 1 - column } else { column };
            let from = &pixels[column * source[0]..][..source[0]];
            into.iter_mut().zip(&rows).for_each(|(into, &row)| *into = from[row]);
        }
        encode(&placed, frame[0] as u32, frame[1] as u32)
            .expect("invariant: a frame has fewer than 2³² pixels")
    }
}
