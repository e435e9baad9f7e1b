//! The operation on a GPU: which kernels run, on which views of which buffers.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::zspace::metadata::Metadata;

use super::{MixerArguments, MixerSpec};
use crate::conv::{Taps, conv_bidirectional, conv_bidirectional_backward};
use crate::cube::halves::add_halves;
use crate::cube::{cubes, dense, empty};
use crate::graph::constant;
use crate::matmul::cube::{Matrix, Output, activations, gather_weights, multiply, weight_gradient};
use crate::op::{Forward, FusedOp, Tensors};
use crate::precision::Precision;
use crate::scan::{ScanArguments, scan_gradients, scan_results};

/// Weights of a direction.
const WEIGHTS: usize = 7;
/// Inputs: `xz`, then conv weight, conv bias, x_proj, dt_proj, delta bias, a_log and d of each
/// direction.
const INPUTS: usize = 1 + 2 * WEIGHTS;
/// Index of a direction's first weight.
const DIRECTIONS: [usize; 2] = [1, 1 + WEIGHTS];

/// Units of a cube.
const UNITS: u32 = 128;

type Inputs = [CubeTensor; INPUTS];

/// What the backward pass needs beside the inputs.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    projected: CubeTensor,
    /// As [`prepared`] returns them.
    weights: [CubeTensor; 4],
    /// Absent if the backward pass recomputes them.
    chunk_states: Option<CubeTensor>,
}

/// The weights of both directions in the form of the kernels, the second direction's after the
/// first's.
struct Weights {
    taps: [Taps; 2],
    /// `[D, R + 2N]` of each.
    x_proj: Matrix,
    /// `[R, D]` of each.
    dt_proj: Matrix,
    /// `[2·D, N]`.
    a: CubeTensor,
    /// `[2·D]`.
    d: CubeTensor,
    /// `[2·D]`.
    delta_bias: CubeTensor,
}

/// `a [2·D, N] = −exp(a_log)`, `d [2·D]` and `bias [2·D]`, the second direction's after the
/// first's; one unit per element of `a_log`.
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
    states: usize,
    channels: usize,
) {
    let at = ABSOLUTE_POS;
    if at < states {
        a[at] = -f32::exp(a_log_ahead[at]);
        a[states + at] = -f32::exp(a_log_back[at]);
    }
    if at < channels {
        d[at] = d_ahead[at];
        d[channels + at] = d_back[at];
        bias[at] = bias_ahead[at];
        bias[channels + at] = bias_back[at];
    }
}

/// Computed from the weights for both passes: the projections in the type of the products, A, the
/// gains and the step biases.
fn prepared(inputs: &Inputs, precision: Precision) -> [CubeTensor; 4] {
    let [fwd, rev] = DIRECTIONS;
    let what = match precision {
        Precision::Bf16 => "weights in bf16",
        Precision::F32 | Precision::Tf32 => "weights in f32",
    };
    let weights = [2, 3, 4, 5, 6].map(|i| [&inputs[fwd + i], &inputs[rev + i]]);
    constant(what, weights.as_flattened(), || prepare(inputs, precision))
}

/// Computes what [`prepared`] returns.
fn prepare(inputs: &Inputs, precision: Precision) -> [CubeTensor; 4] {
    let [fwd, rev] = DIRECTIONS;
    let matrix = |i: usize| Matrix::weight(&inputs[i]);
    let projections = [matrix(fwd + 2), matrix(rev + 2), matrix(fwd + 3), matrix(rev + 3)];
    let own = |i: usize| dense(inputs[i].clone());
    let a_log = [own(fwd + 5), own(rev + 5)];
    let [d_inner, d_state] = a_log[0].shape().dims();
    let client = a_log[0].client.clone();
    let a = empty(&a_log[0], [2 * d_inner, d_state], DType::F32);
    let [d, bias] = [(); 2].map(|()| empty(&a, [2 * d_inner], DType::F32));
    let [a_log_ahead, a_log_back] = a_log;
    // SAFETY: the weights are dense and have the sizes passed, the results twice those; units
    // beyond do nothing.
    unsafe {
        prepare_weights::launch_unchecked(
            &client,
            cubes(&client, (d_inner * d_state).div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            a_log_ahead.into_buffer_arg(),
            a_log_back.into_buffer_arg(),
            own(fwd + 6).into_buffer_arg(),
            own(rev + 6).into_buffer_arg(),
            own(fwd + 4).into_buffer_arg(),
            own(rev + 4).into_buffer_arg(),
            a.clone().into_buffer_arg(),
            d.clone().into_buffer_arg(),
            bias.clone().into_buffer_arg(),
            d_inner * d_state,
            d_inner,
        );
    }
    [gather_weights(&projections, precision), a, d, bias]
}

impl Weights {
    fn new(inputs: &Inputs, [projections, a, d, delta_bias]: [CubeTensor; 4]) -> Self {
        let [fwd, _] = DIRECTIONS;
        let [x_proj, dt_proj] = [fwd + 2, fwd + 3].map(|i| inputs[i].shape().dims::<2>());
        let pair = |size: [usize; 2], begin: usize| {
            Matrix::within(&projections, size, begin, size[1]).pair(size[0] * size[1])
        };
        Self {
            taps: DIRECTIONS.map(|direction| {
                let taps = [direction, direction + 1].map(|i| &inputs[i]);
                constant("taps", &taps, || taps.map(|weight| dense(weight.clone())))
            }),
            x_proj: pair(x_proj, 0),
            dt_proj: pair(dt_proj, 2 * x_proj[0] * x_proj[1]),
            a,
            d,
            delta_bias,
        }
    }
}

/// Sizes of a call, and shapes of its buffers.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    dt_rank: usize,
    spec: MixerSpec,
}

