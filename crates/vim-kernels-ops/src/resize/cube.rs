//! Bilinear interpolation on a GPU: a unit has some channels of a pixel, of the result forward and
//! of the input backward.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::axis::{end_of_readers, first_reader, lower_and_share, share_in};
use super::{ResizeArguments, ResizeSpec};
use vim_kernels_core::cube::{cubes, dense, elem, empty, lanes};
use vim_kernels_core::op::{Forward, FusedOp};

/// Units of a cube.
const UNITS: u32 = 256;

/// Sizes of both images, in pixels.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
}

/// `y`, whose pixels have `channels` vectors; `count` vectors in all.
#[cube(launch_unchecked, address_type = "dynamic")]
fn resize_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    y: &mut [Vector<F, N>],
    count: usize,
    channels: usize,
    sizes: Sizes,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let (pixel, channel) = ((at / channels) as u32, at % channels);
        let column = pixel % sizes.columns;
        let row = pixel / sizes.columns % sizes.rows;
        let image = pixel / sizes.columns / sizes.rows;
        let (top, down) = lower_and_share(row, sizes.height, sizes.rows);
        let (left, across) = lower_and_share(column, sizes.width, sizes.columns);
        let bottom = min(top + 1, sizes.height - 1);
        let right = min(left + 1, sizes.width - 1);
        let upper = (image * sizes.height + top) * sizes.width;
        let lower = (image * sizes.height + bottom) * sizes.width;
        let one = Vector::<f32, N>::cast_from(x[(upper + left) as usize * channels + channel]);
        let two = Vector::<f32, N>::cast_from(x[(upper + right) as usize * channels + channel]);
        let three = Vector::<f32, N>::cast_from(x[(lower + left) as usize * channels + channel]);
        let four = Vector::<f32, N>::cast_from(x[(lower + right) as usize * channels + channel]);
        let across = Vector::new(across);
        let above = one + (two - one) * across;
        let below = three + (four - three) * across;
        y[at] = Vector::cast_from(above + (below - above) * Vector::new(down));
    }
}

/// The gradient of x from that of y: `count` vectors, `channels` to a pixel.
#[cube(launch_unchecked, address_type = "dynamic")]
fn resize_backward<F: Float, N: Size>(
    grad_y: &[Vector<F, N>],
    grad_x: &mut [Vector<F, N>],
    count: usize,
    channels: usize,
    sizes: Sizes,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let (pixel, channel) = ((at / channels) as u32, at % channels);
        let j = pixel % sizes.width;
        let i = pixel / sizes.width % sizes.height;
        let image = pixel / sizes.width / sizes.height;
        let end_row = end_of_readers(i, sizes.height, sizes.rows);
        let first_column = first_reader(j, sizes.width, sizes.columns);
        let end_column = end_of_readers(j, sizes.width, sizes.columns);
        let mut sum = Vector::<f32, N>::new(0.0f32);
        for row in first_reader(i, sizes.height, sizes.rows)..end_row {
            let (top, down) = lower_and_share(row, sizes.height, sizes.rows);
            let of_row = share_in(i, sizes.height, top, down);
            let first = (image * sizes.rows + row) * sizes.columns;
            for column in first_column..end_column {
                let (left, across) = lower_and_share(column, sizes.width, sizes.columns);
                let share = of_row * share_in(j, sizes.width, left, across);
                let grad = grad_y[(first + column) as usize * channels + channel];
                sum += Vector::<f32, N>::cast_from(grad) * Vector::new(share);
            }
        }
        grad_x[at] = Vector::cast_from(sum);
    }
}

impl FusedOp<CubeBackend, 1, 0> for ResizeSpec {
    type Inputs = ResizeArguments<CubeBackend>;
    /// The shape of x.
    type Saved = [usize; 4];

    fn forward(
        self,
        arguments: ResizeArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let x = dense(arguments.x);
        let from: [usize; 4] = x.shape().dims();
        let [batch, .., channels] = from;
        let y = empty(&x, [batch, self.to[0], self.to[1], channels], x.dtype);
        self.launch(&x, &y, from, true);
        (y, [], save.then_some(from))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        from: Self::Saved,
        _wanted: [bool; 1],
    ) -> [Option<CubeTensor>; 1] {
        let grad_y = dense(grad_y);
        let grad_x = empty(&grad_y, from, grad_y.dtype);
        self.launch(&grad_y, &grad_x, from, false);
        [Some(grad_x)]
    }
}

impl ResizeSpec {
    /// Fills `written` from `read`: y from x, whose shape is `from`; or the gradient of x from that
    /// of y.
    fn launch(self, read: &CubeTensor, written: &CubeTensor, from: [usize; 4], forward: bool) {
        let [_, height, width, channels] = from;
        let lanes = lanes(channels, 4);
        let count = written.meta.shape().num_elements() / lanes;
        let client = read.client.clone();
        let [height, width, rows, columns] =
            [height, width, self.to[0], self.to[1]].map(|n| n as u32);
        let run = if forward {
            resize_forward::launch_unchecked
        } else {
            resize_backward::launch_unchecked
        };
        // SAFETY: both buffers are dense images of the sizes passed, and every pixel that is read
        // is within them; units from `count` on do nothing.
        unsafe {
            run(
                &client,
                cubes(&client, count.div_ceil(UNITS as usize)),
                CubeDim::new_1d(UNITS),
                read.required_address_type().max(written.required_address_type()),
                lanes,
                read.clone().into_buffer_arg(),
                written.clone().into_buffer_arg(),
                count,
                channels / lanes,
                SizesLaunch::new(height, width, rows, columns),
                elem(read),
            );
        }
    }
}
