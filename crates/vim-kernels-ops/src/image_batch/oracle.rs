//! Bytes to images, one element at a time, with its own implementation of the noise.

use super::{EraseFill, ImageBatch, MixPlan, Region};

/// The normal numbers of [`crate::image_batch()`] again, in 64-bit integers and floats.
fn normal(seed: u32, element: u64) -> f64 {
    let low = |x: u64| x & 0xffff_ffff;
    let hash = |x: u64| {
        let state = low(x * 747_796_405 + 2_891_336_453);
        let word = low(((state >> ((state >> 28) + 4)) ^ state) * 277_803_737);
        (word >> 22) ^ word
    };
    let first = hash(low(hash(u64::from(seed)) + element));
    let second = hash(first ^ 0x9e37_79b9);
    let unit = |x: u64| (x >> 8) as f64 / f64::from(1 << 24);
    let radius = (-2.0 * (unit(first) + 1.0 / f64::from(1 << 24)).ln()).sqrt();
    -radius * (std::f64::consts::TAU * unit(second)).cos()
}

/// The images `[B, 3, H, W]` of [`crate::image_batch()`].
///
/// # Panics
///
/// If the bytes do not have the size stated, or an area or an image is out of range.
#[must_use]
pub fn image_batch(batch: &ImageBatch<'_>) -> Vec<f64> {
    let [count, height, width] = batch.size;
    let value = |image: usize, channel: usize, y: usize, x: usize| {
        let place = (y * width + x) * 3 + channel;
        let pixel = f64::from(batch.pixels[image * height * width * 3 + place]);
        let (mean, std) = (f64::from(batch.mean[channel]), f64::from(batch.std[channel]));
        let mut value = (pixel / 255.0 - mean) / std;
        for erased in batch.erased.iter().filter(|erased| erased.image == image) {
            let Region { top, left, height, width } = erased.region;
            if (top..top + height).contains(&y) && (left..left + width).contains(&x) {
                value = match erased.fill {
                    EraseFill::Colour(colour) => f64::from(colour[channel]),
                    EraseFill::Pixels { seed } => normal(seed, place as u64),
                };
            }
        }
        value
    };
    let mut images = Vec::new();
    for image in 0..count {
        for channel in 0..3 {
            for y in 0..height {
                for x in 0..width {
                    let own = value(image, channel, y, x);
                    let theirs = value(count - 1 - image, channel, y, x);
                    images.push(match batch.mixing.get(image).copied().unwrap_or_default() {
                        MixPlan::None => own,
                        MixPlan::Mixup { lambda } => {
                            f64::from(lambda) * own + (1.0 - f64::from(lambda)) * theirs
                        }
                        MixPlan::Cutmix { region } => {
                            let rows = region.top..region.top + region.height;
                            let columns = region.left..region.left + region.width;
                            if rows.contains(&y) && columns.contains(&x) { theirs } else { own }
                        }
                    });
                }
            }
        }
    }
    images
}
