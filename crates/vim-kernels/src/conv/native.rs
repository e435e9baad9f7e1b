//! The causal convolution on a CPU, behind Burn's Flex backend: rows of channels are vectors, rayon
//! goes over the batch.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Slice;
use rayon::prelude::*;

use super::{BidirectionalConvArguments, ConvArguments, ConvSpec};
use crate::native::lanes::{LANES, Lanes};
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use crate::native::{Kernel, widest};
use crate::op::{self, FusedOp, Tensors};

impl FusedOp<Flex, 3, 0> for ConvSpec {
    type Inputs = ConvArguments<Flex>;
    type Saved = ConvArguments<Flex>;

    fn forward(
        self,
        arguments: ConvArguments<Flex>,
        save: bool,
    ) -> op::Forward<Flex, Self::Saved, 0> {
        let y = forward(arguments.clone(), self);
        (y, [], save.then_some(arguments))
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        arguments: ConvArguments<Flex>,
        _wanted: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        backward(grad_y, arguments, self).map(Some)
    }
}

impl FusedOp<Flex, 5, 0> for ConvSpec {
    type Inputs = BidirectionalConvArguments<Flex>;
    type Saved = BidirectionalConvArguments<Flex>;

    fn forward(
        self,
        arguments: BidirectionalConvArguments<Flex>,
        save: bool,
    ) -> op::Forward<Flex, Self::Saved, 0> {
        let [fwd, rev] = arguments.clone().directions();
        let (fwd, rev) = (forward(fwd, self), forward(rev, self.reversed()));
        (Flex::float_cat(vec![fwd, rev], 0), [], save.then_some(arguments))
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        arguments: BidirectionalConvArguments<Flex>,
        _wanted: [bool; 5],
    ) -> [Option<FloatTensor<Flex>>; 5] {
        let [batch, len, d_inner] = arguments.x.shape().dims();
        let half = |first: usize| {
            let slices = [first..first + batch, 0..len, 0..d_inner].map(Slice::from);
            Flex::float_slice(grad_y.clone(), &slices)
        };
        let [fwd, rev] = arguments.directions();
        let [x_fwd, weight_fwd, bias_fwd] = backward(half(0), fwd, self);
        let [x_rev, weight_rev, bias_rev] = backward(half(batch), rev, self.reversed());
        let grad_x = Flex::float_add(x_fwd, x_rev);
        [grad_x, weight_fwd, bias_fwd, weight_rev, bias_rev].map(Some)
    }
}

/// The arguments as contiguous slices; shapes as in [`crate::causal_conv1d()`].
#[derive(Clone, Copy)]
struct ConvInputs<'a> {
    len: usize,
    d_inner: usize,
    width: usize,
    spec: ConvSpec,
    x: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
}

/// `y [B, L, D]`.
fn forward(arguments: ConvArguments<Flex>, spec: ConvSpec) -> FloatTensor<Flex> {
    let dtype = arguments.x.dtype();
    let arguments = arguments.map(|t| contiguous(&t));
    let inputs = ConvInputs::new(&arguments, spec);
    let taps = inputs.taps();
    let mut y = vec![0.0; inputs.x.len()];
    y.par_chunks_mut(inputs.len * inputs.d_inner).enumerate().for_each(|(batch, y)| {
        widest(Forward { inputs, taps: &taps, x: inputs.batch_of(inputs.x, batch), y });
    });
    tensor_as(y, &arguments.x.shape().dims::<3>(), dtype)
}

/// The gradients of x, weight and bias from `grad_y [B, L, D]`.
fn backward(
    grad_y: FloatTensor<Flex>,
    arguments: ConvArguments<Flex>,
    spec: ConvSpec,
) -> [FloatTensor<Flex>; 3] {
    let dtype = arguments.x.dtype();
    let arguments = arguments.map(|t| contiguous(&t));
    let grad_y = contiguous(&grad_y);
    let (inputs, grad_y) = (ConvInputs::new(&arguments, spec), slice(&grad_y));
    let taps = inputs.taps();
    let mut x = vec![0.0; inputs.x.len()];
    let parts: Vec<_> = x
        .par_chunks_mut(inputs.len * inputs.d_inner)
        .enumerate()
        .map(|(batch, grad_x)| {
            widest(Backward {
                inputs,
                taps: &taps,
                x: inputs.batch_of(inputs.x, batch),
                grad_y: inputs.batch_of(grad_y, batch),
                grad_x,
            })
        })
        .collect();
    // In batch order, whatever the number of threads.
    let mut weight = vec![0.0; inputs.weight.len()];
    let mut bias = vec![0.0; inputs.d_inner];
    for (grad_taps, grad_bias) in parts {
        for channel in 0..inputs.d_inner {
            bias[channel] += grad_bias[channel];
            for tap in 0..inputs.width {
                weight[channel * inputs.width + tap] += grad_taps[tap * inputs.d_inner + channel];
            }
        }
    }
    [
        tensor_as(x, &arguments.x.shape().dims::<3>(), dtype),
        tensor(weight, &arguments.weight.shape().dims::<3>()),
        // An absent bias is one number.
        tensor(if spec.has_bias { bias } else { vec![0.0] }, &arguments.bias.shape().dims::<1>()),
    ]
}

