//! Where an axis of an interpolated image reads: in integers, so that all implementations agree on
//! every pixel.
//!
//! Pixel centres are at half numbers (`align_corners = false`): pixel `at` of `to` has its centre
//! at `(at + ½)·from/to − ½` of `from` pixels, and before the first one's there is only the first.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cubecl::prelude::*;

/// The longest side that [`resize`](crate::resize()) and [`resize_nll`](crate::resize_nll()) take:
/// positions on it fit 32 bits.
pub const LONGEST_SIDE: usize = 1 << 15;

/// Pixel `at` of `to` in units of `1/(2·to)` of a pixel of `from`.
#[cfg_attr(any(feature = "cuda", feature = "wgpu"), cube)]
pub(crate) fn position(at: u32, from: u32, to: u32) -> u32 {
    let mut position = (2 * at + 1) * from;
    if position > to {
        position -= to;
    } else {
        position = 0u32;
    }
    position
}

/// The lower of the two pixels of `from` between which pixel `at` of `to` lies, and the share of
/// the upper one. After the last pixel there is none: both are the last.
#[cfg_attr(any(feature = "cuda", feature = "wgpu"), cube)]
pub(crate) fn lower_and_share(at: u32, from: u32, to: u32) -> (u32, f32) {
    let position = position(at, from, to);
    let lower = position / (2 * to);
    let share = (position - lower * (2 * to)) as f32 * (1.0f32 / (2 * to) as f32);
    (lower, share)
}

/// The first pixel of `to` that reads pixel `at` of `from`.
#[cfg_attr(any(feature = "cuda", feature = "wgpu"), cube)]
pub(crate) fn first_reader(at: u32, from: u32, to: u32) -> u32 {
    let mut first = at;
    if at > 0 {
        first = ((2 * at - 1) * to).div_ceil(from) / 2;
    }
    first
}

/// The pixel after the last one of `to` that reads pixel `at` of `from`.
#[cfg_attr(any(feature = "cuda", feature = "wgpu"), cube)]
pub(crate) fn end_of_readers(at: u32, from: u32, to: u32) -> u32 {
    let mut end = to;
    if at + 1 < from {
        end = ((2 * at + 3) * to).div_ceil(from) / 2;
    }
    end
}

/// The share of pixel `at` of `from` in one of its readers, whose lower pixel and upper share are
/// those of [`lower_and_share`].
#[cfg_attr(any(feature = "cuda", feature = "wgpu"), cube)]
pub(crate) fn share_in(at: u32, from: u32, lower: u32, upper_share: f32) -> f32 {
    let mut share = upper_share;
    if lower == at {
        share = 1.0f32 - upper_share;
        if at + 1 == from {
            share = 1.0f32;
        }
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [(u32, u32); 9] =
        [(1, 1), (1, 7), (7, 1), (2, 8), (5, 20), (20, 5), (7, 16), (16, 7), (3, 33)];

    #[test]
    fn positions_are_those_of_pixel_centres() {
        for (from, to) in SIZES {
            for at in 0..to {
                let place = (f64::from(at) + 0.5) * f64::from(from) / f64::from(to) - 0.5;
                let (lower, share) = lower_and_share(at, from, to);
                let got = f64::from(lower) + f64::from(share);
                assert!((got - place.max(0.0)).abs() < 1e-6, "{at}: {from} to {to}");
                assert!(lower < from && (0.0..1.0).contains(&share), "{at}: {from} to {to}");
            }
        }
    }

    // A pixel is read by those between its first and its last reader and by no other, and every
    // reader's shares sum to 1.
    #[test]
    fn readers_are_all_that_read() {
        for (from, to) in SIZES {
            let mut sums = vec![0.0; to as usize];
            for at in 0..from {
                let readers = first_reader(at, from, to)..end_of_readers(at, from, to);
                assert!(readers.end <= to);
                for reader in 0..to {
                    let (lower, share) = lower_and_share(reader, from, to);
                    let upper = (lower + 1).min(from - 1);
                    let reads = lower == at || (upper == at && share > 0.0);
                    assert!(
                        !reads || readers.contains(&reader),
                        "{reader} of {at}: {from} to {to}"
                    );
                    if readers.contains(&reader) {
                        assert!(
                            [lower, lower + 1].contains(&at),
                            "{reader} of {at}: {from} to {to}"
                        );
                        sums[reader as usize] += share_in(at, from, lower, share);
                    }
                }
            }
            assert!(sums.into_iter().all(|sum: f32| (sum - 1.0).abs() < 1e-6), "{from} to {to}");
        }
    }
}
