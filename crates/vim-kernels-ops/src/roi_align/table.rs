//! Where boxes read, worked out once on the host, so that all implementations agree on every
//! sample: the weights of a box's bins along both axes, and the boxes that reach each tile of
//! pixels.

use rayon::prelude::*;

use vim_kernels_core::KernelError;

use super::{OPERATION, Roi, RoiSampling};
use vim_kernels_core::check::{check_limit, check_size};

/// Pixels along a side of a tile: the backward pass looks through the boxes of a pixel's tile.
pub(crate) const TILE: usize = 8;
/// The most samples of a bin along an axis: far more than a box within an image has.
const MOST_SAMPLES: usize = 1 << 12;
/// Indices are stored as f32, which are exact up to here.
const MOST_NUMBERS: usize = 1 << 24;
/// Boxes that one thread at least works out.
const MIN_ROIS: usize = 32;
/// Numbers that describe a bin along an axis: its first pixel, the number of pixels, and where
/// their weights begin.
pub(crate) const OF_BIN: usize = 3;

/// Sizes, and where the parts of the table begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Of the features, `[B, H, W, C]`.
    pub(crate) features: [usize; 4],
    pub(crate) rois: usize,
    /// Bins along a side of a box.
    pub(crate) bins: usize,
    /// The image of each box.
    pub(crate) images_at: usize,
    pub(crate) weights_at: usize,
    /// For each tile, and behind the last, where its boxes begin among the members.
    pub(crate) starts_at: usize,
    pub(crate) members_at: usize,
    /// Tiles of an image: rows and columns.
    pub(crate) tiles: [usize; 2],
}

/// The numbers of a table, and how they lie.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) layout: Layout,
}

impl Table<'_> {
    /// The first pixel of bin `bin` of box `roi` along `axis` (0: rows), and the weights from it.
    pub(crate) fn bin(&self, roi: usize, axis: usize, bin: usize) -> (usize, &[f32]) {
        let at = ((2 * roi + axis) * self.layout.bins + bin) * OF_BIN;
        let [first, count, weights] = [0, 1, 2].map(|i| self.numbers[at + i] as usize);
        (first, &self.numbers[self.layout.weights_at + weights..][..count])
    }

    /// The image of box `roi`.
    pub(crate) fn image(&self, roi: usize) -> usize {
        self.numbers[self.layout.images_at + roi] as usize
    }

    /// The boxes that reach the tile with the pixel at `row` and `column` of an image, in order.
    pub(crate) fn members(
        &self,
        image: usize,
        [row, column]: [usize; 2],
    ) -> impl Iterator<Item = usize> {
        let Layout { tiles: [rows, columns], starts_at, members_at, .. } = self.layout;
        let tile = (image * rows + row / TILE) * columns + column / TILE;
        let [begin, end] = [0, 1].map(|next| self.numbers[starts_at + tile + next] as usize);
        self.numbers[members_at + begin..members_at + end].iter().map(|&roi| roi as usize)
    }
}

/// The pixels that a bin reads along an axis: the first, and the weights of those from there.
type AxisBin = (usize, Vec<f32>);

/// The bins of a box from `low` to `high` along an axis of `pixels`.
///
/// The samples of a bin have equal distances. Everything that decides which pixels are read is f32
/// in the order of torchvision's `roi_align`.
pub(crate) fn axis_bins(
    [low, high]: [f32; 2],
    scale: f32,
    (bins, RoiSampling { ratio, aligned }): (usize, RoiSampling),
    pixels: usize,
) -> Result<Vec<AxisBin>, KernelError> {
    let to_centre = if aligned { 0.5 } else { 0.0 };
    let (start, end) = (low * scale - to_centre, high * scale - to_centre);
    let least = if aligned { f32::NEG_INFINITY } else { 1.0 };
    let bin_size = (end - start).max(least) / bins as f32;
    let samples = if ratio > 0 { ratio } else { bin_size.ceil().max(0.0) as usize };
    check_size(OPERATION, "the samples of a bin", samples, MOST_SAMPLES)?;
    let last = pixels - 1;
    let bin = |bin: usize| {
        let mut shares: Vec<(usize, f64)> = Vec::new();
        for sample in 0..samples {
            let within = (sample as f32 + 0.5) * bin_size / samples as f32;
            let place = start + bin as f32 * bin_size + within;
            if place < -1.0 || place > pixels as f32 {
                continue;
            }
            let place = place.max(0.0);
            let lower = (place as usize).min(last);
            let share = if lower == last { 0.0 } else { f64::from(place - lower as f32) };
            shares.extend([(lower, 1.0 - share), ((lower + 1).min(last), share)]);
        }
        let Some(first) = shares.iter().map(|&(pixel, _)| pixel).min() else {
            return (0, Vec::new());
        };
        let end = shares.iter().map(|&(pixel, _)| pixel + 1).max().unwrap_or(first);
        let mut weights = vec![0.0; end - first];
        shares.into_iter().for_each(|(pixel, share)| weights[pixel - first] += share);
        (first, weights.into_iter().map(|sum| (sum / samples as f64) as f32).collect())
    };
    Ok((0..bins).map(bin).collect())
}