impl Sizes {
    fn new(xz: &CubeTensor, weights: &Weights, spec: MixerSpec) -> Self {
        let [batch, len, width] = xz.shape().dims();
        let [_, d_state] = weights.a.shape().dims();
        Self { batch, len, d_inner: width / 2, d_state, dt_rank: spec.dt_rank, spec }
    }

    fn tokens(&self) -> usize {
        self.batch * self.len
    }

    /// Columns of a token's projection: the step, B and C.
    fn projected(&self) -> usize {
        self.dt_rank + 2 * self.d_state
    }

    /// Row stride of the projections: rows begin at multiples of 16 bytes.
    fn pitch(&self) -> usize {
        self.projected().next_multiple_of(8)
    }

    /// The first columns of each direction's projection, `[T, width]`.
    fn columns(&self, of: &CubeTensor, width: usize) -> Matrix {
        let matrix = Matrix::within(of, [self.tokens(), width], 0, self.pitch());
        matrix.pair(self.tokens() * self.pitch())
    }

    /// Each direction's half of `[2·B, L, D]`, `[T, D]`.
    fn per_direction(&self, of: &CubeTensor) -> Matrix {
        let size = [self.tokens(), self.d_inner];
        Matrix::dense(of, size).pair(size[0] * size[1])
    }

    /// B (0) or C (1) of both directions, `[2·B, L, 1, N]`.
    fn states(&self, of: &CubeTensor, which: usize) -> CubeTensor {
        let pitch = self.pitch();
        let first = self.dt_rank + which * self.d_state;
        let shape = [2 * self.batch, self.len, 1, self.d_state];
        view(of, first, &shape, &[self.len * pitch, pitch, self.d_state, 1])
    }

    /// The scanned half (0) of `[B, L, 2D]`, or the gate (1), `[B, L, D]`.
    fn half(&self, of: &CubeTensor, which: usize) -> CubeTensor {
        let width = 2 * self.d_inner;
        let shape = [self.batch, self.len, self.d_inner];
        view(of, which * self.d_inner, &shape, &[self.len * width, width, 1])
    }

    fn both(&self) -> [usize; 3] {
        [2 * self.batch, self.len, self.d_inner]
    }

    /// The convolutions of both directions, `[2·B, L, D]`: input of the scans.
    fn convolved(&self, xz: &CubeTensor, weights: &Weights) -> CubeTensor {
        let u = activations(xz, self.both(), self.spec.precision);
        conv_bidirectional(&self.half(xz, 0), weights.taps.clone(), self.spec.options.reverse, &u);
        u
    }

    /// The products of both directions.
    fn multiply(&self, lhs: &Matrix, rhs: &Matrix, out: &Matrix, output: Output) {
        multiply(lhs, rhs, None, out, output, self.spec.precision);
    }

    fn scan_arguments(
        &self,
        xz: &CubeTensor,
        u: &CubeTensor,
        projected: &CubeTensor,
        weights: &Weights,
    ) -> ScanArguments<CubeBackend> {
        // The step sizes before bias and softplus.
        let delta = activations(projected, self.both(), self.spec.precision);
        let (steps, out) = (self.columns(projected, self.dt_rank), self.per_direction(&delta));
        self.multiply(&steps, &weights.dt_proj, &out, Output::Overwrite);
        ScanArguments {
            u: u.clone(),
            delta,
            a: weights.a.clone(),
            b: self.states(projected, 0),
            c: self.states(projected, 1),
            d: weights.d.clone(),
            z: self.half(xz, 1),
            delta_bias: weights.delta_bias.clone(),
        }
    }
}

/// A view of a buffer from element `first` on.
fn view(of: &CubeTensor, first: usize, shape: &[usize], strides: &[usize]) -> CubeTensor {
    let mut tensor = of.clone();
    tensor.handle = tensor.handle.offset_start((first * of.dtype.size()) as u64);
    tensor.meta = Box::new(Metadata::new(Shape::from(shape.to_vec()), strides.to_vec()));
    tensor
}

impl FusedOp<CubeBackend, INPUTS, 0> for MixerSpec {
    type Inputs = MixerArguments<CubeBackend>;
    type Saved = (Inputs, Saved);

