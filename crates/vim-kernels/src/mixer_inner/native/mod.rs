//! The operation on a CPU, behind Burn's Flex backend: one image after the other goes through all
//! of it, in the cache of a core, rayon over the batch and the two directions.
//!
//! The forward pass keeps each image's projections and chunk states; the backward pass computes the
//! convolutions and the steps again.

mod way;

use std::sync::Arc;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use rayon::prelude::*;

use super::{INPUTS, MixerArguments, MixerSpec, OfInputs, Recompute};
use vim_kernels_core::native::slices::{add, contiguous, slice, tensor};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};
use vim_kernels_scan::LEAST_RATE;
use vim_kernels_scan::for_mixer::ScanSpec;
use vim_kernels_scan::for_mixer::native::Sizes;
use way::{Image, SavedImage, Sums, Way};

/// For what depends on the weights alone.
const NONE: Image<'static> = Image { xz: &[], z: &[] };

type Inputs = OfInputs<FloatTensor<Flex>>;

impl FusedOp<Flex, INPUTS, 0> for MixerSpec {
    type Inputs = MixerArguments<Flex>;
    /// The arguments, and of each image what its two directions kept.
    type Saved = (Inputs, Arc<Vec<[SavedImage; 2]>>);

    fn forward(self, arguments: MixerArguments<Flex>, save: bool) -> Forward<Flex, Self::Saved, 0> {
        let inputs = OfInputs::from_array(arguments.into_array().map(|t| contiguous(&t)));
        let mixer = Mixer::new(&inputs, self);
        let Sizes { len, d_inner, .. } = mixer.ways[0].sizes;
        let [batch, ..] = inputs.xz.shape().dims::<3>();
        let mut y = vec![0.0; batch * len * d_inner];
        let kept = y
            .par_chunks_mut(len * d_inner)
            .zip(slice(&inputs.xz).par_chunks(2 * len * d_inner))
            .map(|(y, xz)| {
                let z = mixer.gate(xz);
                let image = Image { xz, z: &z };
                let [(ahead, first), (back, second)] = mixer
                    .both(|_, way| way.forward(image, save && self.recompute != Recompute::States));
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
        let xz = slice(&inputs.xz);
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
            return OfInputs::xz_alone(like(grad_xz, &inputs.xz));
        }
        // In batch order, whatever the number of threads.
        let mut total = mixer.ways.each_ref().map(|way| Sums::new(way, NONE));
        for part in &parts {
            for (total, part) in total.iter_mut().zip(part) {
                total.add(part);
            }
        }
        let [ahead, back] = total;
        let [first, second] = &mixer.ways;
        let grads = [ahead.into_weights(first), back.into_weights(second)];
        let grads = OfInputs { xz: grad_xz, directions: grads }.into_array();
        let mut inputs = inputs.into_array().into_iter();
        grads.map(|grad| inputs.next().map(|of| like(grad, &of)))
    }
}

/// `values` in the shape of a tensor.
fn like(values: Vec<f32>, of: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    let shape: Vec<usize> = of.shape().iter().copied().collect();
    tensor(values, &shape)
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
            let weights = &inputs.directions[direction];
            let [_, len, width] = inputs.xz.shape().dims();
            let (a_log, d_inner) = (slice(&weights.a_log), width / 2);
            let mut options = spec.scan.options;
            options.reverse ^= direction == 1;
            let mut way = Way {
                sizes: Sizes { batch: 1, len, d_inner, d_state: a_log.len() / d_inner, groups: 1 },
                dt_rank: spec.dt_rank,
                scan: ScanSpec { options, bidirectional: false, ..spec.scan },
                conv_weight: slice(&weights.conv_weight),
                taps: Vec::new(),
                conv_bias: slice(&weights.conv_bias),
                x_proj: slice(&weights.x_proj),
                dt_proj: slice(&weights.dt_proj),
                delta_bias: slice(&weights.delta_bias),
                a: a_log.iter().map(|&a_log| rate(a_log)).collect(),
                d: slice(&weights.d),
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
