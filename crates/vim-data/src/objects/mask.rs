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
        if let Segmentation::Polygon(polygons) = segmentation {
            return Some(Self::Polygons(polygons));
        }
        segmentation.to_rle(height, width).ok().map(Self::Runs)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::recipe::ObjectPlan;
    use crate::rng::{keyed, uniform};

    /// Whether a point is inside a polygon, by the parity of the sides to its right.
    fn is_inside(polygon: &[f64], [x, y]: [f64; 2]) -> bool {
        let corners = polygon.as_chunks::<2>().0;
        let sides = (0..corners.len()).map(|at| (corners[at], corners[(at + 1) % corners.len()]));
        let crosses = |&(a, b): &([f64; 2], [f64; 2])| {
            (a[1] > y) != (b[1] > y) && x < a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
        };
        sides.filter(crosses).count() % 2 == 1
    }

    /// A star with 12 corners around the middle of 40 by 30 pixels, which reaches beyond them.
    fn star(number: u64) -> Vec<f64> {
        let mut rng = keyed("a test's stars", &[number]);
        let corner = |at: usize| {
            let angle = at as f64 / 12.0 * std::f64::consts::TAU;
            let radius = f64::from(uniform(&mut rng, 2.0, 36.0));
            [20.0 + radius * libm::cos(angle), 15.0 + radius * libm::sin(angle)]
        };
        (0..12).flat_map(corner).collect()
    }

    // The raster may differ from the exact polygon along its outline, and nowhere else.
    #[test]
    fn a_cut_polygon_covers_what_the_whole_one_does_inside() {
        let plan = ObjectPlan { flip: false, resized: [30, 40], corner: [0, 0] };
        let placing = Placing::new(&plan, [30, 40], [30, 40]);
        for number in 0..200 {
            let whole = star(number);
            let mask = Mask::Polygons(vec![whole.clone()]);
            let (cut, around) = mask.placed(&placing).expect("the middle is in the star");
            let pixels = cut.pixels([30, 40]);
            for (y, x) in (0..30).flat_map(|y| (0..40).map(move |x| (y, x))) {
                let near = (-2..=2).flat_map(|dy| (-2..=2).map(move |dx| (dy, dx)));
                let mut near = near.map(|(dy, dx)| {
                    let at = [f64::from(x) + 0.5, f64::from(y) + 0.5];
                    is_inside(&whole, [at[0] + 0.5 * f64::from(dx), at[1] + 0.5 * f64::from(dy)])
                });
                let first = near.next();
                if near.all(|inside| Some(inside) == first) {
                    let ours = pixels[(y * 40 + x) as usize] == 1;
                    assert_eq!(Some(ours), first, "star {number} at {x}, {y}");
                }
            }
            let [x0, y0, x1, y1] = around;
            assert!(x0 >= 0.0 && y0 >= 0.0 && x1 <= 40.0 && y1 <= 30.0);
            let covered = (0..1200).filter(|&at| pixels[at] == 1);
            for at in covered {
                let (x, y) = ((at % 40) as f32, (at / 40) as f32);
                assert!(x > x0 - 1.0 && x < x1 && y > y0 - 1.0 && y < y1, "star {number}");
            }
        }
    }
}
