//! Bytes to images: a unit computes one pixel, in its three channels.

use cubecl::prelude::*;

use crate::image_batch::noise::{INCREMENT, MULTIPLIER, PERMUTATION, STEP, UNIT};
use crate::image_batch::spec::{AREA, BOX, COLOUR, NOISE, STATISTICS};

/// Units of a cube.
pub(crate) const CUBE: u32 = 256;

/// The position of a pixel.
#[derive(CubeType, Clone, Copy)]
struct Spot {
    /// Index in the batch.
    image: usize,
    y: usize,
    x: usize,
}

/// The sizes of a launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) count: u32,
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// Boxes per image.
    pub(crate) boxes: u32,
}

/// See [`crate::image_batch::noise::hash`].
#[cube]
fn hash(x: u32) -> u32 {
    let state = x * MULTIPLIER + INCREMENT;
    let word = ((state >> ((state >> 28u32) + 4u32)) ^ state) * PERMUTATION;
    (word >> 22u32) ^ word
}

/// See [`crate::image_batch::noise::normal`].
#[cube]
fn normal(seed: u32, element: u32) -> f32 {
    let first = hash(hash(seed) + element);
    let second = hash(first ^ STEP);
    let radius = f32::cast_from((first >> 8u32) + 1u32) * UNIT;
    let angle = f32::cast_from(second >> 8u32) * UNIT - 0.5f32;
    f32::sqrt(-2.0f32 * radius.ln()) * (std::f32::consts::TAU * angle).cos()
}

/// Whether a pixel is in the area that begins at `places[first]`.
#[cube]
fn is_inside(places: &[i32], first: usize, y: usize, x: usize) -> bool {
    let row = y as i32 - places[first];
    let column = x as i32 - places[first + 1];
    row >= 0 && row < places[first + 2] && column >= 0 && column < places[first + 3]
}

/// One channel of a pixel, normalized and erased.
#[cube]
fn value(
    pixels: &[u32],
    places: &[i32],
    values: &[f32],
    spot: &Spot,
    channel: usize,
    sizes: &Sizes,
) -> f32 {
    let width = sizes.width as usize;
    let element = (spot.y * width + spot.x) * 3 + channel;
    let at = spot.image * sizes.height as usize * width * 3 + element;
    let byte = (pixels[at / 4] >> (8u32 * (at % 4) as u32)) & 255u32;
    let mut value = (f32::cast_from(byte) / 255.0f32 - values[channel]) / values[3 + channel];
    let count = sizes.boxes as usize;
    for each in 0..count {
        let place = spot.image * count + each;
        let first = place * comptime!(BOX);
        let kind = places[first + 4];
        if is_inside(places, first, spot.y, spot.x) {
            if kind == COLOUR {
                value = values[comptime!(STATISTICS) + place * 3 + channel];
            }
            if kind == NOISE {
                value = normal(places[first + 5] as u32, element as u32);
            }
        }
    }
    value
}

/// See [`crate::image_batch()`].
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn prepare_images(
    pixels: &[u32],
    places: &[i32],
    values: &[f32],
    images: &mut [f32],
    sizes: Sizes,
) {
    let width = sizes.width as usize;
    let plane = sizes.height as usize * width;
    let count = sizes.count as usize;
    let place = CUBE_POS * CUBE as usize + UNIT_POS_X as usize;
    if place < count * plane {
        let image = place / plane;
        let y = place % plane / width;
        let x = place % width;
        let partner = count - 1 - image;
        let boxes = count * sizes.boxes as usize;
        let area = boxes * comptime!(BOX) + image * comptime!(AREA);
        let shares = comptime!(STATISTICS) + boxes * 3 + image * 2;
        let mut share = values[shares + 1];
        if is_inside(places, area, y, x) {
            share = values[shares];
        }
        #[unroll]
        for channel in 0..3 {
            let own = Spot { image, y, x };
            let mut mixed = value(pixels, places, values, &own, channel, &sizes);
            if share != 1.0f32 && partner != image {
                let other = Spot { image: partner, y, x };
                let theirs = value(pixels, places, values, &other, channel, &sizes);
                mixed = mixed * share + theirs * (1.0f32 - share);
            }
            images[(image * 3 + channel) * plane + y * width + x] = mixed;
        }
    }
}
