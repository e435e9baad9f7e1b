//! The causal convolution on a CPU: rows of channels are vectors, rayon goes over the batch.

use rayon::prelude::*;

use crate::conv::ConvSpec;
use crate::native::lanes::{LANES, Lanes};
use crate::native::{Kernel, widest};

/// The arguments as contiguous slices; shapes as in [`crate::causal_conv1d()`].
#[derive(Clone, Copy)]
pub(crate) struct ConvInputs<'a> {
    pub(crate) len: usize,
    pub(crate) d_inner: usize,
    pub(crate) width: usize,
    pub(crate) spec: ConvSpec,
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
}

/// Gradients, shaped as the inputs; `bias` is `[D]` even where there is none.
pub(crate) struct ConvGrads {
    pub(crate) x: Vec<f32>,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// `y [B, L, D]`.
pub(crate) fn forward(inputs: ConvInputs<'_>) -> Vec<f32> {
    let taps = inputs.taps();
    let mut y = vec![0.0; inputs.x.len()];
    y.par_chunks_mut(inputs.len * inputs.d_inner).enumerate().for_each(|(batch, y)| {
        widest(Forward { inputs, taps: &taps, x: inputs.batch_of(inputs.x, batch), y });
    });
    y
}

/// Gradients of every input from `grad_y [B, L, D]`.
pub(crate) fn backward(inputs: ConvInputs<'_>, grad_y: &[f32]) -> ConvGrads {
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
    ConvGrads { x, weight, bias }
}

impl<'a> ConvInputs<'a> {
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
