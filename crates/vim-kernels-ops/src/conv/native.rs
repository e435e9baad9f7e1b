//! The causal convolution on a CPU, behind Burn's Flex backend: rows of channels are vectors, rayon
//! goes over the batch.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Slice;
use rayon::prelude::*;

use super::{BidirectionalConvArguments, ConvArguments, ConvSpec};
use vim_kernels_core::native::lanes::{LANES, Lanes};
use vim_kernels_core::native::slices::{add, contiguous, slice, tensor, tensor_as};
use vim_kernels_core::native::{Kernel, widest};
use vim_kernels_core::op::{self, FusedOp, Tensors};

/// Most taps of a convolution.
const MOST_TAPS: usize = 4;

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

/// The arguments as slices; shapes as in [`crate::causal_conv1d()`].
#[derive(Clone, Copy)]
pub struct ConvInputs<'a> {
    pub len: usize,
    pub d_inner: usize,
    /// Distance between the tokens of x.
    pub pitch: usize,
    pub width: usize,
    pub spec: ConvSpec,
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub bias: Option<&'a [f32]>,
}

/// `y [B, L, D]`.
fn forward(arguments: ConvArguments<Flex>, spec: ConvSpec) -> FloatTensor<Flex> {
    let dtype = arguments.x.dtype();
    let arguments = arguments.map(|t| contiguous(&t));
    let inputs = ConvInputs::new(&arguments, spec);
    let taps = inputs.taps();
    let mut y = vec![0.0; inputs.x.len()];
    y.par_chunks_mut(inputs.len * inputs.d_inner).enumerate().for_each(|(batch, y)| {
        inputs.image(batch).forward(&taps, y);
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
    let image = inputs.len * inputs.d_inner;
    let parts: Vec<ConvSums> = x
        .par_chunks_mut(image)
        .zip(grad_y.par_chunks(image))
        .enumerate()
        .map(|(batch, (grad_x, grad_y))| inputs.image(batch).backward(&taps, grad_y, grad_x))
        .collect();
    // In batch order, whatever the number of threads.
    let mut sums = ConvSums::new(&inputs);
    for part in &parts {
        sums.add(part);
    }
    [
        tensor_as(x, &arguments.x.shape().dims::<3>(), dtype),
        tensor(sums.weight(), &arguments.weight.shape().dims::<3>()),
        // An absent bias is one number.
        tensor(
            if spec.has_bias { sums.bias } else { vec![0.0] },
            &arguments.bias.shape().dims::<1>(),
        ),
    ]
}

/// Gradients that are sums over the tokens.
pub struct ConvSums {
    /// `[W, D]`.
    taps: Vec<f32>,
    /// `[D]`.
    pub bias: Vec<f32>,
}

impl ConvSums {
    pub fn new(inputs: &ConvInputs<'_>) -> Self {
        Self { taps: vec![0.0; inputs.width * inputs.d_inner], bias: vec![0.0; inputs.d_inner] }
    }

    pub fn add(&mut self, other: &Self) {
        add(&mut self.taps, &other.taps);
        add(&mut self.bias, &other.bias);
    }

    /// `[D, 1, W]`.
    pub fn weight(&self) -> Vec<f32> {
        let d_inner = self.bias.len();
        let of = |channel| self.taps[channel..].iter().step_by(d_inner).copied();
        (0..d_inner).flat_map(of).collect()
    }
}

impl<'a> ConvInputs<'a> {
    fn new(ConvArguments { x, weight, bias }: &'a ConvArguments<Flex>, spec: ConvSpec) -> Self {
        let [_, len, d_inner] = x.shape().dims();
        let [_, _, width] = weight.shape().dims();
        let bias = spec.has_bias.then(|| slice(bias));
        let (x, weight) = (slice(x), slice(weight));
        Self { len, d_inner, pitch: d_inner, width, spec, x, weight, bias }
    }

    /// The weight as `[W, D]`, so that a tap is a row.
    pub fn taps(&self) -> Vec<f32> {
        (0..self.width)
            .flat_map(|tap| (0..self.d_inner).map(move |c| self.weight[c * self.width + tap]))
            .collect()
    }

    /// The same with the x of one batch element.
    fn image(self, batch: usize) -> Self {
        let size = self.len * self.pitch;
        Self { x: &self.x[batch * size..(batch + 1) * size], ..self }
    }

    /// `y [L, D]` of one batch element.
    pub fn forward(self, taps: &[f32], y: &mut [f32]) {
        match self.width {
            2 => widest(Forward::<2> { inputs: self, taps, y }),
            3 => widest(Forward::<3> { inputs: self, taps, y }),
            _ => widest(Forward::<MOST_TAPS> { inputs: self, taps, y }),
        }
    }

    /// The gradients of one batch element from `grad_y [L, D]`; that of x goes to
    /// `grad_x [L, D]`.
    pub fn backward(self, taps: &[f32], grad_y: &[f32], grad_x: &mut [f32]) -> ConvSums {
        match self.width {
            2 => widest(Backward::<2> { inputs: self, taps, grad_y, grad_x }),
            3 => widest(Backward::<3> { inputs: self, taps, grad_y, grad_x }),
            _ => widest(Backward::<MOST_TAPS> { inputs: self, taps, grad_y, grad_x }),
        }
    }

    /// How far behind its first token, in a sequence with W − 1 zeros before it, the token is that
    /// `tap` reads.
    #[inline(always)]
    fn reads(&self, tap: usize) -> usize {
        if self.spec.reverse { 2 * (self.width - 1) - tap } else { tap }
    }
}

/// Sixteen channels of a convolution with W taps.
struct Columns<const FMA: bool, const W: usize> {
    bias: Lanes<FMA>,
    gains: [Lanes<FMA>; W],
    /// Which of the padded tokens from the current one on each tap reads.
    reads: [usize; W],
    /// `[W − 1 + L + W − 1]`: x between zeros.
    x: Vec<Lanes<FMA>>,
}

impl<const FMA: bool, const W: usize> Columns<FMA, W> {
    #[inline(always)]
    fn new(inputs: &ConvInputs<'_>) -> Self {
        let mut reads = [0; W];
        for tap in 0..W {
            reads[tap] = inputs.reads(tap);
        }
        let x = vec![Lanes::ZERO; inputs.len + 2 * (W - 1)];
        Self { bias: Lanes::ZERO, gains: [Lanes::ZERO; W], reads, x }
    }

    /// Reads the `width` channels from `at` on.
    #[inline(always)]
    fn load(&mut self, inputs: &ConvInputs<'_>, taps: &[f32], at: usize, width: usize) {
        if let Some(bias) = inputs.bias {
            self.bias = Lanes::load(&bias[at..at + width]);
        }
        for tap in 0..W {
            self.gains[tap] = Lanes::load(&taps[tap * inputs.d_inner + at..][..width]);
        }
        for token in 0..inputs.len {
            self.x[W - 1 + token] = Lanes::load(&inputs.x[token * inputs.pitch + at..][..width]);
        }
    }

    /// `bias + Σ taps·x` of a token.
    #[inline(always)]
    fn linear(&self, token: usize) -> Lanes<FMA> {
        let x = &self.x[token..token + 2 * W - 1];
        let mut sum = self.bias;
        for tap in 0..W {
            sum = self.gains[tap].fma(x[self.reads[tap]], sum);
        }
        sum
    }
}

struct Forward<'a, const W: usize> {
    inputs: ConvInputs<'a>,
    taps: &'a [f32],
    y: &'a mut [f32],
}

impl<const W: usize> Kernel for Forward<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let ConvInputs { len, d_inner, spec, .. } = self.inputs;
        let mut columns = Columns::<FMA, W>::new(&self.inputs);
        for at in (0..d_inner).step_by(LANES) {
            let width = (d_inner - at).min(LANES);
            columns.load(&self.inputs, self.taps, at, width);
            for token in 0..len {
                let y = columns.linear(token);
                let y = if spec.silu { y.silu() } else { y };
                y.store(&mut self.y[token * d_inner + at..][..width]);
            }
        }
    }
}

