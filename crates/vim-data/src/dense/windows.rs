//! Where windows slide over an image that is larger than the model's.

use crate::pixels::Region;

/// The windows of `crop` pixels over an image of `size`, every `stride` pixels, row by row; the
/// last ones end at the border. All are `[height, width]`.
///
/// Where the image is smaller than a window, so is that side of the windows.
///
/// # Panics
/// If the stride is 0.
///
/// # Source
/// mmsegmentation 0.29.1, `EncoderDecoder.slide_inference`.
pub fn windows(size: [usize; 2], crop: [usize; 2], stride: [usize; 2]) -> Vec<Region> {
    let along = |axis: usize| {
        let (side, crop, stride) = (size[axis], crop[axis], stride[axis]);
        let count = side.saturating_sub(crop).div_ceil(stride) + 1;
        (0..count).map(move |number| {
            let end = (number * stride + crop).min(side);
            (end.saturating_sub(crop), crop.min(side))
        })
    };
    let rows = along(0);
    rows.flat_map(|(top, height)| {
        along(1).map(move |(left, width)| Region { top, left, height, width })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(side: usize, crop: usize, stride: usize) -> Vec<usize> {
        let found = windows([crop, side], [crop, crop], [stride, stride]);
        found.into_iter().map(|region| region.left).collect()
    }

    #[test]
    fn the_last_window_ends_at_the_border() {
        assert_eq!(starts(512, 512, 341), [0]);
        assert_eq!(starts(513, 512, 341), [0, 1]);
        assert_eq!(starts(683, 512, 341), [0, 171]);
        assert_eq!(starts(853, 512, 341), [0, 341]);
        assert_eq!(starts(854, 512, 341), [0, 341, 342]);
        assert_eq!(starts(2048, 512, 341), [0, 341, 682, 1023, 1364, 1536]);
    }

    #[test]
    fn a_small_image_has_one_small_window() {
        let all = windows([300, 700], [512, 512], [341, 341]);
        let sizes: Vec<_> =
            all.iter().map(|one| (one.top, one.left, one.height, one.width)).collect();
        assert_eq!(sizes, [(0, 0, 300, 512), (0, 188, 300, 512)]);
    }

    #[test]
    fn every_pixel_is_seen() {
        for (size, crop, stride) in [([37, 50], [16, 16], [11, 11]), ([20, 9], [8, 12], [8, 5])] {
            let mut seen = vec![0; size[0] * size[1]];
            for one in windows(size, crop, stride) {
                assert!(one.is_inside(size));
                for y in one.top..one.top + one.height {
                    seen[y * size[1] + one.left..][..one.width].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(seen.iter().all(|&n| n > 0));
        }
    }
}
