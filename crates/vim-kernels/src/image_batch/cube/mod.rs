//! The launch of the kernel in CubeCL.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

mod kernel;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use cubecl::CubeDim;

use super::spec::{ImageBackend, ImageSpec};
use crate::cube::{cubes, dense, empty};
use kernel::{CUBE, SizesLaunch, prepare_images};

impl ImageBackend for CubeBackend {
    fn image_batch(
        pixels: IntTensor<Self>,
        places: IntTensor<Self>,
        values: FloatTensor<Self>,
        spec: ImageSpec,
    ) -> FloatTensor<Self> {
        let [pixels, places, values] = [pixels, places, values].map(dense);
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
