//! Applies a plan to an image and its label map.

use super::label_map::{IGNORED, LabelMap};
use super::recipe::{DensePlan, choose_corner, crop_region};
use super::resize::{bilinear, nearest};
use crate::pixels::{Pixels, Region};
use crate::transforms::{EraseBox, EraseFill, flip};

/// Makes the crop of `plan` from `image` and `map`, which are of one size.
///
/// An image that ends before the crop does is padded on the right and below: the labels by
/// [`IGNORED`], the pixels by 0 once they are normalised, which the boxes say that are returned.
///
/// # Shapes
/// `pixels` is `[size[0], size[1], 3]`, `labels` is `[size[0], size[1]]`.
///
/// # Panics
/// If the plan was drawn for another size of the source or the target.
pub fn apply_dense(
    plan: &DensePlan,
    cat_max_ratio: f64,
    (image, map): (&Pixels, &LabelMap),
    size: [usize; 2],
    pixels: &mut [u8],
    labels: &mut [u8],
) -> Vec<EraseBox> {
    let [height, width] = size;
    assert_eq!((pixels.len(), labels.len()), (3 * height * width, height * width));
    let chosen = choose_corner(map, plan.resized, &plan.corners, size, cat_max_ratio);
    let region = crop_region(plan.resized, plan.corners[chosen], size);
    let (rows, columns) = (region.height, region.width);
    let mut part = vec![0; 3 * rows * columns];
    bilinear(image, plan.resized, region, &mut part);
    let mut part_labels = nearest(&map.labels, map.size(), plan.resized, region);
    if plan.flip {
        flip(&mut part, [rows, columns]);
        part_labels.chunks_exact_mut(columns).for_each(<[u8]>::reverse);
    }
    if let Some(photometric) = &plan.photometric {
        photometric.apply(&mut part, columns);
    }
    frame_pixels(&part, [rows, columns], size, pixels);
    labels.fill(IGNORED);
    for (line, row) in part_labels.chunks_exact(columns).enumerate() {
        labels[line * width..][..columns].copy_from_slice(row);
    }
    padding([rows, columns], size)
}

/// Puts `part` of size `content` into the upper left corner of the black image `pixels` of `size`.
pub(crate) fn frame_pixels(part: &[u8], content: [usize; 2], size: [usize; 2], pixels: &mut [u8]) {
    pixels.fill(0);
    for (line, row) in part.chunks_exact(3 * content[1]).enumerate() {
        pixels[3 * line * size[1]..][..row.len()].copy_from_slice(row);
    }
}

/// The boxes of an image of `size` that are not of its content, the upper left part of `content`'s
/// size: black in bytes, 0 once normalised.
pub fn padding([rows, columns]: [usize; 2], [height, width]: [usize; 2]) -> Vec<EraseBox> {
    let right = Region { top: 0, left: columns, height: rows, width: width - columns };
    let below = Region { top: rows, left: 0, height: height - rows, width };
    let is_inside = |region: &Region| region.height > 0 && region.width > 0;
    let erase = |region| EraseBox { region, fill: EraseFill::Constant };
    [right, below].into_iter().filter(is_inside).map(erase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::recipe::DenseRecipe;
    use crate::transforms::recipe::SampleKey;

    fn key(index: u64) -> SampleKey {
        SampleKey { seed: 3, epoch: 1, index, repeat: 0, attempt: 0 }
    }

    /// Every pixel's colour tells its label, so that what is done to both can be compared.
    fn pair(size: [usize; 2]) -> (Pixels, LabelMap) {
        let [height, width] = size;
        let label = |at: usize| ((at / width / 7 + at % width / 5) % 3) as u8;
        let labels: Vec<u8> = (0..height * width).map(label).collect();
        let data = labels.iter().flat_map(|&label| [100 * label, 50, 10]).collect();
        (Pixels { height, width, data }, LabelMap { height, width, labels })
    }

    #[test]
    fn image_and_labels_are_cut_mirrored_and_padded_alike() {
        // No resizing, so that no colour is mixed.
        let recipe = DenseRecipe {
            scale: [40, 30],
            ratio: [1.0, 1.0],
            photometric: false,
            ..DenseRecipe::default()
        };
        let (image, map) = pair([30, 40]);
        for crop in [[16, 16], [30, 40], [36, 24], [24, 64]] {
            for index in 0..20 {
                let plan = recipe.draw(key(index), [30, 40], crop);
                let (mut pixels, mut labels) =
                    (vec![7; 3 * crop[0] * crop[1]], vec![7; crop[0] * crop[1]]);
                let boxes =
                    apply_dense(&plan, 0.75, (&image, &map), crop, &mut pixels, &mut labels);
                let padded: usize =
                    boxes.iter().map(|one| one.region.height * one.region.width).sum();
                assert_eq!(padded, crop[0] * crop[1] - crop[0].min(30) * crop[1].min(40));
                assert_eq!(labels.iter().filter(|&&label| label == IGNORED).count(), padded);
                for (pixel, &label) in pixels.chunks_exact(3).zip(&labels) {
                    let want = if label == IGNORED { [0; 3] } else { [100 * label, 50, 10] };
                    assert_eq!(pixel, want);
                }
            }
        }
    }

    #[test]
    fn a_crop_of_one_class_is_drawn_again() {
        let mut map = LabelMap { height: 8, width: 8, labels: vec![1; 64] };
        map.labels[63] = 2;
        map.labels[62] = 2;
        map.labels[55] = IGNORED;
        let corners = [[0, 0], [0, 6], [6, 6], [0, 1]];
        // The third shows two classes, two thirds of it the one.
        let choose = |most| choose_corner(&map, [8, 8], &corners, [2, 2], most);
        assert_eq!([choose(0.75), choose(0.6), choose(1.0)], [2, 3, 0]);
    }

    #[test]
    fn draws_are_of_the_key_and_inside_the_image() {
        let recipe = DenseRecipe::default();
        let of = |index| recipe.draw(key(index), [480, 640], [512, 512]);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let plans: Vec<DensePlan> = (0..400).map(of).collect();
        let shorter: Vec<usize> = plans.iter().map(|plan| plan.resized[0]).collect();
        assert!(shorter.iter().all(|side| (256..1024).contains(side)));
        assert!(shorter.iter().any(|&side| side < 270) && shorter.iter().any(|&side| side > 1000));
        let flipped = plans.iter().filter(|plan| plan.flip).count();
        assert!(flipped.abs_diff(200) < 60, "{flipped}");
        for plan in &plans {
            assert_eq!(plan.corners.len(), 11);
            for corner in &plan.corners {
                for axis in [0, 1] {
                    assert!(corner[axis] <= plan.resized[axis].saturating_sub(512));
                }
            }
        }
    }
}
