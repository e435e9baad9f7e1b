//! Bytes to images on a GPU: a unit computes one pixel, in its three channels.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

use super::noise::{INCREMENT, MULTIPLIER, PERMUTATION, STEP, UNIT};
use super::{AREA, BOX, COLOUR, ImageBackend, ImageInputs, ImageSpec, NOISE, STATISTICS};
use vim_kernels_core::cube::{cubes, dense, empty};

/// Units of a cube.
const CUBE: u32 = 256;

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
struct Sizes {
    count: u32,
    height: u32,
    width: u32,
    /// Boxes per image.
    boxes: u32,
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
fn prepare_images(
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

impl ImageBackend for CubeBackend {
    fn image_batch(inputs: ImageInputs<Self>, spec: ImageSpec) -> FloatTensor<Self> {
        let [pixels, places, values] = [inputs.pixels, inputs.places, inputs.values].map(dense);
        let client = pixels.client.clone();
        let [count, height, width] = spec.size;
        let images = empty(&pixels, [count, 3, height, width], DType::F32);
        let sizes = [count, height, width, spec.boxes].map(|n| n as u32);
        let address = images.required_address_type();
        // SAFETY: the buffers are contiguous and have the sizes passed; units from `count` images
        // on write nothing.
        unsafe {
            prepare_images::launch_unchecked(
                &client,
                cubes(&client, (count * height * width).div_ceil(CUBE as usize)),
                CubeDim::new_1d(CUBE),
                address,
                pixels.into_buffer_arg(),
                places.into_buffer_arg(),
                values.into_buffer_arg(),
                images.clone().into_buffer_arg(),
                SizesLaunch::new(sizes[0], sizes[1], sizes[2], sizes[3]),
            );
        }
        images
    }
}
