//! The operation on a CPU, behind Burn's Flex backend: one image after the other goes through all
//! of it, in the cache of a core, rayon over the batch and the two directions.
//!
//! The forward pass keeps each image's projections and chunk states; the backward pass computes the
//! convolutions and the steps again.

mod way;

use std::sync::Arc;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use rayon::prelude::*;

use super::{MixerArguments, MixerSpec};
use crate::discretization::LEAST_RATE;
use crate::native::slices::{add, contiguous, slice, tensor};
use crate::op::{Forward, FusedOp, Tensors};
use crate::scan::ScanSpec;
use crate::scan::native::Sizes;
use way::{Image, SavedImage, Sums, Way};

/// Weights of a direction.
const WEIGHTS: usize = 7;
/// Inputs: `xz`, then conv weight, conv bias, x_proj, dt_proj, delta bias, a_log and d of each
/// direction.
const INPUTS: usize = 1 + 2 * WEIGHTS;

/// For what depends on the weights alone.
const NONE: Image<'static> = Image { xz: &[], z: &[] };

type Inputs = [FloatTensor<Flex>; INPUTS];

impl FusedOp<Flex, INPUTS, 0> for MixerSpec {
    type Inputs = MixerArguments<Flex>;
    /// The arguments, and of each image what its two directions kept.
    type Saved = (Inputs, Arc<Vec<[SavedImage; 2]>>);

    fn forward(self, arguments: MixerArguments<Flex>, save: bool) -> Forward<Flex, Self::Saved, 0> {
        let inputs = arguments.into_array().map(|t| contiguous(&t));
        let mixer = Mixer::new(&inputs, self);
        let Sizes { len, d_inner, .. } = mixer.ways[0].sizes;
        let [batch, ..] = inputs[0].shape().dims::<3>();
        let mut y = vec![0.0; batch * len * d_inner];
        let kept = y
            .par_chunks_mut(len * d_inner)
            .zip(slice(&inputs[0]).par_chunks(2 * len * d_inner))
            .map(|(y, xz)| {
                let z = mixer.gate(xz);
                let image = Image { xz, z: &z };
                let [(ahead, first), (back, second)] =
                    mixer.both(|_, way| way.forward(image, save && !self.recompute));
                y.copy_from_slice(&ahead);
                add(y, &back);
                [first, second]
            })
            .collect();
        let y = tensor(y, &[batch, len, d_inner]);
        (y, [], save.then(|| (inputs, Arc::new(kept))))
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        (inputs, kept): Self::Saved,
        [_, of_weights @ ..]: [bool; INPUTS],
    ) -> [Option<FloatTensor<Flex>>; INPUTS] {
        let (grad, wants_weights) = (contiguous(&grad), of_weights.contains(&true));
        let mixer = Mixer::new(&inputs, self);
        let Sizes { len, d_inner, .. } = mixer.ways[0].sizes;
        let xz = slice(&inputs[0]);
        let mut grad_xz = vec![0.0; xz.len()];
        let parts: Vec<[Sums; 2]> = grad_xz
            .par_chunks_mut(2 * len * d_inner)
            .zip(xz.par_chunks(2 * len * d_inner))
            .zip(slice(&grad).par_chunks(len * d_inner))
            .zip(kept.par_iter())
            .map(|(((grad_xz, xz), grad), kept)| {
                let z = mixer.gate(xz);
                let image = Image { xz, z: &z };
                let [(ahead, first), (back, second)] = mixer.both(|direction, way| {
                    way.backward(image, &kept[direction], grad, wants_weights)
                });
                for (token, row) in grad_xz.chunks_exact_mut(2 * d_inner).enumerate() {
                    let here = token * d_inner..(token + 1) * d_inner;
                    for (half, row) in row.chunks_exact_mut(d_inner).enumerate() {
                        row.copy_from_slice(&ahead[half][here.clone()]);
                        add(row, &back[half][here.clone()]);
                    }
                }
                [first, second]
            })
            .collect();
        if !wants_weights {
            let shape: Vec<usize> = inputs[0].shape().iter().copied().collect();
            let mut grad_xz = Some(tensor(grad_xz, &shape));
            return std::array::from_fn(|_| grad_xz.take());
        }
        // In batch order, whatever the number of threads.
        let mut total = mixer.ways.each_ref().map(|way| Sums::new(way, NONE));
        for part in &parts {
            for (total, part) in total.iter_mut().zip(part) {
                total.add(part);
            }
        }
        let ways = mixer.ways.iter();
        let weights: Vec<_> =
            total.into_iter().zip(ways).flat_map(|(sums, way)| sums.into_weights(way)).collect();
        let mut grads = std::iter::once(grad_xz).chain(weights);
        inputs.each_ref().map(|of| {
            let shape: Vec<usize> = of.shape().iter().copied().collect();
            grads.next().map(|grad| tensor(grad, &shape))
        })
    }
}

/// `−exp(a_log)`, finite as the scan reads it: the gradient of `a_log` is that of A times A.
fn rate(a_log: f32) -> f32 {
    let a = -a_log.exp();
    if a < LEAST_RATE { LEAST_RATE } else { a }
}

/// Both directions.
struct Mixer<'a> {
    ways: [Way<'a>; 2],
}

impl<'a> Mixer<'a> {
    fn new(inputs: &'a Inputs, spec: MixerSpec) -> Self {
        let way = |direction: usize| {
            let first = 1 + direction * WEIGHTS;
            let weight = |i: usize| slice(&inputs[first + i]);
            let [_, len, width] = inputs[0].shape().dims();
            let (a_log, d_inner) = (weight(5), width / 2);
            let mut options = spec.options;
            options.reverse ^= direction == 1;
            let mut way = Way {
                sizes: Sizes { batch: 1, len, d_inner, d_state: a_log.len() / d_inner, groups: 1 },
                dt_rank: spec.dt_rank,
                scan: ScanSpec { options, bidirectional: false, ..spec.scan() },
                conv_weight: weight(0),
                taps: Vec::new(),
                conv_bias: weight(1),
                x_proj: weight(2),
                dt_proj: weight(3),
                delta_bias: weight(4),
                a: a_log.iter().map(|&a_log| rate(a_log)).collect(),
                d: weight(6),
            };
            way.taps = way.conv(NONE).taps();
            way
        };
        Self { ways: [way(0), way(1)] }
    }

    /// The gate of an image, `[L, D]`, side by side in the memory.
    fn gate(&self, xz: &[f32]) -> Vec<f32> {
        let d_inner = self.ways[0].sizes.d_inner;
        let mut gate = Vec::with_capacity(xz.len() / 2);
        for row in xz.chunks_exact(2 * d_inner) {
            gate.extend_from_slice(&row[d_inner..]);
        }
        gate
    }

    /// What `run` makes of each direction, the first (0) and the second (1).
    fn both<T: Send>(&self, run: impl Fn(usize, &Way<'a>) -> T + Sync) -> [T; 2] {
        let (ahead, back) = rayon::join(|| run(0, &self.ways[0]), || run(1, &self.ways[1]));
        [ahead, back]
    }
}
