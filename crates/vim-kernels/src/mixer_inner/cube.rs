//! The operation on a GPU: which kernels run, on which views of which buffers.

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::gate::{gate, ungate};
use super::weights::{INPUTS, Inputs, Weights, a_log_gradients, prepared};
use super::{MixerArguments, MixerSpec};
use crate::conv::{conv_bidirectional, conv_bidirectional_backward};
use crate::cube::dense;
use crate::matmul::cube::{Matrix, Output, activations, multiply, weight_gradient};
use crate::op::{Forward, FusedOp, Tensors};
use crate::scan::{ScanArguments, scan_gradients, scan_results};

/// What the backward pass needs beside the inputs.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    projected: CubeTensor,
    /// The sum of both directions, before the gate.
    sum: CubeTensor,
    /// out_proj, in the type of the products.
    out_proj: CubeTensor,
    /// As [`prepared`] returns them.
    weights: [CubeTensor; 4],
    /// Absent if the backward pass recomputes them.
    chunk_states: Option<CubeTensor>,
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

    /// The sum of both directions, gated or not.
    fn inner(&self) -> [usize; 3] {
        [self.batch, self.len, self.d_inner]
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
        let precision = self.spec.precision;
        let delta = activations(projected, self.both(), precision);
        let (steps, out) = (self.columns(projected, self.dt_rank), self.per_direction(&delta));
        if self.spec.scan().steps_given {
            let bias = Some(&weights.delta_bias);
            multiply(&steps, &weights.dt_proj, bias, &out, Output::Softplus, precision);
        } else {
            // The step sizes before bias and softplus.
            self.multiply(&steps, &weights.dt_proj, &out, Output::Overwrite);
        }
        ScanArguments {
            u: u.clone(),
            delta,
            a: weights.a.clone(),
            b: self.states(projected, 0),
            c: self.states(projected, 1),
            d: weights.d.clone(),
            // Absent.
            z: view(xz, 0, &[1, 1, 1], &[1, 1, 1]),
            delta_bias: weights.delta_bias.clone(),
        }
    }
}

/// A view of a buffer from element `first` on.
pub(super) fn view(
    of: &CubeTensor,
    first: usize,
    shape: &[usize],
    strides: &[usize],
) -> CubeTensor {
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
        let (ways, _, chunk_states) = scan_results(arguments, self.scan(), save_states);
        let inner = || activations(&xz, sizes.inner(), self.precision);
        let (gated, sum) = (inner(), save.then(inner));
        gate(&ways, &sizes.half(&xz, 1), sum.as_ref(), &gated);
        drop(ways);
        let out_proj = Matrix::rounded_weight(&inputs[1], self.precision);
        let [_, d_model] = out_proj.shape().dims();
        let y = activations(&xz, [sizes.batch, sizes.len, d_model], self.precision);
        multiply(
            &Matrix::dense(&gated, [sizes.tokens(), sizes.d_inner]),
            &Matrix::weight(&out_proj),
            None,
            &Matrix::dense(&y, [sizes.tokens(), d_model]),
            Output::Overwrite,
            self.precision,
        );
        let saved = sum.map(|sum| {
            (inputs, Saved { projected, sum, out_proj, weights: prepared, chunk_states })
        });
        (y, [], saved)
    }

    fn backward(
        self,
        grad: CubeTensor,
        (inputs, saved): Self::Saved,
        _wanted: [bool; INPUTS],
    ) -> [Option<CubeTensor>; INPUTS] {
        let xz = dense(inputs[0].clone());
        let Saved { projected, sum, out_proj, weights, chunk_states } = saved;
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
        let grad_xz = activations(&xz, xz.shape(), self.precision);
        let (grad_sum, grad_out_proj) =
            self.through_gate(grad, &xz, &grad_xz, &sum, &out_proj, sizes);
        drop(sum);
        let [grad_u, grad_delta, grad_a, _, _, grad_d, _, grad_bias] =
            scan_gradients(grad_sum, arguments, chunk_states, self.scan(), into);
        a_log_gradients(&grad_a, &a);

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
        std::array::from_fn(|i| {
            Some(match i {
                0 => grad_xz.clone(),
                1 => grad_out_proj.clone(),
                _ => next(),
            })
        })
    }
}

impl MixerSpec {
    /// The gradients of the sum of both directions and of out_proj; writes that of the gate into
    /// its half of `grad_xz`.
    fn through_gate(
        self,
        grad: CubeTensor,
        xz: &CubeTensor,
        grad_xz: &CubeTensor,
        sum: &CubeTensor,
        out_proj: &CubeTensor,
        sizes: Sizes,
    ) -> (CubeTensor, CubeTensor) {
        let grad = dense(grad);
        let [.., d_model] = grad.shape().dims::<3>();
        let rows = Matrix::dense(&grad, [sizes.tokens(), d_model]);
        let [grad_sum, gated] = [(); 2].map(|()| activations(xz, sizes.inner(), self.precision));
        let inner = |of: &CubeTensor| Matrix::dense(of, [sizes.tokens(), sizes.d_inner]);
        let back = Matrix::weight(out_proj).transposed();
        let out = inner(&grad_sum);
        multiply(&rows, &back, None, &out, Output::Overwrite, self.precision);
        ungate(&grad_sum, sum, &sizes.half(xz, 1), &sizes.half(grad_xz, 1), &gated);
        (grad_sum, weight_gradient(&inner(&gated), &rows, self.precision))
    }
}
