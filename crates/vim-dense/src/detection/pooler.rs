//! Features of boxes from the levels of a pyramid.

use burn::tensor::{Int, Tensor, TensorData};
use vim_kernels::{KernelChoice, KernelError, Roi, RoiSampling, roi_align};

use super::boxes::{Edges, area};

/// The side of a box that is read from the level of the backbone's patches, in pixels: that of an
/// image of ImageNet.
pub const WHOLE: f32 = 224.0;
/// Its level: that of the backbone's patches.
const WHOLE_LEVEL: f32 = 4.0;
/// The level of the finest map, four to a side of a patch.
const FINEST: f32 = 2.0;
/// Keeps the logarithm of an empty box finite.
const LEAST: f32 = 1e-8;

/// The level of `levels` from which a box is read, 0 for the finest: the larger the coarser. One of
/// a side of `whole` pixels is read from the third, which the backbone's patches have.
///
/// # Source
///
/// Lin et al. 2017, eq. 1; `assign_boxes_to_levels` of detectron2.
#[must_use]
pub fn level_of(edges: Edges, levels: usize, whole: f32) -> usize {
    let side = area(edges).max(0.0).sqrt();
    let level = (WHOLE_LEVEL + (side / whole + LEAST).log2()).floor() - FINEST;
    (level.max(0.0) as usize).min(levels.saturating_sub(1))
}

/// The features of boxes, each from its level, in the order of the boxes.
///
/// # Shapes
///
/// - `maps`: `[B, h, w, C]`, from the finest to the coarsest
/// - `strides`: pixels of the image to one of each map
/// - `whole`: as in [`level_of`]
/// - `rois`: `R` boxes, at least one
/// - result: `[R, bins, bins, C]`
///
/// # Errors
///
/// As [`roi_align`]; [`KernelError::Shape`] if there are no maps, or other strides than maps.
pub fn pooled(
    maps: &[Tensor<4>],
    strides: &[usize],
    whole: f32,
    rois: &[Roi],
    bins: usize,
    sampling: RoiSampling,
) -> Result<Tensor<4>, KernelError> {
    let wrong = |tensor, got, expected: &str| KernelError::Shape {
        operation: "roi_pooler",
        tensor,
        got,
        expected: expected.to_owned(),
    };
    if maps.is_empty() || maps.len() != strides.len() {
        return Err(wrong("strides", vec![strides.len()], "one for each map"));
    }
    if rois.is_empty() {
        return Err(wrong("rois", vec![0, 4], "one box at least"));
    }
    let level = |roi: &Roi| level_of(roi.corners, maps.len(), whole);
    let levels: Vec<usize> = rois.iter().map(level).collect();
    let mut places = vec![0_i32; rois.len()];
    let mut parts = Vec::new();
    let mut before = 0;
    for (level, (map, &stride)) in maps.iter().zip(strides).enumerate() {
        let mut own = Vec::new();
        for (at, _) in levels.iter().enumerate().filter(|(_, of)| **of == level) {
            places[at] = before + own.len() as i32;
            own.push(rois[at]);
        }
        if own.is_empty() {
            continue;
        }
        before += own.len() as i32;
        let scale = 1.0 / stride as f32;
        parts.push(roi_align(map.clone(), &own, scale, bins, sampling, KernelChoice::Auto)?);
    }
    let all = Tensor::cat(parts, 0);
    if places.iter().enumerate().all(|(at, &place)| at as i32 == place) {
        return Ok(all);
    }
    let places = TensorData::new(places, [rois.len()]);
    let places = Tensor::<1, Int>::from_data(places, &all.device());
    Ok(all.select(0, places))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn a_box_has_the_level_of_its_size() {
        let level = |side: f32| level_of([1.0, 1.0, 1.0 + side, 1.0 + side], 4, WHOLE);
        let expected = [(0.0, 0), (1.0, 0), (111.0, 0), (112.0, 1), (223.0, 1), (224.0, 2)];
        for (side, expected) in expected.into_iter().chain([(447.0, 2), (448.0, 3), (1e6, 3)]) {
            assert_eq!(level(side), expected, "{side}");
        }
        assert_eq!(level_of([0.0, 0.0, 20.0, 20.0], 4, 40.0), 1);
        assert_eq!(level_of([3.0, 3.0, 1.0, 4.0], 4, WHOLE), 0);
    }

    #[test]
    fn every_box_is_read_from_its_map_and_comes_in_its_place() {
        let device = Device::flex();
        let maps: Vec<Tensor<4>> = [(64, 1.0), (32, 2.0), (16, 3.0), (8, 4.0)]
            .into_iter()
            .map(|(side, value)| Tensor::full([2, side, side, 3], value, &device))
            .collect();
        let roi = |image, side: f32| Roi { image, corners: [0.0, 0.0, side, side] };
        let rois = [roi(0, 230.0), roi(1, 20.0), roi(0, 115.0), roi(1, 251.0), roi(0, 4.0)];
        let read = |strides: &[usize], rois: &[Roi]| {
            pooled(&maps, strides, WHOLE, rois, 2, RoiSampling::default())
        };
        let found = read(&[4, 8, 16, 32], &rois).unwrap();
        let found: Vec<f32> = found.into_data().iter().collect();
        // Sums of weights are rounded.
        let first: Vec<f32> = found.chunks(12).map(|of| of[0].round()).collect();
        assert_eq!(first, [3.0, 1.0, 2.0, 3.0, 1.0]);
        assert!(read(&[4, 8, 16, 32], &[]).is_err());
        assert!(read(&[4, 8], &rois).is_err());
    }
}