    fn forward(
        self,
        inputs: MixerArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let inputs = inputs.into_array();
        let xz = dense(inputs[0].clone());
        let prepared = prepared(&inputs, self.precision);
        let weights = Weights::new(&inputs, prepared.clone());
        let sizes = Sizes::new(&xz, &weights, self);
        let u = sizes.convolved(&xz, &weights);
        let shape = [2, sizes.tokens(), sizes.pitch()];
        let projected = activations(&xz, shape, self.precision);
        let out = sizes.columns(&projected, sizes.projected());
        sizes.multiply(&sizes.per_direction(&u), &weights.x_proj, &out, Output::Overwrite);
        let arguments = sizes.scan_arguments(&xz, &u, &projected, &weights);
        let save_states = save && !self.recompute;
        let (y, _, chunk_states) = scan_results(arguments, self.scan(), save_states);
        let saved = Saved { projected, weights: prepared, chunk_states };
        (y, [], save.then_some((inputs, saved)))
    }

    fn backward(
        self,
        grad: CubeTensor,
        (inputs, saved): Self::Saved,
        _wanted: [bool; INPUTS],
    ) -> [Option<CubeTensor>; INPUTS] {
        let xz = dense(inputs[0].clone());
        let Saved { projected, weights, chunk_states } = saved;
        let weights = Weights::new(&inputs, weights);
        let sizes = Sizes::new(&xz, &weights, self);
        let u = sizes.convolved(&xz, &weights);
        let arguments = sizes.scan_arguments(&xz, &u, &projected, &weights);
        let a = arguments.a.clone();
        let chunk_states = chunk_states.unwrap_or_else(|| {
            let (_, _, chunk_states) = scan_results(arguments.clone(), self.scan(), true);
            chunk_states.expect("invariant: a forward pass that saves returns what it saved")
        });
        let grad_projected = activations(&xz, [2, sizes.tokens(), sizes.pitch()], self.precision);
        let into = [sizes.states(&grad_projected, 0), sizes.states(&grad_projected, 1)];
        let [grad_u, grad_delta, grad_a, _, _, grad_d, grad_z, grad_bias] =
            scan_gradients(grad, arguments, chunk_states, self.scan(), into);
        a_log_gradients(&grad_a, &a);
        let grad_xz = activations(&xz, xz.shape(), self.precision);
        add_halves(&grad_z, &sizes.half(&grad_xz, 1), 2 * sizes.d_inner);
        drop(grad_z);

        let (of_delta, of_u) = (sizes.per_direction(&grad_delta), sizes.per_direction(&grad_u));
        let of_steps = sizes.columns(&grad_projected, sizes.dt_rank);
        sizes.multiply(&of_delta, &weights.dt_proj.transposed(), &of_steps, Output::Overwrite);
        let steps = sizes.columns(&projected, sizes.dt_rank);
        let grad_dt_proj = weight_gradient(&steps, &of_delta, self.precision);
        let of_projected = sizes.columns(&grad_projected, sizes.projected());
        let grad_x_proj = weight_gradient(&sizes.per_direction(&u), &of_projected, self.precision);
        sizes.multiply(&of_projected, &weights.x_proj.transposed(), &of_u, Output::Accumulate);
        let (x, grad_x) = (sizes.half(&xz, 0), sizes.half(&grad_xz, 0));
        let taps =
            conv_bidirectional_backward(&grad_u, &x, weights.taps, self.options.reverse, &grad_x);
        let mut weights = Vec::with_capacity(INPUTS);
        for (direction, taps) in taps.into_iter().enumerate() {
            let Sizes { d_inner, d_state, dt_rank, .. } = sizes;
            let channels = |all: &CubeTensor| view(all, direction * d_inner, &[d_inner], &[1]);
            let rows = |all: &CubeTensor, [rows, columns]: [usize; 2]| {
                view(all, direction * rows * columns, &[rows, columns], &[columns, 1])
            };
            weights.extend(taps);
            weights.push(rows(&grad_x_proj, [d_inner, sizes.projected()]));
            weights.push(rows(&grad_dt_proj, [dt_rank, d_inner]));
            weights.push(channels(&grad_bias));
            weights.push(rows(&grad_a, [d_inner, d_state]));
            weights.push(channels(&grad_d));
        }
        let mut weights = weights.into_iter();
        let mut next = || weights.next().expect("invariant: seven weights of each direction");
        std::array::from_fn(|i| Some(if i == 0 { grad_xz.clone() } else { next() }))
    }
}

#[cube(launch_unchecked)]
fn multiply_by(grad: &mut [f32], a: &[f32], count: usize) {
    let at = ABSOLUTE_POS;
    if at < count {
        grad[at] *= a[at];
    }
}

/// Turns the gradient of `a = −exp(a_log)` into that of `a_log`, which is `grad·a`: of both
/// directions, in place.
fn a_log_gradients(grad: &CubeTensor, a: &CubeTensor) {
    let client = grad.client.clone();
    let count = grad.shape().num_elements();
    // SAFETY: both have `count` elements; units beyond do nothing.
    unsafe {
        multiply_by::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            grad.clone().into_buffer_arg(),
            a.clone().into_buffer_arg(),
            count,
        );
    }
}