impl<'a> ConvInputs<'a> {
    fn new(ConvArguments { x, weight, bias }: &'a ConvArguments<Flex>, spec: ConvSpec) -> Self {
        let [_, len, d_inner] = x.shape().dims();
        let [_, _, width] = weight.shape().dims();
        let bias = spec.has_bias.then(|| slice(bias));
        Self { len, d_inner, width, spec, x: slice(x), weight: slice(weight), bias }
    }

    /// The weight as `[W, D]`, so that a tap is a row.
    fn taps(&self) -> Vec<f32> {
        (0..self.width)
            .flat_map(|tap| (0..self.d_inner).map(move |c| self.weight[c * self.width + tap]))
            .collect()
    }

    fn batch_of<'b>(&self, all: &'b [f32], batch: usize) -> &'b [f32] {
        let block = self.len * self.d_inner;
        &all[batch * block..(batch + 1) * block]
    }

    /// The token that `tap` reads at `token`, if it is in the sequence.
    #[inline(always)]
    fn source(&self, token: usize, tap: usize) -> Option<usize> {
        let back = self.width - 1 - tap;
        if self.spec.reverse {
            (token + back < self.len).then_some(token + back)
        } else {
            token.checked_sub(back)
        }
    }

    /// `bias + Σ taps·x` of the channels `at..at + width` of a token.
    #[inline(always)]
    fn linear<const FMA: bool>(
        &self,
        taps: &[f32],
        x: &[f32],
        token: usize,
        at: usize,
        width: usize,
    ) -> Lanes<FMA> {
        let mut sum = self.bias.map_or(Lanes::ZERO, |bias| Lanes::load(&bias[at..at + width]));
        for tap in 0..self.width {
            if let Some(source) = self.source(token, tap) {
                let from = source * self.d_inner + at;
                let gain = Lanes::load(&taps[tap * self.d_inner + at..][..width]);
                sum = gain.fma(Lanes::load(&x[from..from + width]), sum);
            }
        }
        sum
    }
}

struct Forward<'a> {
    inputs: ConvInputs<'a>,
    taps: &'a [f32],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ConvInputs { len, d_inner, spec, .. } = self.inputs;
        for token in 0..len {
            for at in (0..d_inner).step_by(LANES) {
                let width = (d_inner - at).min(LANES);
                let y = self.inputs.linear::<FMA>(self.taps, self.x, token, at, width);
                let y = if spec.silu { y.silu() } else { y };
                y.store(&mut self.y[token * d_inner + at..][..width]);
            }
        }
    }
}

struct Backward<'a> {
    inputs: ConvInputs<'a>,
    taps: &'a [f32],
    x: &'a [f32],
    grad_y: &'a [f32],
    grad_x: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    /// The gradients of the taps `[W, D]` and of the bias `[D]`.
    type Output = (Vec<f32>, Vec<f32>);

    #[inline(always)]
    fn run<const FMA: bool>(self) -> (Vec<f32>, Vec<f32>) {
        let ConvInputs { len, d_inner, width: taps, spec, .. } = self.inputs;
        let mut grad_taps = vec![0.0; taps * d_inner];
        let mut grad_bias = vec![0.0; d_inner];
        for at in (0..d_inner).step_by(LANES) {
            let width = (d_inner - at).min(LANES);
            let mut sums = [Lanes::<FMA>::ZERO; 4];
            let mut bias = Lanes::<FMA>::ZERO;
            for token in 0..len {
                let mut grad = Lanes::load(&self.grad_y[token * d_inner + at..][..width]);
                if spec.silu {
                    let y = self.inputs.linear::<FMA>(self.taps, self.x, token, at, width);
                    grad = grad * y.silu_slope();
                }
                bias += grad;
                for tap in 0..taps {
                    let Some(source) = self.inputs.source(token, tap) else { continue };
                    let from = source * d_inner + at;
                    sums[tap] = grad.fma(Lanes::load(&self.x[from..from + width]), sums[tap]);
                    let gain = Lanes::load(&self.taps[tap * d_inner + at..][..width]);
                    let to = &mut self.grad_x[from..from + width];
                    gain.fma(grad, Lanes::load(to)).store(to);
                }
            }
            bias.store(&mut grad_bias[at..at + width]);
            for (tap, sum) in sums.into_iter().take(taps).enumerate() {
                sum.store(&mut grad_taps[tap * d_inner + at..][..width]);
            }
        }
        (grad_taps, grad_bias)
    }
}
