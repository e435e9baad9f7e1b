//! Photometric distortion of training images: brightness, contrast, saturation, hue.
//!
//! # Source
//! mmsegmentation 0.29.1, `PhotoMetricDistortion`, which follows Liu et al. 2016, "SSD". Each step
//! is on bytes and ends in bytes: clipped and cut off, not rounded.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::hsv::{HUES, hsv_row_to_rgb, rgb_to_hsv};
use crate::rng::{below, between};

/// Brightness is changed by at most this, in grey levels.
const BRIGHTNESS: f64 = 32.0;
/// Contrast and saturation are multiplied by a factor from this range.
const FACTOR: [f64; 2] = [0.5, 1.5];
/// Hue is turned by −18 to 17 steps of two degrees.
const HUE: u32 = 18;

/// What is done to the colours of an image, in this order but for the contrast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Photometric {
    /// Grey levels added.
    pub brightness: Option<f64>,
    /// Factor of all values.
    pub contrast: Option<f64>,
    /// Whether the contrast is changed after the brightness; else at the end.
    pub contrast_first: bool,
    /// Factor of the saturation.
    pub saturation: Option<f64>,
    /// Turn of the hue, in steps of two degrees.
    pub hue: Option<i32>,
}

impl Photometric {
    /// Each change with probability ½, from its range.
    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Self {
        // A value is drawn whether or not it is used, so that no draw depends on another.
        let mut half = |range| {
            let value = between(rng, range);
            (below(rng, 2) == 1).then_some(value)
        };
        let brightness = half([-BRIGHTNESS, BRIGHTNESS]);
        let [contrast, saturation] = [half(FACTOR), half(FACTOR)];
        let steps = below(rng, 2 * HUE) as i32 - HUE as i32;
        let hue = (below(rng, 2) == 1).then_some(steps);
        Self { brightness, contrast, contrast_first: below(rng, 2) == 1, saturation, hue }
    }

    /// Changes pixels, `[H, width, 3]` of red, green and blue.
    ///
    /// # Panics
    /// If the width is 0.
    pub fn apply(&self, pixels: &mut [u8], width: usize) {
        let (pixels, _) = pixels.as_chunks_mut::<3>();
        let contrast = |pixels: &mut [[u8; 3]]| {
            if let Some(factor) = self.contrast {
                pixels.as_flattened_mut().iter_mut().for_each(|x| *x = scaled(*x, factor, 0.0));
            }
        };
        if let Some(levels) = self.brightness {
            pixels.as_flattened_mut().iter_mut().for_each(|x| *x = scaled(*x, 1.0, levels));
        }
        if self.contrast_first {
            contrast(pixels);
        }
        if let Some(factor) = self.saturation {
            in_hsv(pixels, width, |[hue, saturation, value]| {
                [hue, scaled(saturation, factor, 0.0), value]
            });
        }
        if let Some(steps) = self.hue {
            in_hsv(pixels, width, |[hue, saturation, value]| {
                [(i32::from(hue) + steps).rem_euclid(HUES) as u8, saturation, value]
            });
        }
        if !self.contrast_first {
            contrast(pixels);
        }
    }
}

/// Changes hue, saturation and value of each pixel, a row after the other.
fn in_hsv(pixels: &mut [[u8; 3]], width: usize, change: impl Fn([u8; 3]) -> [u8; 3]) {
    for row in pixels.chunks_exact_mut(width) {
        row.iter_mut().for_each(|pixel| *pixel = change(rgb_to_hsv(*pixel)));
        hsv_row_to_rgb(row);
    }
}

/// `value · factor + added` in f32, clipped to a byte and cut off.
fn scaled(value: u8, factor: f64, added: f64) -> u8 {
    (f32::from(value) * factor as f32 + added as f32).clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::keyed;

    #[test]
    fn nothing_drawn_changes_nothing() {
        let mut pixels = [3, 200, 90, 0, 255, 17];
        Photometric::default().apply(&mut pixels, 1);
        assert_eq!(pixels, [3, 200, 90, 0, 255, 17]);
    }

    #[test]
    fn values_are_cut_off_and_clipped() {
        let change =
            Photometric { brightness: Some(31.9), contrast: Some(0.5), ..Photometric::default() };
        let mut pixels = [0, 1, 250];
        change.apply(&mut pixels, 1);
        assert_eq!(pixels, [15, 16, 127]);
        // First or last matters once values are clipped.
        let change = Photometric { contrast_first: true, contrast: Some(1.5), ..change };
        let mut pixels = [0, 1, 250];
        change.apply(&mut pixels, 1);
        assert_eq!(pixels, [46, 48, 255]);
    }

    #[test]
    fn draws_cover_their_ranges_half_of_the_time() {
        let mut rng = keyed("test photometric", &[]);
        let draws: Vec<Photometric> = (0..4000).map(|_| Photometric::draw(&mut rng)).collect();
        let count = |of: &dyn Fn(&Photometric) -> bool| draws.iter().filter(|d| of(d)).count();
        for of in [
            &(|d: &Photometric| d.brightness.is_some()) as &dyn Fn(&Photometric) -> bool,
            &|d| d.contrast.is_some(),
            &|d| d.contrast_first,
            &|d| d.saturation.is_some(),
            &|d| d.hue.is_some(),
        ] {
            // Six standard deviations of a binomial with n = 4000, p = ½ are 190.
            assert!(count(of).abs_diff(2000) < 190);
        }
        let hues: Vec<i32> = draws.iter().filter_map(|draw| draw.hue).collect();
        assert_eq!((hues.iter().min(), hues.iter().max()), (Some(&-18), Some(&17)));
        let levels = draws.iter().filter_map(|draw| draw.brightness);
        let most = levels.fold(0.0_f64, |most, level| most.max(level.abs()));
        assert!((31.0..32.0).contains(&most), "{most}");
        let factors = draws.iter().flat_map(|draw| [draw.contrast, draw.saturation]).flatten();
        assert!(factors.clone().all(|factor| (0.5..1.5).contains(&factor)));
        assert!(factors.clone().any(|f| f < 0.51) && factors.clone().any(|f| f > 1.49));
    }
}