/// The table of `rois` on `features`, `[B, H, W, C]`.
pub(crate) fn table(
    features: [usize; 4],
    rois: &[Roi],
    scale: f32,
    (bins, sampling): (usize, RoiSampling),
) -> Result<(Vec<f32>, Layout), KernelError> {
    let [batch, height, width, _] = features;
    let tiles = [height.div_ceil(TILE), width.div_ceil(TILE)];
    let mut of_bins = Vec::with_capacity(rois.len() * 2 * bins * OF_BIN);
    let mut weights = Vec::new();
    let mut members = vec![Vec::new(); batch * tiles[0] * tiles[1]];
    let bins_of = |Roi { corners: [left, top, right, bottom], .. }: &Roi| {
        Ok([
            axis_bins([*top, *bottom], scale, (bins, sampling), height)?,
            axis_bins([*left, *right], scale, (bins, sampling), width)?,
        ])
    };
    let each = rois.par_iter().with_min_len(MIN_ROIS).map(bins_of);
    // All of them first, so that the error is the first box's.
    let found: Vec<Result<[Vec<AxisBin>; 2], KernelError>> = each.collect();
    let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (roi, (axes, Roi { image, .. })) in found.into_iter().zip(rois).enumerate() {
        let mut reach = [0..0, 0..0];
        for (found, reach) in axes.into_iter().zip(&mut reach) {
            let read = found.iter().filter(|(_, weights)| !weights.is_empty());
            let first = read.clone().map(|(first, _)| *first).min().unwrap_or(0);
            let end = read.map(|(first, weights)| first + weights.len()).max().unwrap_or(0);
            *reach = first / TILE..end.div_ceil(TILE);
            for (first, own) in found {
                of_bins.extend([first, own.len(), weights.len()].map(|n| n as f32));
                weights.extend(own);
            }
        }
        let [rows, columns] = reach;
        for row in rows {
            for column in columns.clone() {
                members[(image * tiles[0] + row) * tiles[1] + column].push(roi as f32);
            }
        }
    }
    let mut numbers = of_bins;
    let images_at = numbers.len();
    numbers.extend(rois.iter().map(|roi| roi.image as f32));
    let weights_at = numbers.len();
    let count: usize = members.iter().map(Vec::len).sum();
    for (what, len) in [("the weights of all boxes", weights.len()), ("boxes on tiles", count)] {
        check_limit(OPERATION, what, len, MOST_NUMBERS)?;
    }
    numbers.extend(weights);
    let starts_at = numbers.len();
    let mut start = 0;
    for tile in &members {
        numbers.push(start as f32);
        start += tile.len();
    }
    numbers.push(start as f32);
    let members_at = numbers.len();
    numbers.extend(members.into_iter().flatten());
    let rois = rois.len();
    let layout =
        Layout { features, rois, bins, images_at, weights_at, starts_at, members_at, tiles };
    Ok((numbers, layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive(edges: [f32; 2], bins: usize, pixels: usize) -> Result<Vec<AxisBin>, KernelError> {
        axis_bins(edges, 1.0, (bins, RoiSampling::default()), pixels)
    }

    // An axis of 10 pixels, a box of two bins of 2.5: three samples each.
    #[test]
    fn a_bin_is_the_mean_of_its_samples() {
        let bins = adaptive([1.5, 6.5], 2, 10).unwrap();
        let (first, weights) = &bins[0];
        let mut expected = [0.0_f64; 10];
        for place in [1.0 + 2.5 / 6.0, 1.0 + 2.5 / 2.0, 1.0 + 2.5 * 5.0 / 6.0] {
            let lower = f64::floor(place) as usize;
            expected[lower] += (1.0 - (place - lower as f64)) / 3.0;
            expected[lower + 1] += (place - lower as f64) / 3.0;
        }
        assert_eq!((*first, weights.len()), (1, 4));
        for (got, want) in weights.iter().zip(&expected[1..]) {
            assert!((f64::from(*got) - want).abs() < 1e-6);
        }
        assert_eq!(bins.len(), 2);
    }

    #[test]
    fn samples_outside_count_as_zero_and_an_empty_box_has_none() {
        let sum = |bins: &[AxisBin]| -> Vec<f32> {
            bins.iter().map(|(_, weights)| weights.iter().sum()).collect()
        };
        // From −4 to 4 in two bins of four samples: −3.5 … −0.5, of which one is read.
        assert_eq!(sum(&adaptive([-3.5, 4.5], 2, 9).unwrap()), [0.25, 1.0]);
        assert_eq!(sum(&adaptive([3.0, 3.0], 3, 9).unwrap()), [0.0; 3]);
        assert_eq!(sum(&adaptive([3.0, 1.0], 3, 9).unwrap()), [0.0; 3]);
        assert_eq!(sum(&adaptive([3.0, 3.001], 2, 1).unwrap()), [0.0; 2]);
        assert_eq!(sum(&adaptive([0.25, 0.251], 2, 1).unwrap()), [1.0; 2]);
        assert!(adaptive([0.0, 1e7], 7, 9).is_err());
    }

    // By hand: centres on edges move every place by half a pixel, and a box is a pixel at least.
    #[test]
    fn fixed_samples_and_unaligned_boxes() {
        let bins = |edges: [f32; 2], ratio, aligned| {
            axis_bins(edges, 1.0, (1, RoiSampling { ratio, aligned }), 9).unwrap().remove(0)
        };
        assert_eq!(bins([2.0, 4.0], 1, false), (3, vec![1.0, 0.0]));
        assert_eq!(bins([2.0, 4.0], 1, true), (2, vec![0.5, 0.5]));
        assert_eq!(bins([2.0, 4.0], 2, false), (2, vec![0.25, 0.5, 0.25]));
        // Two samples at 3.25 and 3.75, of a box without a size.
        assert_eq!(bins([3.0, 3.0], 2, false), (3, vec![0.5, 0.5]));
        // A fixed number of samples reads even what has no size.
        assert_eq!(bins([3.5, 3.5], 2, true), (3, vec![1.0, 0.0]));
        assert_eq!(bins([3.5, 3.5], 0, true), (0, vec![]));
        assert!(
            axis_bins([0.0, 1.0], 1.0, (1, RoiSampling { ratio: 5000, aligned: true }), 9).is_err()
        );
    }
}
