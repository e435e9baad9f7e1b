//! The sum of shifted parts on a GPU: a unit computes neighbouring channels of one pixel.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Parts, SIDE, ShiftedSum, TAPS};
use crate::cube::{cubes, dense, elem, empty, lanes};
use crate::op::{Forward, FusedOp};

/// Units of a cube.
const CUBE: u32 = 256;

/// The sizes of a launch; channels in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    batch: u32,
    height: u32,
    width: u32,
    channels: u32,
}

/// See [`ShiftedSum`]; channels in vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn shifted_sum_forward<F: Float, N: Size>(
    parts: &[Vector<F, N>],
    y: &mut [Vector<F, N>],
    sizes: Sizes,
    #[define(F)] _dtype: ElemType,
) {
    let channels = sizes.channels as usize;
    let height = sizes.height as usize;
    let width = sizes.width as usize;
    let place = CUBE_POS * CUBE as usize + UNIT_POS_X as usize;
    let count = sizes.batch as usize * height * width * channels;
    if place < count {
        let channel = place % channels;
        let pixel = place / channels;
        let column = pixel % width;
        let row = pixel / width % height;
        let image = pixel / width / height;
        let mut sum = Vector::<f32, N>::new(0.0f32);
        #[unroll]
        for tap in 0..comptime!(TAPS) {
            // One more than the neighbour's.
            let r = row + comptime!(tap / SIDE);
            let c = column + comptime!(tap % SIDE);
            if r >= 1 && r <= height && c >= 1 && c <= width {
                let from = (image * height + r - 1) * width + c - 1;
                let at = (from * comptime!(TAPS) + tap) * channels + channel;
                sum += Vector::<f32, N>::cast_from(parts[at]);
            }
        }
        y[place] = Vector::<F, N>::cast_from(sum);
    }
}

/// The adjoint; channels in vectors.
#[cube(launch_unchecked, address_type = "dynamic")]
fn shifted_sum_backward<F: Float, N: Size>(
    grad: &[Vector<F, N>],
    parts: &mut [Vector<F, N>],
    sizes: Sizes,
    #[define(F)] _dtype: ElemType,
) {
    let channels = sizes.channels as usize;
    let height = sizes.height as usize;
    let width = sizes.width as usize;
    let place = CUBE_POS * CUBE as usize + UNIT_POS_X as usize;
    let count = sizes.batch as usize * height * width * comptime!(TAPS) * channels;
    if place < count {
        let channel = place % channels;
        // The pixel that looks here by a tap is where the opposite tap looks.
        let opposite = comptime!(TAPS - 1) - place / channels % comptime!(TAPS);
        let pixel = place / channels / comptime!(TAPS);
        let column = pixel % width;
        let row = pixel / width % height;
        let image = pixel / width / height;
        let r = row + opposite / comptime!(SIDE);
        let c = column + opposite % comptime!(SIDE);
        let mut part = Vector::<F, N>::new(F::from_int(0));
        if r >= 1 && r <= height && c >= 1 && c <= width {
            let from = (image * height + r - 1) * width + c - 1;
            part = grad[from * channels + channel];
        }
        parts[place] = part;
    }
}

impl ShiftedSum {
    /// Runs one of the kernels on `from`, into `channels` channels of every pixel.
    fn launch(self, from: CubeTensor, channels: usize, is_forward: bool) -> CubeTensor {
        let from = dense(from);
        let client = from.client.clone();
        let Self { batch, height, width, .. } = self;
        let to = empty(&from, [batch, height, width, channels], from.dtype);
        let lanes = lanes(self.channels, 4);
        let units = batch * height * width * channels / lanes;
        let sizes = [batch, height, width, self.channels / lanes].map(|n| n as u32);
        let sizes = SizesLaunch::new(sizes[0], sizes[1], sizes[2], sizes[3]);
        let count = cubes(&client, units.div_ceil(CUBE as usize));
        let (dim, elem) = (CubeDim::new_1d(CUBE), elem(&from));
        let larger = if is_forward { &from } else { &to };
        let address = larger.required_address_type();
        let (input, output) = (from.into_buffer_arg(), to.clone().into_buffer_arg());
        // SAFETY: both buffers are contiguous and have the sizes passed; units from the last pixel
        // on write nothing, and neighbours outside the image are not read.
        unsafe {
            if is_forward {
                shifted_sum_forward::launch_unchecked(
                    &client, count, dim, address, lanes, input, output, sizes, elem,
                );
            } else {
                shifted_sum_backward::launch_unchecked(
                    &client, count, dim, address, lanes, input, output, sizes, elem,
                );
            }
        }
        to
    }
}

impl FusedOp<CubeBackend, 1, 0> for ShiftedSum {
    type Inputs = Parts<CubeBackend>;
    /// The gradient needs no number of the forward pass.
    type Saved = ();

    fn forward(self, inputs: Parts<CubeBackend>, save: bool) -> Forward<CubeBackend, (), 0> {
        (self.launch(inputs.parts, self.channels, true), [], save.then_some(()))
    }

    fn backward(
        self,
        grad: FloatTensor<CubeBackend>,
        (): (),
        _wanted: [bool; 1],
    ) -> [Option<FloatTensor<CubeBackend>>; 1] {
        [Some(self.launch(grad, TAPS * self.channels, false))]
    }
}