struct Backward<'a, const W: usize> {
    inputs: ConvInputs<'a>,
    taps: &'a [f32],
    grad_y: &'a [f32],
    grad_x: &'a mut [f32],
}

impl<const W: usize> Kernel for Backward<'_, W> {
    type Output = ConvSums;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> ConvSums {
        let ConvInputs { len, d_inner, spec, .. } = self.inputs;
        let mut out = ConvSums::new(&self.inputs);
        let mut columns = Columns::<FMA, W>::new(&self.inputs);
        // The gradient before silu, between zeros as x is.
        let mut grads = columns.x.clone();
        for at in (0..d_inner).step_by(LANES) {
            let width = (d_inner - at).min(LANES);
            columns.load(&self.inputs, self.taps, at, width);
            let mut sums = [Lanes::<FMA>::ZERO; W];
            let mut bias = Lanes::<FMA>::ZERO;
            for token in 0..len {
                let mut grad = Lanes::load(&self.grad_y[token * d_inner + at..][..width]);
                if spec.silu {
                    grad = grad * columns.linear(token).silu_slope();
                }
                grads[W - 1 + token] = grad;
                bias += grad;
                let x = &columns.x[token..token + 2 * W - 1];
                for tap in 0..W {
                    sums[tap] = grad.fma(x[columns.reads[tap]], sums[tap]);
                }
            }
            // The token that a tap reads is read by it as far on the other side.
            for token in 0..len {
                let grads = &grads[token..token + 2 * W - 1];
                let mut sum = Lanes::<FMA>::ZERO;
                for tap in 0..W {
                    sum = columns.gains[tap].fma(grads[2 * (W - 1) - columns.reads[tap]], sum);
                }
                sum.store(&mut self.grad_x[token * d_inner + at..][..width]);
            }
            bias.store(&mut out.bias[at..at + width]);
            for tap in 0..W {
                sums[tap].store(&mut out.taps[tap * d_inner + at..][..width]);
            }
        }
        out
    }
}
