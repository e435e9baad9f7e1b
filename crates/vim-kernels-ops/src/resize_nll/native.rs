//! The loss of interpolated logits on a CPU, behind Burn's Flex backend: rayon over rows of pixels,
//! one pixel's logits in memory at a time.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use rayon::prelude::*;

use super::{COUNTS, ResizeNllArguments, ResizeNllSpec};
use crate::resize::axis::lower_and_share;
use crate::resize::native::readers;
use vim_kernels_core::native::slices::{contiguous, slice, tensor, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp};

impl FusedOp<Flex, 2, 1> for ResizeNllSpec {
    type Inputs = ResizeNllArguments<Flex>;
    /// The logits, the labels, and the logarithm of each pixel's denominator.
    type Saved = ([FloatTensor<Flex>; 2], Vec<f32>);

    fn forward(
        self,
        arguments: ResizeNllArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 1> {
        let ResizeNllArguments { logits, labels } = arguments;
        let (values, labels) = (contiguous(&logits), contiguous(&labels));
        let pixels = Pixels::new(slice(&values), logits.shape().dims(), self.to);
        let (log_sums, totals) = forward(pixels, slice(&labels));
        let [loss, counts @ ..] = totals.map(|total| total as f32);
        let results = (tensor(vec![loss], &[1]), [tensor(counts.to_vec(), &[COUNTS])]);
        (results.0, results.1, save.then_some(([logits, labels], log_sums)))
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        ([logits, labels], log_sums): Self::Saved,
        _wanted: [bool; 2],
    ) -> [Option<FloatTensor<Flex>>; 2] {
        let dtype: DType = logits.dtype();
        let [grad, values, labels] = [&grad, &logits, &labels].map(contiguous);
        let shape = logits.shape();
        let pixels = Pixels::new(slice(&values), shape.dims(), self.to);
        let grad = backward(pixels, slice(&labels), &log_sums, slice(&grad)[0]);
        [Some(tensor_as(grad, &shape, dtype)), None]
    }
}

/// Logits to be interpolated.
#[derive(Clone, Copy)]
struct Pixels<'a> {
    /// `[B, h, w, K]`.
    logits: &'a [f32],
    from: [usize; 4],
    to: [usize; 2],
}

impl<'a> Pixels<'a> {
    fn new(logits: &'a [f32], from: [usize; 4], to: [usize; 2]) -> Self {
        Self { logits, from, to }
    }

    /// The logits of pixel `(row, column)` of an interpolated image.
    fn interpolate(&self, [image, row, column]: [usize; 3], logits: &mut [f32]) {
        let [_, height, width, classes] = self.from;
        let [top, left] = [(row, height, self.to[0]), (column, width, self.to[1])]
            .map(|(at, from, to)| lower_and_share(at as u32, from as u32, to as u32));
        let rows = [top.0 as usize, (top.0 as usize + 1).min(height - 1)];
        let columns = [left.0 as usize, (left.0 as usize + 1).min(width - 1)];
        let corner = |i: usize, j: usize| {
            &self.logits[((image * height + i) * width + j) * classes..][..classes]
        };
        let above = corner(rows[0], columns[0]).iter().zip(corner(rows[0], columns[1]));
        let below = corner(rows[1], columns[0]).iter().zip(corner(rows[1], columns[1]));
        for (((a, b), (c, d)), logit) in above.zip(below).zip(logits) {
            let (above, below) = (a + (b - a) * left.1, c + (d - c) * left.1);
            *logit = above + (below - above) * top.1;
        }
    }
}

/// The class of a label, if it is one.
fn class(label: f32, classes: usize) -> Option<usize> {
    (label >= 0.0 && label < classes as f32).then_some(label as usize)
}

/// The logarithm of each pixel's denominator, and the sums: the loss and the counts.
fn forward(pixels: Pixels<'_>, labels: &[f32]) -> (Vec<f32>, [f64; 1 + COUNTS]) {
    let [_, _, _, classes] = pixels.from;
    let [rows, columns] = pixels.to;
    let mut log_sums = vec![0.0; labels.len()];
    let of_rows: Vec<[f64; 1 + COUNTS]> = log_sums
        .par_chunks_mut(columns)
        .zip(labels.par_chunks(columns))
        .enumerate()
        .map(|(at, (log_sums, labels))| {
            let mut logits = vec![0.0; classes];
            let mut totals = [0.0; 1 + COUNTS];
            for (column, (log_sum, &label)) in log_sums.iter_mut().zip(labels).enumerate() {
                pixels.interpolate([at / rows, at % rows, column], &mut logits);
                let (mut best, mut largest) = (0, f32::NEG_INFINITY);
                for (class, &logit) in logits.iter().enumerate() {
                    if logit > largest {
                        (best, largest) = (class, logit);
                    }
                }
                let sum: f32 = logits.iter().map(|logit| (logit - largest).exp()).sum();
                *log_sum = largest + sum.ln();
                if let Some(class) = class(label, classes) {
                    totals[0] += f64::from(*log_sum - logits[class]);
                    totals[1] += f64::from(u8::from(class == best));
                    totals[2] += 1.0;
                }
            }
            totals
        })
        .collect();
    // In the order of rows, whatever the number of threads.
    let mut totals = [0.0; 1 + COUNTS];
    for row in of_rows {
        totals.iter_mut().zip(row).for_each(|(total, row)| *total += row);
    }
    (log_sums, totals)
}

/// The gradient of the logits, times `grad`.
fn backward(pixels: Pixels<'_>, labels: &[f32], log_sums: &[f32], grad: f32) -> Vec<f32> {
    let [_, height, width, classes] = pixels.from;
    let [rows, columns] = pixels.to;
    let mut grads = vec![0.0; pixels.logits.len()];
    grads.par_chunks_mut(width * classes).enumerate().for_each(|(at, grads)| {
        let (image, i) = (at / height, at % height);
        let mut logits = vec![0.0; classes];
        for (row, of_row) in readers(i, height, rows) {
            for (j, grads) in grads.chunks_mut(classes).enumerate() {
                for (column, of_column) in readers(j, width, columns) {
                    let pixel = (image * rows + row) * columns + column;
                    let (Some(class), share) = (class(labels[pixel], classes), of_row * of_column)
                    else {
                        continue;
                    };
                    pixels.interpolate([image, row, column], &mut logits);
                    let log_sum = log_sums[pixel];
                    for (grad, logit) in grads.iter_mut().zip(&logits) {
                        *grad += share * (logit - log_sum).exp();
                    }
                    grads[class] -= share;
                }
            }
        }
        grads.iter_mut().for_each(|own| *own *= grad);
    });
    grads
}
