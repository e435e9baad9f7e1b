//! Applies a plan to an image and its objects.

use super::clip::LEAST;
use super::object::{Object, Targets};
use super::recipe::ObjectPlan;
use crate::dense::{crop_region, frame_pixels, padding};
use crate::pixels::Pixels;
use crate::transforms::resize::Resizer;
use crate::transforms::{EraseBox, flip};

/// Where the pixels of an image go. All are `[height, width]`, or row and column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placing {
    pub(super) source: [usize; 2],
    pub(super) flip: bool,
    pub(super) resized: [usize; 2],
    pub(super) corner: [usize; 2],
    /// What the crop shows of the image.
    pub(super) content: [usize; 2],
    /// What the model sees.
    pub(super) frame: [usize; 2],
}

impl Placing {
    pub(super) fn new(plan: &ObjectPlan, source: [usize; 2], frame: [usize; 2]) -> Self {
        let ObjectPlan { flip, resized, corner } = *plan;
        let region = crop_region(resized, corner, frame);
        Self { source, flip, resized, corner, content: [region.height, region.width], frame }
    }

    /// Where the point at `[x, y]` goes.
    pub(super) fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let [height, width] = self.source.map(|side| side as f64);
        let x = if self.flip { width - x } else { x };
        let along = |at: f64, axis: usize, side: f64| {
            at * (self.resized[axis] as f64 / side) - self.corner[axis] as f64
        };
        [along(x, 1, width), along(y, 0, height)]
    }

    /// Where the box `[x, y, width, height]` goes, as `[x0, y0, x1, y1]` and as far as the crop
    /// shows it; `None` if that is nothing.
    fn shown(&self, [x, y, width, height]: [f64; 4]) -> Option<[f32; 4]> {
        let ([ax, ay], [bx, by]) = (self.point([x, y]), self.point([x + width, y + height]));
        let [rows, columns] = self.content.map(|side| side as f64);
        let [left, right] = [ax.min(bx), ax.max(bx)].map(|x| x.clamp(0.0, columns));
        let [top, below] = [ay.min(by), ay.max(by)].map(|y| y.clamp(0.0, rows));
        let is_there = right - left > LEAST && below - top > LEAST;
        is_there.then(|| [left, top, right, below].map(|at| at as f32))
    }
}

/// Where `plan` puts the box `[x0, y0, x1, y1]` of an image of `source`'s size, `[height, width]`:
/// as it is, beyond the crop if it was.
pub fn place_box(plan: &ObjectPlan, source: [usize; 2], corners: [f64; 4]) -> [f64; 4] {
    let placing = Placing::new(plan, source, plan.resized);
    let [x0, y0, x1, y1] = corners;
    let ([ax, ay], [bx, by]) = (placing.point([x0, y0]), placing.point([x1, y1]));
    [ax.min(bx), ay.min(by), ax.max(bx), ay.max(by)]
}

/// Makes the crop of `plan` from `image` and carries its objects along: crowds are left out, and so
/// is what the crop does not show. Boxes are around what is left of the masks; of objects without
/// masks they are what is left of the boxes.
///
/// The image is in the upper left corner; what is beyond its content is 0 once it is normalised,
/// which the boxes say that are returned.
///
/// # Shapes
/// `pixels` is `[size[0], size[1], 3]`.
///
/// # Panics
/// If the plan was drawn for another size of the source or the target.
pub fn apply_objects(
    plan: &ObjectPlan,
    resizer: &mut Resizer,
    image: &mut Pixels,
    objects: &[Object],
    size: [usize; 2],
    pixels: &mut [u8],
) -> (Vec<EraseBox>, Targets) {
    let source = [image.height, image.width];
    let placing = Placing::new(plan, source, size);
    let region = crop_region(plan.resized, plan.corner, size);
    let mut part = vec![0; 3 * region.height * region.width];
    // Mirrored first: the filter rounds a mirrored image otherwise.
    if plan.flip {
        flip(&mut image.data, source);
    }
    resizer.resize_window(image, image.region(), plan.resized, region, &mut part);
    if plan.flip {
        flip(&mut image.data, source);
    }
    frame_pixels(&part, placing.content, size, pixels);
    let mut targets = Targets { size: placing.content, ..Targets::default() };
    for object in objects.iter().filter(|object| !object.crowd) {
        let placed = match &object.mask {
            Some(mask) => mask.placed(&placing).map(|(mask, around)| (Some(mask), around)),
            None => placing.shown(object.bbox).map(|around| (None, around)),
        };
        if let Some((mask, around)) = placed {
            targets.boxes.push(around);
            targets.classes.push(object.class);
            targets.masks.extend(mask);
        }
    }
    (padding(placing.content, size), targets)
}
