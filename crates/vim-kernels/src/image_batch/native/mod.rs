//! The native kernel behind Burn's Flex backend.

pub(crate) mod kernel;

use burn::backend::Flex;
use burn::backend::tensor::{FloatTensor, IntTensor};

use super::spec::{ImageBackend, ImageSpec};
use crate::native::slices::{contiguous, slice, tensor};

impl ImageBackend for Flex {
    fn image_batch(
        pixels: IntTensor<Self>,
        places: IntTensor<Self>,
        values: FloatTensor<Self>,
        spec: ImageSpec,
    ) -> FloatTensor<Self> {
        let [pixels, places] = [pixels, places].map(|t| t.to_contiguous());
        let values = contiguous(&values);
        let [pixels, places] =
            [&pixels, &places].map(|t| t.as_slice::<i32>().expect("invariant: uploaded as i32"));
        let [count, height, width] = spec.size;
        let images = kernel::prepare(pixels, places, slice(&values), spec);
        tensor(images, &[count, 3, height, width])
    }
}
