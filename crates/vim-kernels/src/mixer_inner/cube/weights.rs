//! The weights of both directions in the form of the kernels: of one mixer, or, where the weights
//! of a model lie in one buffer as after an optimizer step, of all its mixers in three launches.

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Inputs, view};
use crate::mixer_inner::MixerWeights;
use vim_kernels_core::cube::{cubes, dense, empty};
use vim_kernels_core::{Precision, PreparedByAddress, buffer, constant_by_address};
use vim_kernels_ops::for_mixer::conv::Taps;
use vim_kernels_ops::for_mixer::matmul::{Matrix, ROUNDED, gather_weights, halved, scaled};
use vim_kernels_scan::LEAST_RATE;

/// Units of a cube.
const UNITS: u32 = 128;

/// The projections of both directions in the type of the products, `[2, D, R + 2N]` and
/// `[2, R, D]`, A, the gains and the step biases.
pub(super) type Forms = [CubeTensor; 5];

/// The weights of both directions, the second direction's after the first's.
pub(super) struct Weights {
    pub(super) taps: [Taps; 2],
    /// `[D, R + 2N]` of each.
    pub(super) x_proj: Matrix,
    /// `[R, D]` of each.
    pub(super) dt_proj: Matrix,
    /// `[2·D, N]`.
    pub(super) a: CubeTensor,
    /// `[2·D]`.
    pub(super) d: CubeTensor,
    /// `[2·D]`.
    pub(super) delta_bias: CubeTensor,
}

impl Weights {
    pub(super) fn new(inputs: &Inputs, [x_proj, dt_proj, a, d, delta_bias]: Forms) -> Self {
        let pair = |of: &CubeTensor| {
            let [_, rows, columns] = of.shape().dims();
            let strides = of.meta.strides();
            Matrix::within(of, [rows, columns], 0, strides[1]).pair(strides[0])
        };
        Self {
            taps: inputs.directions.each_ref().map(|of| {
                let taps = [&of.conv_weight, &of.conv_bias];
                constant_by_address("taps", &taps, || taps.map(|weight| dense(weight.clone())))
            }),
            x_proj: pair(&x_proj),
            dt_proj: pair(&dt_proj),
            a,
            d,
            delta_bias,
        }
    }
}

/// The names of [`Forms`] among what is made of weights.
fn name(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => "mixer in bf16",
        Precision::F32 | Precision::Tf32 => "mixer in f32",
    }
}

/// Computed from the weights for both passes.
pub(super) fn forms(inputs: &Inputs, precision: Precision) -> Forms {
    let [fwd, rev] = &inputs.directions;
    let x_proj = [&fwd.x_proj, &rev.x_proj];
    let dt_proj = [&fwd.dt_proj, &rev.dt_proj];
    let delta_bias = [&fwd.delta_bias, &rev.delta_bias];
    let a_log = [&fwd.a_log, &rev.a_log];
    let d = [&fwd.d, &rev.d];
    let weights = [x_proj, dt_proj, delta_bias, a_log, d];
    constant_by_address(name(precision), weights.as_flattened(), || {
        let [of_x, of_dt] = [x_proj, dt_proj].map(|pair| pair.map(Matrix::weight));
        let sizes = [of_x[0].size, of_dt[0].size];
        let [x_fwd, x_rev] = of_x;
        let [dt_fwd, dt_rev] = of_dt;
        let projections = gather_weights(&[x_fwd, x_rev, dt_fwd, dt_rev], precision);
        let pair = |first: usize, [rows, columns]: [usize; 2]| {
            view(&projections, first, &[2, rows, columns], &[rows * columns, columns, 1])
        };
        let [of_x, of_dt] = sizes;
        let dense = |pair: [&CubeTensor; 2]| pair.map(|weight| dense(weight.clone()));
        let [a, d, bias] = scan_weights(dense(a_log), dense(d), dense(delta_bias), [1, 0]);
        [pair(0, of_x), pair(2 * of_x[0] * of_x[1], of_dt), a, d, bias]
    })
}

/// `−exp(a_log)`, finite as the scan reads it: the gradient of `a_log` is that of A times A.
#[cube]
fn rate(a_log: f32) -> f32 {
    let a = -f32::exp(a_log);
    select(a < LEAST_RATE, LEAST_RATE, a)
}

