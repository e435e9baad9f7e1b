//! Features of boxes on a CPU, behind Burn's Flex backend: rayon over boxes, and over rows of the
//! features backward.

use burn::backend::{Flex, tensor::FloatTensor};
use burn::tensor::DType;
use rayon::prelude::*;

use super::table::{Layout, Table};
use super::{RoiAlignArguments, RoiAlignSpec};
use vim_kernels_core::native::slices::{contiguous, slice, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp};

impl FusedOp<Flex, 2, 0> for RoiAlignSpec {
    type Inputs = RoiAlignArguments<Flex>;
    /// The table, and the type of x.
    type Saved = (FloatTensor<Flex>, DType);

    fn forward(
        self,
        RoiAlignArguments { x, table }: RoiAlignArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let Layout { features: [.., channels], rois, bins, .. } = self.0;
        let dtype = x.dtype();
        let (x, table) = (contiguous(&x), contiguous(&table));
        let y = forward(slice(&x), &Table { numbers: slice(&table), layout: self.0 });
        let y = tensor_as(y, &[rois, bins, bins, channels], dtype);
        (y, [], save.then_some((table, dtype)))
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        (table, dtype): Self::Saved,
        _wanted: [bool; 2],
    ) -> [Option<FloatTensor<Flex>>; 2] {
        let grad_y = contiguous(&grad_y);
        let grad = backward(slice(&grad_y), &Table { numbers: slice(&table), layout: self.0 });
        [Some(tensor_as(grad, &self.0.features, dtype)), None]
    }
}

/// `to += from·share`.
fn add(to: &mut [f32], from: &[f32], share: f32) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from * share);
}

fn forward(x: &[f32], table: &Table<'_>) -> Vec<f32> {
    let Layout { features: [_, height, width, channels], rois, bins, .. } = table.layout;
    let mut y = vec![0.0; rois * bins * bins * channels];
    y.par_chunks_mut(bins * bins * channels).enumerate().for_each(|(roi, y)| {
        let image = &x[table.image(roi) * height * width * channels..];
        for (bin, y) in y.chunks_mut(channels).enumerate() {
            let (top, of_rows) = table.bin(roi, 0, bin / bins);
            let (left, of_columns) = table.bin(roi, 1, bin % bins);
            for (i, of_row) in of_rows.iter().enumerate() {
                for (j, of_column) in of_columns.iter().enumerate() {
                    let pixel = (top + i) * width + left + j;
                    add(y, &image[pixel * channels..][..channels], of_row * of_column);
                }
            }
        }
    });
    y
}

fn backward(grad_y: &[f32], table: &Table<'_>) -> Vec<f32> {
    let Layout { features: [batch, height, width, channels], bins, .. } = table.layout;
    let mut grad = vec![0.0; batch * height * width * channels];
    let weight = |roi, axis, bin, at: usize| {
        let (first, weights) = table.bin(roi, axis, bin);
        at.checked_sub(first).and_then(|at| weights.get(at)).copied()
    };
    grad.par_chunks_mut(width * channels).enumerate().for_each(|(line, grad)| {
        let (image, row) = (line / height, line % height);
        for (column, grad) in grad.chunks_mut(channels).enumerate() {
            for roi in table.members(image, [row, column]) {
                for down in 0..bins {
                    let Some(of_row) = weight(roi, 0, down, row) else { continue };
                    for across in 0..bins {
                        let Some(of_column) = weight(roi, 1, across, column) else { continue };
                        let bin = ((roi * bins + down) * bins + across) * channels;
                        add(grad, &grad_y[bin..][..channels], of_row * of_column);
                    }
                }
            }
        }
    });
    grad
}
