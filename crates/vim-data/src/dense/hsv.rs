//! Hue, saturation and value as OpenCV has them in 8 bits: hue 0..180, the others 0..=255.
//!
//! # Source
//! OpenCV 4.10, `modules/imgproc/src/color_hsv.simd.hpp`: `RGB2HSV_b` and `HSV2RGB_b`.

use std::sync::LazyLock;

/// Values of hue: steps of two degrees.
pub(super) const HUES: i32 = 180;
/// Bits behind the point of the divisions' table.
const SHIFT: u32 = 12;

/// 255/i and 180/(6i) in fixed point; 0 for i = 0.
static RECIPROCALS: LazyLock<([i32; 256], [i32; 256])> = LazyLock::new(|| {
    let table = |over: f64| {
        let reciprocal = |i: usize| (over / i as f64).round_ties_even() as i32;
        std::array::from_fn(|i| if i == 0 { 0 } else { reciprocal(i) })
    };
    (table(f64::from(255 << SHIFT)), table(f64::from(HUES << SHIFT) / 6.0))
});

/// A pixel's hue, saturation and value.
pub fn rgb_to_hsv([red, green, blue]: [u8; 3]) -> [u8; 3] {
    let (of_saturation, of_hue) = &*RECIPROCALS;
    let (largest, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let range = i32::from(largest - least);
    let [r, g, b] = [red, green, blue].map(i32::from);
    let rounded = |fixed: i32| (fixed + (1 << (SHIFT - 1))) >> SHIFT;
    let saturation = rounded(range * of_saturation[usize::from(largest)]);
    // In sixths of the circle, times the range.
    let sector = if largest == red {
        g - b
    } else if largest == green {
        b - r + 2 * range
    } else {
        r - g + 4 * range
    };
    let hue = rounded(sector * of_hue[range as usize]);
    let hue = if hue < 0 { hue + HUES } else { hue };
    [hue as u8, saturation as u8, largest]
}

/// Pixels that OpenCV converts at a time, with AVX2.
const LANES: usize = 32;

/// Turns the pixels of a row from hue, saturation and value into red, green and blue.
///
/// As far as a row has whole vectors OpenCV cuts the results off, and rounds those of the rest.
pub fn hsv_row_to_rgb(row: &mut [[u8; 3]]) {
    let (vectors, rest) = row.split_at_mut(row.len() / LANES * LANES);
    vectors.iter_mut().for_each(|pixel| *pixel = rgb_shares(*pixel).map(|x| x as u8));
    rest.iter_mut().for_each(|pixel| {
        *pixel = rgb_shares(*pixel).map(|x| x.round_ties_even() as u8);
    });
}

/// Red, green and blue, 0 to 255 with their fractions.
fn rgb_shares([hue, saturation, value]: [u8; 3]) -> [f32; 3] {
    let (s, v) = (f32::from(saturation) * (1.0 / 255.0), f32::from(value) * (1.0 / 255.0));
    let hue = f32::from(hue) * (6.0 / HUES as f32);
    let sector = hue.trunc();
    let h = hue - sector;
    // Rounded once, as by the fused instruction of OpenCV's build: the f64 product is exact.
    let less = |share: f32| (1.0 - f64::from(s) * f64::from(share)) as f32;
    let (low, falling, rising) = (v * (1.0 - s), v * less(h), v * less(1.0 - h));
    // A hue of 180 and more, which no conversion makes, starts the circle again.
    let rgb = match sector as u32 % 6 {
        0 => [v, rising, low],
        1 => [falling, v, low],
        2 => [low, v, rising],
        3 => [low, falling, v],
        4 => [rising, low, v],
        _ => [v, low, falling],
    };
    rgb.map(|share| share * 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pure_colours_are_thirds_of_the_circle() {
        for (rgb, hsv) in [
            ([255, 0, 0], [0, 255, 255]),
            ([255, 255, 0], [30, 255, 255]),
            ([0, 255, 0], [60, 255, 255]),
            ([0, 0, 255], [120, 255, 255]),
            ([255, 0, 255], [150, 255, 255]),
            ([77, 77, 77], [0, 0, 77]),
            ([0, 0, 0], [0, 0, 0]),
        ] {
            assert_eq!(rgb_to_hsv(rgb), hsv, "{rgb:?}");
            let mut row = [hsv];
            hsv_row_to_rgb(&mut row);
            assert_eq!(row, [rgb], "{hsv:?}");
        }
    }

    /// Eight bits of each lose a little: a hue step is two degrees.
    #[test]
    fn there_and_back_is_close() {
        for code in (0..1 << 24).step_by(4099) {
            let rgb = [code >> 16, code >> 8, code].map(|x: u32| x as u8);
            let mut row = [rgb_to_hsv(rgb)];
            hsv_row_to_rgb(&mut row);
            let off = rgb.iter().zip(row[0]).map(|(&a, b)| a.abs_diff(b)).max().unwrap();
            assert!(off <= 6, "{rgb:?} {row:?}");
        }
    }

    /// The largest of three channels of this colour is 190.95.
    #[test]
    fn whole_vectors_are_cut_off_and_the_rest_is_rounded() {
        let mut row = [[81, 211, 254]; LANES + 1];
        hsv_row_to_rgb(&mut row);
        let sorted = |mut pixel: [u8; 3]| {
            pixel.sort_unstable();
            pixel
        };
        assert_eq!(sorted(row[LANES - 1]), [43, 190, 254]);
        assert_eq!(sorted(row[LANES]), [44, 191, 254]);
    }
}
