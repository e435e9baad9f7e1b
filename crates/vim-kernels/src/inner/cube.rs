//! The operation on a GPU: which kernels run, on which parts of which buffers.

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::InnerSpec;
use super::autodiff::{INPUTS, InnerKernels, Inputs, Kept, WEIGHTS};
use crate::causal_conv1d::{Taps, convolve_both, retreat_both};
use crate::cube::dense;
use crate::cube::halves::add_halves;
use crate::cube::product::{
    Into, Matrix, activations, multiply, rounded_together, weight_gradient,
};
use crate::cube::small::{pair_weights, rate_gradients};
use crate::precision::Precision;
use crate::selective_scan::{ScanArguments, ScanKernels, scan_gradients};

/// The weights of a direction.
struct Way {
    conv_weight: CubeTensor,
    conv_bias: CubeTensor,
    x_proj: Matrix,
    dt_proj: Matrix,
    delta_bias: CubeTensor,
    a_log: CubeTensor,
    d: CubeTensor,
}

impl Way {
    fn taps(&self) -> Taps {
        [self.conv_weight.clone(), self.conv_bias.clone()]
    }
}

/// Sizes, buffers' shapes and places of a call.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    len: usize,
    d_inner: usize,
    d_state: usize,
    dt_rank: usize,
    spec: InnerSpec,
}

fn unpack(inputs: &Inputs<CubeBackend>, precision: Precision) -> (CubeTensor, [Way; 2]) {
    let weight = |i: usize| Matrix::weight(&inputs[i]);
    let back = 1 + WEIGHTS;
    let [x_ahead, x_back, dt_ahead, dt_back] =
        rounded_together([weight(3), weight(back + 2), weight(4), weight(back + 3)], precision);
    let dense = |i: usize| dense(inputs[i].clone());
    let way = |first: usize, x_proj: Matrix, dt_proj: Matrix| Way {
        conv_weight: dense(first),
        conv_bias: dense(first + 1),
        x_proj,
        dt_proj,
        delta_bias: dense(first + 4),
        a_log: dense(first + 5),
        d: dense(first + 6),
    };
    (dense(0), [way(1, x_ahead, dt_ahead), way(back, x_back, dt_back)])
}

impl Sizes {
    fn new(xz: &CubeTensor, ways: &[Way; 2], spec: InnerSpec) -> Self {
        let [batch, len, width] = xz.shape().dims();
        let [_, d_state] = ways[0].a_log.shape().dims();
        Self { batch, len, d_inner: width / 2, d_state, dt_rank: spec.dt_rank, spec }
    }

    fn tokens(&self) -> usize {
        self.batch * self.len
    }

    /// The step, B and C of a token.
    fn projected(&self) -> usize {
        self.dt_rank + 2 * self.d_state
    }

    /// From a token of them to the next: so that rows begin at 16 bytes.
    fn pitch(&self) -> usize {
        self.projected().next_multiple_of(8)
    }

    /// Of what both directions project to, the columns from `first` on of a direction, `[T, width]`.
    fn columns(&self, of: &CubeTensor, way: usize, first: usize, width: usize) -> Matrix {
        let begin = way * self.tokens() * self.pitch() + first;
        Matrix::within(of, [self.tokens(), width], begin, self.pitch())
    }

    /// A direction's part of `[2·B, L, D]`, `[T, D]`.
    fn way(&self, of: &CubeTensor, way: usize) -> Matrix {
        let begin = way * self.tokens() * self.d_inner;
        Matrix::within(of, [self.tokens(), self.d_inner], begin, self.d_inner)
    }

    /// B (0) or C (1) of both directions, `[2·B, L, 1, N]`.
    fn states(&self, of: &CubeTensor, which: usize) -> CubeTensor {
        let pitch = self.pitch();
        let first = self.dt_rank + which * self.d_state;
        let shape = [2 * self.batch, self.len, 1, self.d_state];
        part(of, first, &shape, &[self.len * pitch, pitch, self.d_state, 1])
    }

    /// The scanned half (0) of `[B, L, 2D]`, or the gate (1), `[B, L, D]`.
    fn half(&self, of: &CubeTensor, which: usize) -> CubeTensor {
        let width = 2 * self.d_inner;
        let shape = [self.batch, self.len, self.d_inner];
        part(of, which * self.d_inner, &shape, &[self.len * width, width, 1])
    }

    fn both(&self) -> [usize; 3] {
        [2 * self.batch, self.len, self.d_inner]
    }

    /// The steps, multiplied out, `[2·B, L, D]`.
    fn delta(&self, projected: &CubeTensor, ways: &[Way; 2]) -> CubeTensor {
        let delta = activations(projected, self.both(), self.spec.precision);
        for (way, weights) in ways.iter().enumerate() {
            multiply(
                &self.columns(projected, way, 0, self.dt_rank),
                &weights.dt_proj,
                None,
                &self.way(&delta, way),
                Into::Place,
                self.spec.precision,
            );
        }
        delta
    }

    fn scan_arguments(
        &self,
        xz: &CubeTensor,
        u: &CubeTensor,
        projected: &CubeTensor,
        ways: &[Way; 2],
    ) -> ScanArguments<CubeBackend> {
        let [ahead, back] = ways;
        let [a, d, delta_bias] = pair_weights(
            [&ahead.a_log, &back.a_log],
            [&ahead.d, &back.d],
            [&ahead.delta_bias, &back.delta_bias],
        );
        ScanArguments {
            u: u.clone(),
            delta: self.delta(projected, ways),
            a,
            b: self.states(projected, 0),
            c: self.states(projected, 1),
            d,
            z: self.half(xz, 1),
            delta_bias,
        }
    }
}

