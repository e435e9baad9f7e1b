//! The sum of shifted parts on a CPU, behind Burn's Flex backend: rayon goes over rows of pixels.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::{Parts, SIDE, ShiftedSum, TAPS};
use crate::native::slices::{contiguous, slice, tensor_as};
use crate::op::{Forward, FusedOp};

impl FusedOp<Flex, 1, 0> for ShiftedSum {
    type Inputs = Parts<Flex>;
    /// The gradient needs no number of the forward pass.
    type Saved = ();

    fn forward(self, inputs: Parts<Flex>, save: bool) -> Forward<Flex, (), 0> {
        let dtype = inputs.parts.dtype();
        let parts = contiguous(&inputs.parts);
        let Self { batch, height, width, channels } = self;
        let y = self.sum(slice(&parts));
        (tensor_as(y, &[batch, height, width, channels], dtype), [], save.then_some(()))
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        (): (),
        _wanted: [bool; 1],
    ) -> [Option<FloatTensor<Flex>>; 1] {
        let dtype = grad.dtype();
        let grad = contiguous(&grad);
        let Self { batch, height, width, channels } = self;
        let parts = self.spread(slice(&grad));
        [Some(tensor_as(parts, &[batch, height, width, TAPS * channels], dtype))]
    }
}

impl ShiftedSum {
    /// The neighbour of `place` that a tap along an axis of `length` looks at.
    fn neighbour(place: usize, tap: usize, length: usize) -> Option<usize> {
        (place + tap).checked_sub(1).filter(|&place| place < length)
    }

    /// `[B, H, W, N]` of `parts`, `[B, H, W, 9·N]`.
    fn sum(self, parts: &[f32]) -> Vec<f32> {
        let Self { batch, height, width, channels } = self;
        let mut y = vec![0.0; batch * height * width * channels];
        let rows = y.par_chunks_mut((width * channels).max(1)).enumerate();
        rows.for_each(|(row, y)| {
            let (image, h) = (row / height, row % height);
            for tap in 0..TAPS {
                let Some(from) = Self::neighbour(h, tap / SIDE, height) else { continue };
                for (w, y) in y.chunks_exact_mut(channels).enumerate() {
                    let Some(column) = Self::neighbour(w, tap % SIDE, width) else { continue };
                    let pixel = (image * height + from) * width + column;
                    let part = &parts[(pixel * TAPS + tap) * channels..][..channels];
                    y.iter_mut().zip(part).for_each(|(y, part)| *y += part);
                }
            }
        });
        y
    }

    /// The adjoint: `[B, H, W, 9·N]` of the gradient `[B, H, W, N]`.
    fn spread(self, grad: &[f32]) -> Vec<f32> {
        let Self { batch, height, width, channels } = self;
        let mut parts = vec![0.0; batch * height * width * TAPS * channels];
        let pixels = parts.par_chunks_mut((TAPS * channels).max(1)).enumerate();
        pixels.for_each(|(pixel, parts)| {
            let (image, h, w) = (pixel / (height * width), pixel / width % height, pixel % width);
            for (tap, part) in parts.chunks_exact_mut(channels).enumerate() {
                // The pixel that looks here by a tap is where the opposite tap looks.
                let opposite = TAPS - 1 - tap;
                let Some(row) = Self::neighbour(h, opposite / SIDE, height) else { continue };
                let Some(column) = Self::neighbour(w, opposite % SIDE, width) else { continue };
                let from = ((image * height + row) * width + column) * channels;
                part.copy_from_slice(&grad[from..from + channels]);
            }
        });
        parts
    }
}
