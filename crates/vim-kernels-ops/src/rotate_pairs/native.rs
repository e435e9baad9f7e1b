//! The rotation of pairs of channels on a CPU, behind Burn's Flex backend: rayon over rows.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use rayon::prelude::*;

use super::{RotatePairsArguments, RotatePairsSpec};
use vim_kernels_core::native::slices::{contiguous, slice, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp};

/// Fewest rows of a task.
const ROWS: usize = 64;

impl FusedOp<Flex, 3, 0> for RotatePairsSpec {
    type Inputs = RotatePairsArguments<Flex>;
    /// Cosines and sines.
    type Saved = [FloatTensor<Flex>; 2];

    fn forward(
        self,
        RotatePairsArguments { x, cos, sin }: RotatePairsArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        // `own` multiplies the partner of the channel whose sine it is.
        let y = rotated(&x, [&cos, &sin], |own, _| own);
        (y, [], save.then_some([cos, sin]))
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        [cos, sin]: Self::Saved,
        _wanted: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        // The channel was read by its partner, with the partner's sine.
        [Some(rotated(&grad_y, [&cos, &sin], |_, partner| partner)), None, None]
    }
}

/// `x·cos + partner·factor`, the factor being of a channel's own sine and its partner's.
fn rotated(
    x: &FloatTensor<Flex>,
    table: [&FloatTensor<Flex>; 2],
    factor: impl Fn(f32, f32) -> f32 + Sync,
) -> FloatTensor<Flex> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let [_, len, d_model] = shape.dims();
    let (x, [cos, sin]) = (contiguous(x), table.map(contiguous));
    let [x, cos, sin] = [&x, &cos, &sin].map(slice);
    let mut y = vec![0.0; x.len()];
    let rows = y.par_chunks_mut(d_model).zip(x.par_chunks(d_model)).enumerate();
    rows.with_min_len(ROWS).for_each(|(row, (y, x))| {
        let table = row % len * d_model..(row % len + 1) * d_model;
        let (y, x) = (y.as_chunks_mut::<2>().0, x.as_chunks::<2>().0);
        let (cos, sin) = (cos[table.clone()].as_chunks().0, sin[table].as_chunks().0);
        for (((y, &[a, b]), &[cos_a, cos_b]), &[sin_a, sin_b]) in
            y.iter_mut().zip(x).zip(cos).zip(sin)
        {
            // Not fused: the same bits as by the reference.
            *y = [a * cos_a + b * factor(sin_a, sin_b), b * cos_b + a * factor(sin_b, sin_a)];
        }
    });
    tensor_as(y, &shape, dtype)
}