/// `a [layers, 2·D, N] = −exp(a_log)`, `d [layers, 2·D]` and `bias [layers, 2·D]`, the second
/// direction's after the first's; one unit per element of `a_log` of a layer. The weights of the
/// next layer are `stride` elements further on.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "three weights of two directions")]
fn prepare_weights(
    a_log_ahead: &[f32],
    a_log_back: &[f32],
    d_ahead: &[f32],
    d_back: &[f32],
    bias_ahead: &[f32],
    bias_back: &[f32],
    a: &mut [f32],
    d: &mut [f32],
    bias: &mut [f32],
    layers: usize,
    stride: usize,
    states: usize,
    channels: usize,
) {
    let layer = ABSOLUTE_POS / states;
    let i = ABSOLUTE_POS % states;
    if layer < layers {
        let from = layer * stride + i;
        let to = 2 * layer * states + i;
        a[to] = rate(a_log_ahead[from]);
        a[to + states] = rate(a_log_back[from]);
        if i < channels {
            let to = 2 * layer * channels + i;
            d[to] = d_ahead[from];
            d[to + channels] = d_back[from];
            bias[to] = bias_ahead[from];
            bias[to + channels] = bias_back[from];
        }
    }
}

/// A, the gains and the step biases of `layers` mixers, whose weights are `stride` elements apart:
/// of both directions each, dense.
fn scan_weights(
    [a_log_ahead, a_log_back]: [CubeTensor; 2],
    [d_ahead, d_back]: [CubeTensor; 2],
    [bias_ahead, bias_back]: [CubeTensor; 2],
    [layers, stride]: [usize; 2],
) -> [CubeTensor; 3] {
    let [d_inner, d_state] = a_log_ahead.shape().dims();
    let client = a_log_ahead.client.clone();
    let a = empty(&a_log_ahead, [layers * 2 * d_inner, d_state], DType::F32);
    let [d, bias] = [(); 2].map(|()| empty(&a, [layers * 2 * d_inner], DType::F32));
    // SAFETY: the weights are dense and have the sizes passed, those of further layers lie in the
    // same buffers, and the results hold twice those of each; units beyond do nothing.
    unsafe {
        prepare_weights::launch_unchecked(
            &client,
            cubes(&client, (layers * d_inner * d_state).div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            a_log_ahead.into_buffer_arg(),
            a_log_back.into_buffer_arg(),
            d_ahead.into_buffer_arg(),
            d_back.into_buffer_arg(),
            bias_ahead.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            a.clone().into_buffer_arg(),
            d.clone().into_buffer_arg(),
            bias.clone().into_buffer_arg(),
            layers,
            stride,
            d_inner * d_state,
            d_inner,
        );
    }
    [a, d, bias]
}

/// A mixer's weights: in_proj and out_proj, then in the order of [`forms`].
type AllWeights = [CubeTensor; 12];

fn all_weights(weights: MixerWeights) -> AllWeights {
    fn primitive<const R: usize>(tensor: Tensor<R>) -> CubeTensor {
        let plain = if tensor.device().is_autodiff() { tensor.inner() } else { tensor };
        let plain = plain.try_into_primitive::<CubeBackend>();
        plain.expect("invariant: the weights are where kernels in CubeCL run")
    }
    let MixerWeights { in_proj, out_proj, directions: [fwd, rev] } = weights;
    [
        primitive(in_proj),
        primitive(out_proj),
        primitive(fwd.x_proj),
        primitive(rev.x_proj),
        primitive(fwd.dt_proj),
        primitive(rev.dt_proj),
        primitive(fwd.delta_bias),
        primitive(rev.delta_bias),
        primitive(fwd.a_log),
        primitive(rev.a_log),
        primitive(fwd.d),
        primitive(rev.d),
    ]
}

/// The first element of a tensor in its buffer.
fn begin(tensor: &CubeTensor) -> usize {
    tensor.handle.offset_start.unwrap_or(0) as usize / tensor.dtype.size()
}

/// What was made of the weights of `layers` mixers that lie in one buffer, each as far from the one
/// before it.
struct Packed {
    precision: Precision,
    buffer: usize,
    layers: usize,
    /// Elements from a mixer's weights to the next one's.
    stride: usize,
    /// Of the first mixer.
    begins: [usize; 12],
    shapes: [Vec<usize>; 12],
    /// The first of them all, and everything from there on in the type of the products.
    first: usize,
    rounded: CubeTensor,
    /// Half of every out_proj, in the type of the products.
    half: CubeTensor,
    /// Of every mixer, as [`scan_weights`] returns them.
    scan: [CubeTensor; 3],
}

impl Packed {
    /// From the weights of the first two mixers; `None` if they do not lie so.
    fn new([first, second]: [AllWeights; 2], layers: usize, precision: Precision) -> Option<Self> {
        let number = buffer(&first[0]);
        let good = |tensor: &CubeTensor| {
            buffer(tensor) == number && tensor.dtype == DType::F32 && tensor.is_contiguous()
        };
        if !first.iter().chain(&second).all(good) {
            return None;
        }
        let begins = first.each_ref().map(begin);
        let stride = begin(&second[0]).checked_sub(begins[0]).filter(|&stride| stride > 0)?;
        let shape =
            |tensor: &CubeTensor| -> Vec<usize> { tensor.shape().iter().copied().collect() };
        let alike = first.iter().zip(&second).all(|(first, second)| {
            begin(second) == begin(first) + stride && shape(first) == shape(second)
        });
        // A pair is one matrix and, behind it, another like it.
        let follow = (2..begins.len())
            .step_by(2)
            .all(|i| begins[i] < begins[i + 1] && shape(&first[i]) == shape(&first[i + 1]));
        let [d_inner, d_state] = shape(&first[8])[..] else { return None };
        let per_channel = [6, 10].iter().all(|&i| shape(&first[i]) == [d_inner]);
        let follow = follow && per_channel && d_inner * d_state > 0;
        let lowest = (0..begins.len()).min_by_key(|&i| begins[i])?;
        let whole = &first[lowest];
        let ends = first.iter().map(|tensor| begin(tensor) + tensor.shape().num_elements());
        let span = ends.max()? - begins[lowest] + stride * (layers - 1);
        let bytes = whole.handle.size_in_used() as usize;
        if !alike || !follow || span * size_of::<f32>() > bytes {
            return None;
        }
        let dtype = precision.activations();
        let rounded = match precision {
            Precision::Bf16 => scaled(&Matrix::dense(whole, [1, span]), 1.0, dtype).buffer,
            Precision::F32 | Precision::Tf32 => whole.clone(),
        };
        let [rows, columns] = first[1].shape().dims();
        let out_projs = Matrix::within(&first[1], [layers, rows * columns], 0, stride);
        let half = scaled(&out_projs, 0.5, dtype).buffer;
        let pair = |i: usize| [first[i].clone(), first[i + 1].clone()];
        let scan = scan_weights(pair(8), pair(10), pair(6), [layers, stride]);
        let (shapes, first) = (first.each_ref().map(shape), begins[lowest]);
        let buffer = number;
        Some(Self { precision, buffer, layers, stride, begins, shapes, first, rounded, half, scan })
    }

    /// The mixer whose weights, from the `place`-th on, these are.
    fn layer(&self, place: usize, of: &[&CubeTensor]) -> Option<usize> {
        let distance = begin(of[0]).checked_sub(self.begins[place])?;
        let layer = distance / self.stride;
        let is_here = |(i, tensor): (usize, &&CubeTensor)| {
            begin(tensor) == self.begins[place + i] + layer * self.stride
                && tensor.shape().iter().eq(&self.shapes[place + i])
        };
        let found = layer < self.layers && of.iter().enumerate().all(is_here);
        found.then_some(layer)
    }

    /// The rounded weight that `first` is, and others of its shape behind it, `strides` apart.
    fn rounded_at(&self, first: &CubeTensor, shape: &[usize], strides: &[usize]) -> CubeTensor {
        view(&self.rounded, begin(first) - self.first, shape, strides)
    }

    /// See [`constant_by_address`].
    fn find(&self, what: &str, of: &[&CubeTensor]) -> Option<Vec<CubeTensor>> {
        let here = of.iter().all(|tensor| buffer(tensor) == self.buffer && tensor.is_contiguous());
        if !here {
            return None;
        }
        if what == ROUNDED && self.precision == Precision::Bf16 {
            self.layer(0, of).or_else(|| self.layer(1, of))?;
            let [rows, columns] = of[0].shape().dims();
            return Some(vec![self.rounded_at(of[0], &[rows, columns], &[columns, 1])]);
        }
        if what == halved(self.precision) {
            let layer = self.layer(1, of)?;
            let [rows, columns] = of[0].shape().dims();
            let first = layer * rows * columns;
            return Some(vec![view(&self.half, first, &[rows, columns], &[columns, 1])]);
        }
        if what == name(self.precision) {
            let layer = self.layer(2, of)?;
            let pair = |i: usize| {
                let [rows, columns] = of[i].shape().dims();
                let distance = begin(of[i + 1]) - begin(of[i]);
                self.rounded_at(of[i], &[2, rows, columns], &[distance, columns, 1])
            };
            let [d_inner, d_state] = of[6].shape().dims();
            let [a, d, bias] = &self.scan;
            let channels = |all: &CubeTensor| view(all, layer * 2 * d_inner, &[2 * d_inner], &[1]);
            let first = layer * 2 * d_inner * d_state;
            let a = view(a, first, &[2 * d_inner, d_state], &[d_state, 1]);
            return Some(vec![pair(0), pair(2), a, channels(d), channels(bias)]);
        }
        None
    }
}

/// See [`prepare_mixers`](crate::prepare_mixers).
pub(crate) fn prepare_mixers(
    mut mixers: impl ExactSizeIterator<Item = MixerWeights>,
    precision: Precision,
) -> Option<PreparedByAddress> {
    let layers = mixers.len();
    PreparedByAddress::from_source(|| {
        let first = [mixers.next()?, mixers.next()?].map(all_weights);
        let packed = Packed::new(first, layers, precision)?;
        Some(Box::new(move |what, of| packed.find(what, of)))
    })
}

#[cfg(all(test, feature = "wgpu"))]
mod tests;