/// A part of a buffer: from element `first` on, with strides of its own.
fn part(of: &CubeTensor, first: usize, shape: &[usize], strides: &[usize]) -> CubeTensor {
    let mut tensor = of.clone();
    tensor.handle = tensor.handle.offset_start((first * of.dtype.size()) as u64);
    tensor.meta = Box::new(Metadata::new(Shape::from(shape.to_vec()), strides.to_vec()));
    tensor
}

impl InnerKernels for CubeBackend {
    fn forward(
        inputs: &Inputs<Self>,
        spec: InnerSpec,
        save: bool,
    ) -> (CubeTensor, Option<Kept<Self>>) {
        let (xz, ways) = unpack(inputs, spec.precision);
        let sizes = Sizes::new(&xz, &ways, spec);
        let u = activations(&xz, sizes.both(), spec.precision);
        convolve_both(&sizes.half(&xz, 0), ways.each_ref().map(Way::taps), spec.reverse, &u);
        let shape = [2, sizes.tokens(), sizes.pitch()];
        let projected = activations(&xz, shape, spec.precision);
        for (way, weights) in ways.iter().enumerate() {
            multiply(
                &sizes.way(&u, way),
                &weights.x_proj,
                None,
                &sizes.columns(&projected, way, 0, sizes.projected()),
                Into::Place,
                spec.precision,
            );
        }
        let arguments = sizes.scan_arguments(&xz, &u, &projected, &ways);
        let keep = save && !spec.recompute;
        let (out, starts) = <Self as ScanKernels>::forward(arguments, spec.scan(), keep);
        (out.y, save.then_some(Kept { u, projected, starts }))
    }

    fn backward(
        grad: CubeTensor,
        inputs: Inputs<Self>,
        kept: Kept<Self>,
        spec: InnerSpec,
    ) -> Inputs<Self> {
        let (xz, ways) = unpack(&inputs, spec.precision);
        let sizes = Sizes::new(&xz, &ways, spec);
        let Kept { u, projected, starts } = kept;
        let arguments = sizes.scan_arguments(&xz, &u, &projected, &ways);
        let a = arguments.a.clone();
        let starts = starts.unwrap_or_else(|| {
            let (_, starts) = <Self as ScanKernels>::forward(arguments.clone(), spec.scan(), true);
            starts.expect("invariant: a forward pass that saves returns what it saved")
        });
        let grad_projected = activations(&xz, [2, sizes.tokens(), sizes.pitch()], spec.precision);
        let into = [sizes.states(&grad_projected, 0), sizes.states(&grad_projected, 1)];
        let [grad_u, grad_delta, grad_a, _, _, grad_d, grad_z, grad_bias] =
            scan_gradients(grad, arguments, starts, spec.scan(), into);
        rate_gradients(&grad_a, &a);
        let grad_xz = activations(&xz, xz.shape(), spec.precision);
        add_halves(&grad_z, &sizes.half(&grad_xz, 1), 2 * sizes.d_inner);
        drop(grad_z);

        let mut projections = Vec::with_capacity(2);
        for (way, own) in ways.iter().enumerate() {
            let (of_delta, of_u) = (sizes.way(&grad_delta, way), sizes.way(&grad_u, way));
            multiply(
                &of_delta,
                &own.dt_proj.turned(),
                None,
                &sizes.columns(&grad_projected, way, 0, sizes.dt_rank),
                Into::Place,
                spec.precision,
            );
            let steps = sizes.columns(&projected, way, 0, sizes.dt_rank);
            let grad_dt_proj = weight_gradient(&steps, &of_delta, spec.precision);
            let of_projected = sizes.columns(&grad_projected, way, 0, sizes.projected());
            let grad_x_proj = weight_gradient(&sizes.way(&u, way), &of_projected, spec.precision);
            multiply(&of_projected, &own.x_proj.turned(), None, &of_u, Into::Sum, spec.precision);
            projections.push([grad_x_proj, grad_dt_proj]);
        }
        let (x, grad_x) = (sizes.half(&xz, 0), sizes.half(&grad_xz, 0));
        let taps = ways.each_ref().map(Way::taps);
        let taps = retreat_both(&grad_u, &x, taps, spec.reverse, &grad_x);
        let mut weights = Vec::with_capacity(INPUTS);
        for (way, (taps, projections)) in taps.into_iter().zip(projections).enumerate() {
            let Sizes { d_inner, d_state, .. } = sizes;
            let channels = |all: &CubeTensor| part(all, way * d_inner, &[d_inner], &[1]);
            let rates = [d_inner, d_state];
            weights.extend(taps);
            weights.extend(projections);
            weights.push(channels(&grad_bias));
            weights.push(part(&grad_a, way * d_inner * d_state, &rates, &[d_state, 1]));
            weights.push(channels(&grad_d));
        }
        let mut weights = weights.into_iter();
        let mut next = || weights.next().expect("invariant: seven weights each way");
        std::array::from_fn(|i| if i == 0 { grad_xz.clone() } else { next() })
    }
}
