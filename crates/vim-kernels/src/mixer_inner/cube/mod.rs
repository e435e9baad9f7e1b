//! The operation on a GPU: which kernels run, on which views of which buffers.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

mod gate;
mod sums;
mod weights;

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::{INPUTS, MixerArguments, MixerSpec, OfInputs, OfWeights, Recompute};
use gate::{gate, gate_backward};
use sums::{WeightParts, add_token_parts};
use vim_kernels_core::cube::dense;
use vim_kernels_core::op::{Forward, FusedOp, Tensors};
use vim_kernels_ops::for_mixer::conv::{
    conv_bidirectional, conv_bidirectional_backward, tap_gradients,
};
use vim_kernels_ops::for_mixer::matmul::{
    Matrix, Output, activations, multiply, weight_gradient_parts,
};
use vim_kernels_scan::for_mixer::{
    ScanArguments, ScanPasses, ScanSpec, Wanted, gated_sum, scan_passes, scan_results,
};
use weights::{Forms, Weights, forms};

pub(super) use weights::prepare_mixers;

type Inputs = OfInputs<CubeTensor>;

/// What the backward pass needs beside the inputs.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    projected: CubeTensor,
    weights: Forms,
    /// u and delta; absent if the backward pass recomputes them.
    scanned: Option<[CubeTensor; 2]>,
    /// Absent if the backward pass recomputes them.
    chunk_states: Option<CubeTensor>,
    /// The result, which what follows keeps as well.
    y: CubeTensor,
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

    /// The scans of both directions, without the gate.
    fn scan(&self) -> ScanSpec {
        ScanSpec { has_z: false, ..self.spec.scan }
    }

    fn both(&self) -> [usize; 3] {
        [2 * self.batch, self.len, self.d_inner]
    }

    /// The convolutions of both directions, `[2·B, L, D]`: input of the scans.
    fn convolved(&self, xz: &CubeTensor, weights: &Weights) -> CubeTensor {
        let u = activations(xz, self.both(), self.spec.precision);
        let reverse = self.spec.scan.options.reverse;
        conv_bidirectional(&self.half(xz, 0), weights.taps.clone(), reverse, &u);
        u
    }

    /// The products of both directions.
    fn multiply(&self, lhs: &Matrix, rhs: &Matrix, out: &Matrix, output: Output) {
        multiply(lhs, rhs, None, out, output, self.spec.precision);
    }

    /// The step sizes before bias and softplus, `[2·B, L, D]`.
    fn steps(&self, projected: &CubeTensor, weights: &Weights) -> CubeTensor {
        let delta = activations(projected, self.both(), self.spec.precision);
        let (steps, out) = (self.columns(projected, self.dt_rank), self.per_direction(&delta));
        self.multiply(&steps, &weights.dt_proj, &out, Output::Overwrite);
        delta
    }

    fn scan_arguments(
        &self,
        xz: &CubeTensor,
        [u, delta]: [CubeTensor; 2],
        projected: &CubeTensor,
        weights: &Weights,
    ) -> ScanArguments<CubeBackend> {
        ScanArguments {
            u,
            delta,
            a: weights.a.clone(),
            b: self.states(projected, 0),
            c: self.states(projected, 1),
            d: weights.d.clone(),
            // Absent: the gate is outside of the scans.
            z: view(xz, 0, &[1; 3], &[1; 3]),
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
        let inputs = OfInputs::from_array(inputs.into_array());
        let xz = dense(inputs.xz.clone());
        let forms = forms(&inputs, self.precision);
        let weights = Weights::new(&inputs, forms.clone());
        let sizes = Sizes::new(&xz, &weights, self);
        let u = sizes.convolved(&xz, &weights);
        let shape = [2, sizes.tokens(), sizes.pitch()];
        let projected = activations(&xz, shape, self.precision);
        let out = sizes.columns(&projected, sizes.projected());
        sizes.multiply(&sizes.per_direction(&u), &weights.x_proj, &out, Output::Overwrite);
        let scanned = [u, sizes.steps(&projected, &weights)];
        let arguments = sizes.scan_arguments(&xz, scanned.clone(), &projected, &weights);
        let chunk_states = save && self.recompute != Recompute::States;
        let wanted = Wanted { chunk_states, ..Wanted::default() };
        let z = sizes.half(&xz, 1);
        let gated = ScanArguments { z: z.clone(), ..arguments.clone() };
        let gated = if save { None } else { gated_sum(&gated, sizes.scan()) };
        let (y, chunk_states) = gated.map_or_else(
            || {
                let (both, _, chunk_states) = scan_results(arguments, sizes.scan(), wanted);
                (gate(&both, &z, 2 * sizes.d_inner), chunk_states)
            },
            |y| (y, None),
        );
        let scanned = (self.recompute == Recompute::Nothing).then_some(scanned);
        let saved = Saved { projected, weights: forms, scanned, chunk_states, y: y.clone() };
        (y, [], save.then_some((inputs, saved)))
    }

    fn backward(
        self,
        grad: CubeTensor,
        (inputs, saved): Self::Saved,
        [_, of_weights @ ..]: [bool; INPUTS],
    ) -> [Option<CubeTensor>; INPUTS] {
        let xz = dense(inputs.xz.clone());
        let Saved { projected, weights, scanned, chunk_states, y } = saved;
        let weights = Weights::new(&inputs, weights);
        let sizes = Sizes::new(&xz, &weights, self);
        let scanned = scanned
            .unwrap_or_else(|| [sizes.convolved(&xz, &weights), sizes.steps(&projected, &weights)]);
        let u = scanned[0].clone();
        let arguments = sizes.scan_arguments(&xz, scanned, &projected, &weights);
        let chunk_states = chunk_states.unwrap_or_else(|| {
            let wanted = Wanted { chunk_states: true, ..Wanted::default() };
            let (_, _, chunk_states) = scan_results(arguments.clone(), sizes.scan(), wanted);
            chunk_states.expect("invariant: a forward pass that saves returns what it saved")
        });
        let grad_projected = activations(&xz, [2, sizes.tokens(), sizes.pitch()], self.precision);
        let into = [sizes.states(&grad_projected, 0), sizes.states(&grad_projected, 1)];
        let grad_xz = activations(&xz, xz.shape(), self.precision);
        let [z, grad_z] = [&xz, &grad_xz].map(|of| sizes.half(of, 1));
        let of_sum = gate_backward(dense(grad), y, &z, &grad_z, 2 * sizes.d_inner);
        let ScanPasses { grad_u, grad_delta, partial, .. } =
            scan_passes(of_sum, arguments, chunk_states, sizes.scan(), into.each_ref(), [true; 8]);
        let [of_b, of_c, of_a, of_d, of_bias] = partial;
        add_token_parts([of_b, of_c], into.each_ref());

        let (of_delta, of_u) = (sizes.per_direction(&grad_delta), sizes.per_direction(&grad_u));
        let of_steps = sizes.columns(&grad_projected, sizes.dt_rank);
        sizes.multiply(&of_delta, &weights.dt_proj.transposed(), &of_steps, Output::Overwrite);
        let of_projected = sizes.columns(&grad_projected, sizes.projected());
        // The gradients of all weights, or of none: one launch adds the parts of all.
        let products = of_weights.contains(&true).then(|| {
            let steps = sizes.columns(&projected, sizes.dt_rank);
            let dt_proj = weight_gradient_parts(&steps, &of_delta, self.precision);
            let u = sizes.per_direction(&u);
            [weight_gradient_parts(&u, &of_projected, self.precision), dt_proj]
        });
        sizes.multiply(&of_projected, &weights.x_proj.transposed(), &of_u, Output::Accumulate);
        let (x, grad_x) = (sizes.half(&xz, 0), sizes.half(&grad_xz, 0));
        let taps = weights.taps;
        let reverse = self.scan.options.reverse;
        let of_taps = conv_bidirectional_backward(&grad_u, &x, taps.clone(), reverse, &grad_x);
        let Some([x_proj, dt_proj]) = products else {
            return OfInputs::xz_alone(grad_xz);
        };
        let Sizes { d_inner, d_state, dt_rank, .. } = sizes;
        let parts = WeightParts { x_proj, dt_proj, taps: of_taps, scan: [of_a, of_d, of_bias] };
        let grads = parts.add(&weights.a, [d_inner, d_state]);
        let of_taps = tap_gradients(&grads.taps, taps.each_ref(), reverse);
        let mut direction = 0;
        let directions = of_taps.map(|[conv_weight, conv_bias]| {
            let channels = |all: &CubeTensor| view(all, direction * d_inner, &[d_inner], &[1]);
            let rows = |all: &CubeTensor, [rows, columns]: [usize; 2]| {
                view(all, direction * rows * columns, &[rows, columns], &[columns, 1])
            };
            let of_direction = OfWeights {
                conv_weight,
                conv_bias,
                x_proj: rows(&grads.x_proj, [d_inner, sizes.projected()]),
                dt_proj: rows(&grads.dt_proj, [dt_rank, d_inner]),
                delta_bias: channels(&grads.delta_bias),
                a_log: rows(&grads.a_log, [d_inner, d_state]),
                d: channels(&grads.d),
            };
            direction += 1;
            of_direction
        });
        OfInputs { xz: grad_xz, directions }.into_array().map(Some)
    }
}
