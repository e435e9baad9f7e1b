//! Bytes to images on a CPU, behind Burn's Flex backend: rayon iterates over images, and again to
//! mix them.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::noise::normal;
use super::{AREA, BOX, COLOUR, ImageBackend, ImageInputs, ImageSpec, NOISE, STATISTICS};
use vim_kernels_core::native::slices::{contiguous, slice, tensor};

impl ImageBackend for Flex {
    fn image_batch(inputs: ImageInputs<Self>, spec: ImageSpec) -> FloatTensor<Self> {
        let [pixels, places] = [inputs.pixels, inputs.places].map(|t| t.to_contiguous());
        let values = contiguous(&inputs.values);
        let [pixels, places] =
            [&pixels, &places].map(|t| t.as_slice::<i32>().expect("invariant: uploaded as i32"));
        let [count, height, width] = spec.size;
        let images = prepare(pixels, places, slice(&values), spec);
        tensor(images, &[count, 3, height, width])
    }
}

/// The images `[B, 3, H, W]`, see [`crate::image_batch()`].
pub(super) fn prepare(words: &[i32], places: &[i32], values: &[f32], spec: ImageSpec) -> Vec<f32> {
    let [count, height, width] = spec.size;
    let plane = height * width;
    let (statistics, values) = values.split_at(STATISTICS);
    let (boxes, areas) = places.split_at(count * spec.boxes * BOX);
    let (colours, shares) = values.split_at(count * spec.boxes * 3);
    let tables: [Vec<f32>; 3] = std::array::from_fn(|channel| {
        let (mean, std) = (statistics[channel], statistics[3 + channel]);
        (0..256).map(|pixel| (pixel as f32 / 255.0 - mean) / std).collect()
    });
    let mut images = vec![0.0; count * 3 * plane];
    images.par_chunks_mut(3 * plane).enumerate().for_each(|(image, values)| {
        let (red, rest) = values.split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        for (channel, values) in [red, green, blue].into_iter().enumerate() {
            let table = &tables[channel];
            for (pixel, value) in values.iter_mut().enumerate() {
                let at = 3 * (image * plane + pixel) + channel;
                *value = table[(words[at / 4] >> (8 * (at % 4)) & 255) as usize];
            }
        }
        let own = image * spec.boxes..(image + 1) * spec.boxes;
        for (erased, colour) in boxes[own.start * BOX..own.end * BOX]
            .chunks_exact(BOX)
            .zip(colours[own.start * 3..own.end * 3].chunks_exact(3))
        {
            erase(values, erased, colour, [height, width]);
        }
    });
    if spec.mixes {
        mix(&mut images, areas, shares, spec);
    }
    images
}

/// Erases one box of an image `[3, H, W]`.
fn erase(values: &mut [f32], erased: &[i32], colour: &[f32], [height, width]: [usize; 2]) {
    let [top, left, rows, columns, kind, seed] =
        <[i32; BOX]>::try_from(erased).expect("invariant: a chunk of BOX");
    if kind != COLOUR && kind != NOISE {
        return;
    }
    let [top, left, rows, columns] = [top, left, rows, columns].map(|n| n as usize);
    for channel in 0..3 {
        for y in top..top + rows {
            for x in left..left + columns {
                let element = (y * width + x) * 3 + channel;
                values[(channel * height + y) * width + x] = if kind == NOISE {
                    normal(seed.cast_unsigned(), element as u32)
                } else {
                    colour[channel]
                };
            }
        }
    }
}

/// Mixes each image with its partner, in pairs from both ends.
fn mix(images: &mut [f32], areas: &[i32], shares: &[f32], spec: ImageSpec) {
    let [count, height, width] = spec.size;
    let size = 3 * height * width;
    // The image's own share at each element.
    let share_of = |image: usize| {
        let (area, shares) = (&areas[image * AREA..][..AREA], &shares[image * 2..][..2]);
        let within = |place: usize, first: i32, count: i32| {
            (first as usize..(first + count) as usize).contains(&place)
        };
        move |element: usize| {
            let (y, x) = (element / width % height, element % width);
            let inside = within(y, area[0], area[2]) && within(x, area[1], area[3]);
            shares[usize::from(!inside)]
        }
    };
    // The middle image of an odd batch is its own partner.
    let (first, last) = images.split_at_mut(count.div_ceil(2) * size);
    let pairs = first.par_chunks_mut(size).zip(last.par_chunks_mut(size).rev());
    pairs.enumerate().for_each(|(image, (one, other))| {
        let (of_one, of_other) = (share_of(image), share_of(count - 1 - image));
        for (element, (one, other)) in one.iter_mut().zip(other).enumerate() {
            let (a, b) = (of_one(element), of_other(element));
            (*one, *other) = (*one * a + *other * (1.0 - a), *other * b + *one * (1.0 - b));
        }
    });
}
