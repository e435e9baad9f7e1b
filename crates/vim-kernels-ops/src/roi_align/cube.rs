//! Features of boxes on a GPU: a unit has some channels of a bin forward, and of a pixel backward.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::table::{Layout, OF_BIN, TILE};
use super::{RoiAlignArguments, RoiAlignSpec};
use vim_kernels_core::cube::{cubes, dense, elem, empty, lanes};
use vim_kernels_core::op::{Forward, FusedOp};

/// Units of a cube.
const UNITS: u32 = 256;

/// [`Layout`] on a GPU.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    height: u32,
    width: u32,
    bins: u32,
    images_at: u32,
    weights_at: u32,
    starts_at: u32,
    members_at: u32,
    tile_rows: u32,
    tile_columns: u32,
}

/// The first pixel of a bin of a box along an axis, the number of pixels, and where their weights
/// are behind the first one.
#[cube]
fn bin_of(table: &[f32], bins: u32, roi: u32, #[comptime] axis: u32, bin: u32) -> (u32, u32, u32) {
    let at = (((2 * roi + axis) * bins + bin) * comptime!(OF_BIN as u32)) as usize;
    let first = u32::cast_from(table[at]);
    let count = u32::cast_from(table[at + 1]);
    let weights = u32::cast_from(table[at + 2]);
    (first, count, weights)
}

/// `y`, whose bins have `channels` vectors; `count` vectors in all.
#[cube(launch_unchecked, address_type = "dynamic")]
fn roi_align_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    table: &[f32],
    y: &mut [Vector<F, N>],
    count: usize,
    channels: usize,
    sizes: Sizes,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let (bin, channel) = ((at / channels) as u32, at % channels);
        let across = bin % sizes.bins;
        let down = bin / sizes.bins % sizes.bins;
        let roi = bin / sizes.bins / sizes.bins;
        let (top, rows, of_rows) = bin_of(table, sizes.bins, roi, 0u32, down);
        let (left, columns, of_columns) = bin_of(table, sizes.bins, roi, 1u32, across);
        let image = u32::cast_from(table[(sizes.images_at + roi) as usize]);
        let mut sum = Vector::<f32, N>::new(0.0f32);
        for i in 0..rows {
            let of_row = table[(sizes.weights_at + of_rows + i) as usize];
            let line = (image * sizes.height + top + i) * sizes.width + left;
            for j in 0..columns {
                let share = of_row * table[(sizes.weights_at + of_columns + j) as usize];
                let pixel = x[(line + j) as usize * channels + channel];
                sum += Vector::<f32, N>::cast_from(pixel) * Vector::new(share);
            }
        }
        y[at] = Vector::cast_from(sum);
    }
}

/// The gradient of x from that of y: `count` vectors, `channels` to a pixel.
#[cube(launch_unchecked, address_type = "dynamic")]
fn roi_align_backward<F: Float, N: Size>(
    grad_y: &[Vector<F, N>],
    table: &[f32],
    grad_x: &mut [Vector<F, N>],
    count: usize,
    channels: usize,
    sizes: Sizes,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let (pixel, channel) = ((at / channels) as u32, at % channels);
        let column = pixel % sizes.width;
        let row = pixel / sizes.width % sizes.height;
        let image = pixel / sizes.width / sizes.height;
        let tile = comptime!(TILE as u32);
        let line = (image * sizes.tile_rows + row / tile) * sizes.tile_columns;
        let start = (sizes.starts_at + line + column / tile) as usize;
        let begin = sizes.members_at + u32::cast_from(table[start]);
        let end = sizes.members_at + u32::cast_from(table[start + 1]);
        let mut sum = Vector::<f32, N>::new(0.0f32);
        for member in begin..end {
            let roi = u32::cast_from(table[member as usize]);
            for down in 0..sizes.bins {
                let (top, rows, of_rows) = bin_of(table, sizes.bins, roi, 0u32, down);
                if row >= top && row < top + rows {
                    let of_row = table[(sizes.weights_at + of_rows + row - top) as usize];
                    for across in 0..sizes.bins {
                        let (left, columns, of_columns) =
                            bin_of(table, sizes.bins, roi, 1u32, across);
                        if column >= left && column < left + columns {
                            let share = of_row
                                * table[(sizes.weights_at + of_columns + column - left) as usize];
                            let bin = (roi * sizes.bins + down) * sizes.bins + across;
                            let grad = grad_y[bin as usize * channels + channel];
                            sum += Vector::<f32, N>::cast_from(grad) * Vector::new(share);
                        }
                    }
                }
            }
        }
        grad_x[at] = Vector::cast_from(sum);
    }
}

impl FusedOp<CubeBackend, 2, 0> for RoiAlignSpec {
    type Inputs = RoiAlignArguments<CubeBackend>;
    /// The table.
    type Saved = CubeTensor;

    fn forward(
        self,
        arguments: RoiAlignArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let Layout { features: [.., channels], rois, bins, .. } = self.0;
        let (x, table) = (dense(arguments.x), dense(arguments.table));
        let y = empty(&x, [rois, bins, bins, channels], x.dtype);
        self.launch(&x, &table, &y, true);
        (y, [], save.then_some(table))
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        table: Self::Saved,
        _wanted: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        let grad_y = dense(grad_y);
        let grad_x = empty(&grad_y, self.0.features, grad_y.dtype);
        self.launch(&grad_y, &table, &grad_x, false);
        [Some(grad_x), None]
    }
}

impl RoiAlignSpec {
    /// Fills `written` from `read`: y from x, or the gradient of x from that of y.
    fn launch(self, read: &CubeTensor, table: &CubeTensor, written: &CubeTensor, forward: bool) {
        let Layout { features: [_, height, width, channels], bins, tiles, .. } = self.0;
        let Layout { images_at, weights_at, starts_at, members_at, .. } = self.0;
        let lanes = lanes(channels, 4);
        let count = written.meta.shape().num_elements() / lanes;
        let client = read.client.clone();
        let [height, width, bins, tile_rows, tile_columns] =
            [height, width, bins, tiles[0], tiles[1]].map(|n| n as u32);
        let [images_at, weights_at, starts_at, members_at] =
            [images_at, weights_at, starts_at, members_at].map(|n| n as u32);
        let sizes = SizesLaunch::new(
            height,
            width,
            bins,
            images_at,
            weights_at,
            starts_at,
            members_at,
            tile_rows,
            tile_columns,
        );
        let run = if forward {
            roi_align_forward::launch_unchecked
        } else {
            roi_align_backward::launch_unchecked
        };
        // SAFETY: the features are dense and of the sizes passed, as are the bins; what the table
        // names is within both and within itself, and units from `count` on do nothing.
        unsafe {
            run(
                &client,
                cubes(&client, count.div_ceil(UNITS as usize)),
                CubeDim::new_1d(UNITS),
                read.required_address_type().max(written.required_address_type()),
                lanes,
                read.clone().into_buffer_arg(),
                table.clone().into_buffer_arg(),
                written.clone().into_buffer_arg(),
                count,
                channels / lanes,
                sizes,
                elem(read),
            );
        }
    }
}
