//! Weights of the bicubic filter along one axis.

use std::ops::Range;

/// Fractional bits of a weight.
pub(super) const PRECISION: u32 = 22;
/// Inputs that are summed at once.
pub(super) const GROUP: usize = 4;
/// The kernel's shape: −0.5 is Catmull and Rom's.
const A: f64 = -0.5;
/// The kernel is 0 from this distance on.
const SUPPORT: f64 = 2.0;

/// The inputs and weights that each output in a part of an axis sums.
#[derive(Debug, Default)]
pub(super) struct Axis {
    /// What the weights were computed for: inputs, outputs, and the range of outputs.
    made_for: (usize, usize, Range<usize>),
    /// First input, counted from that of the first output, and number of groups of inputs.
    taps: Vec<(usize, usize)>,
    /// `[outputs, most]` groups, each row filled from its start, and with zeros.
    weights: Vec<[i32; GROUP]>,
    /// Groups of an output, at most.
    most: usize,
    /// First input of any output, and the end of them.
    inputs: Range<usize>,
    /// Weights of one output before they are normalised to a sum of 1.
    raw: Vec<f64>,
}

impl Axis {
    /// Computes the weights from `from` inputs to those of `to` outputs that are in `part`, unless
    /// it has them.
    ///
    /// # Source
    /// `precompute_coeffs` and `normalize_coeffs_8bpc` of Pillow's `Resample.c`, in double
    /// precision: the kernel is stretched when shrinking, cut off at the edges, and weights are
    /// rounded away from zero.
    pub(super) fn prepare(&mut self, from: usize, to: usize, part: Range<usize>) {
        if self.made_for == (from, to, part.clone()) {
            return;
        }
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        let support = SUPPORT * stretch;
        self.most = (2 * support.ceil() as usize + 1).div_ceil(GROUP);
        self.taps.clear();
        self.weights.clear();
        self.weights.resize(part.len() * self.most, [0; GROUP]);
        for (output, weights) in part.clone().zip(self.weights.chunks_exact_mut(self.most)) {
            let center = (output as f64 + 0.5) * scale;
            // The casts truncate; negative numbers become 0.
            let first = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            self.raw.clear();
            self.raw.extend((first..end).map(|input| {
                let distance = input as f64 - center + 0.5;
                cubic(distance * (1.0 / stretch))
            }));
            let sum: f64 = self.raw.iter().sum();
            for (weight, raw) in weights.as_flattened_mut().iter_mut().zip(&self.raw) {
                let scaled = raw / sum * f64::from(1 << PRECISION);
                *weight = (scaled + 0.5_f64.copysign(scaled)) as i32;
            }
            if self.taps.is_empty() {
                self.inputs = first..end;
            }
            self.inputs.end = self.inputs.end.max(end);
            self.taps.push((first - self.inputs.start, (end - first).div_ceil(GROUP)));
        }
        self.made_for = (from, to, part);
    }

    /// The inputs that any of the outputs sums.
    pub(super) fn inputs(&self) -> Range<usize> {
        self.inputs.clone()
    }

    /// First input of an output, counted from the first of all, and the weights from there on;
    /// trailing weights may be zeros past the last input.
    #[inline(always)]
    pub(super) fn taps(&self, output: usize) -> (usize, &[[i32; GROUP]]) {
        let (first, count) = self.taps[output];
        (first, &self.weights[output * self.most..][..count])
    }
}

/// Keys' cubic kernel.
fn cubic(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < SUPPORT {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}
