//! One direction of the mixer over one image.

use crate::mixer_inner::OfWeights;
use vim_kernels_core::native::product::{Matrix, multiply, multiply_in_blocks};
use vim_kernels_core::native::slices::add;
use vim_kernels_ops::for_mixer::conv::ConvSpec;
use vim_kernels_ops::for_mixer::conv::native::{ConvInputs, ConvSums};
use vim_kernels_scan::for_mixer::ScanSpec;
use vim_kernels_scan::for_mixer::native::{
    ScanForward, ScanGrads, ScanInputs, Sizes, backward, forward,
};

/// Tokens of a product's block: a longer image is divided among threads.
const BLOCK: usize = 256;

/// A direction: its weights as slices, shapes as in
/// [`DirectionWeights`](crate::DirectionWeights).
pub(super) struct Way<'a> {
    /// Of one image.
    pub(super) sizes: Sizes,
    pub(super) dt_rank: usize,
    pub(super) scan: ScanSpec,
    pub(super) conv_weight: &'a [f32],
    /// The same as `[W, D]`.
    pub(super) taps: Vec<f32>,
    pub(super) conv_bias: &'a [f32],
    pub(super) x_proj: &'a [f32],
    pub(super) dt_proj: &'a [f32],
    pub(super) delta_bias: &'a [f32],
    /// `A = −exp(a_log)`.
    pub(super) a: Vec<f32>,
    pub(super) d: &'a [f32],
}

/// An image: `xz [L, 2D]`, and its gate `[L, D]`.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    pub(super) xz: &'a [f32],
    pub(super) z: &'a [f32],
}

/// What a forward pass keeps of an image for the backward pass.
#[derive(Clone, Debug)]
pub(crate) struct SavedImage {
    /// `[L, R + 2N]`: the low-rank step, B and C.
    projected: Vec<f32>,
    /// Empty where they are computed again.
    chunk_states: Vec<f32>,
}

/// Gradients that are sums over the images, shaped as the weights.
pub(super) struct Sums {
    conv: ConvSums,
    x_proj: Vec<f32>,
    dt_proj: Vec<f32>,
    delta_bias: Vec<f32>,
    /// Of A, not of its logarithm.
    a: Vec<f32>,
    d: Vec<f32>,
}

impl Sums {
    pub(super) fn new(way: &Way<'_>, image: Image<'_>) -> Self {
        let zeros = |like: &[f32]| vec![0.0; like.len()];
        Self {
            conv: ConvSums::new(&way.conv(image)),
            x_proj: zeros(way.x_proj),
            dt_proj: zeros(way.dt_proj),
            delta_bias: zeros(way.delta_bias),
            a: zeros(&way.a),
            d: zeros(way.d),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.conv.add(&other.conv);
        add(&mut self.x_proj, &other.x_proj);
        add(&mut self.dt_proj, &other.dt_proj);
        add(&mut self.delta_bias, &other.delta_bias);
        add(&mut self.a, &other.a);
        add(&mut self.d, &other.d);
    }

    /// The gradients of the weights.
    pub(super) fn into_weights(self, way: &Way<'_>) -> OfWeights<Vec<f32>> {
        let Self { conv, x_proj, dt_proj, delta_bias, a, d } = self;
        // a = −exp(a_log), so that ∂a/∂a_log = a.
        let a_log = a.iter().zip(&way.a).map(|(grad, a)| grad * a).collect();
        let (conv_weight, conv_bias) = (conv.weight(), conv.bias);
        OfWeights { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d }
    }
}

/// What the projections of an image drive the scan with.
struct Drive {
    /// `[L, D]`, before bias and softplus.
    delta: Vec<f32>,
    /// `[L, N]`.
    b: Vec<f32>,
    /// `[L, N]`.
    c: Vec<f32>,
}

impl Way<'_> {
    /// `y [L, D]` of an image, and what the backward pass needs, with the states if `save`.
    pub(super) fn forward(&self, image: Image<'_>, save: bool) -> (Vec<f32>, SavedImage) {
        let Sizes { len, d_inner, .. } = self.sizes;
        let u = self.convolved(image);
        let width = self.projected();
        let mut projected = vec![0.0; len * width];
        let x_proj = Matrix::dense(self.x_proj, [d_inner, width]);
        let u_rows = Matrix::dense(&u, [len, d_inner]);
        multiply_in_blocks(BLOCK, u_rows, x_proj, &mut projected, width, false);
        let drive = self.drive(&projected);
        let ScanForward { y, chunk_states, .. } =
            forward(self.scan_inputs(image, &u, &drive), save);
        (y, SavedImage { projected, chunk_states })
    }

    /// The gradients of x and z, each `[L, D]`, and of the weights, from `grad_y [L, D]`; those of
    /// the projections are empty unless `wants_weights`.
    pub(super) fn backward(
        &self,
        image: Image<'_>,
        kept: &SavedImage,
        grad_y: &[f32],
        wants_weights: bool,
    ) -> ([Vec<f32>; 2], Sums) {
        let Sizes { len, d_inner, d_state, .. } = self.sizes;
        let (width, rank) = (self.projected(), self.dt_rank);
        let u = self.convolved(image);
        let drive = self.drive(&kept.projected);
        let inputs = self.scan_inputs(image, &u, &drive);
        let again;
        let chunk_states = if kept.chunk_states.is_empty() {
            again = forward(inputs, true).chunk_states;
            &again
        } else {
            &kept.chunk_states
        };
        let ScanGrads { u: mut grad_u, delta, a, b, c, d, z, delta_bias } =
            backward(inputs, grad_y, chunk_states, [true; 8]);

        let mut grad = vec![0.0; len * width];
        for (token, row) in grad.chunks_exact_mut(width).enumerate() {
            let states = token * d_state..(token + 1) * d_state;
            row[rank..rank + d_state].copy_from_slice(&b[states.clone()]);
            row[rank + d_state..].copy_from_slice(&c[states]);
        }
        let of_delta = Matrix::dense(&delta, [len, d_inner]);
        let dt_proj = Matrix::dense(self.dt_proj, [rank, d_inner]);
        multiply_in_blocks(BLOCK, of_delta, dt_proj.transposed(), &mut grad, width, false);
        let of_weight = |inputs: Matrix<'_>, grads: Matrix<'_>| {
            let ([_, rows], [_, columns]) = (inputs.size(), grads.size());
            let mut of_weight = vec![0.0; if wants_weights { rows * columns } else { 0 }];
            if wants_weights {
                multiply(inputs.transposed(), grads, &mut of_weight, columns, false);
            }
            of_weight
        };
        let steps = Matrix::rows(&kept.projected, [len, rank], width);
        let grad_dt_proj = of_weight(steps, of_delta);

        let of_projected = Matrix::dense(&grad, [len, width]);
        let grad_x_proj = of_weight(Matrix::dense(&u, [len, d_inner]), of_projected);
        let x_proj = Matrix::dense(self.x_proj, [d_inner, width]);
        multiply_in_blocks(BLOCK, of_projected, x_proj.transposed(), &mut grad_u, d_inner, true);

        let mut grad_x = vec![0.0; len * d_inner];
        let conv = self.conv(image).backward(&self.taps, &grad_u, &mut grad_x);
        let sums = Sums { conv, x_proj: grad_x_proj, dt_proj: grad_dt_proj, delta_bias, a, d };
        ([grad_x, z], sums)
    }

    /// Columns of a token's projection: the step, B and C.
    fn projected(&self) -> usize {
        self.dt_rank + 2 * self.sizes.d_state
    }

    pub(super) fn conv<'b>(&'b self, image: Image<'b>) -> ConvInputs<'b> {
        let Sizes { len, d_inner, .. } = self.sizes;
        ConvInputs {
            len,
            d_inner,
            pitch: 2 * d_inner,
            width: self.conv_weight.len() / d_inner,
            spec: ConvSpec { silu: true, reverse: self.scan.options.reverse, has_bias: true },
            x: image.xz,
            weight: self.conv_weight,
            bias: Some(self.conv_bias),
        }
    }

    /// The scan's u, `[L, D]`.
    fn convolved(&self, image: Image<'_>) -> Vec<f32> {
        let mut u = vec![0.0; self.sizes.len * self.sizes.d_inner];
        self.conv(image).forward(&self.taps, &mut u);
        u
    }

    fn drive(&self, projected: &[f32]) -> Drive {
        let Sizes { len, d_inner, d_state, .. } = self.sizes;
        let (width, rank) = (self.projected(), self.dt_rank);
        let mut delta = vec![0.0; len * d_inner];
        let steps = Matrix::rows(projected, [len, rank], width);
        let dt_proj = Matrix::dense(self.dt_proj, [rank, d_inner]);
        multiply_in_blocks(BLOCK, steps, dt_proj, &mut delta, d_inner, false);
        let columns = |first: usize| -> Vec<f32> {
            let mut states = Vec::with_capacity(len * d_state);
            for row in projected.chunks_exact(width) {
                states.extend_from_slice(&row[first..first + d_state]);
            }
            states
        };
        Drive { delta, b: columns(rank), c: columns(rank + d_state) }
    }

    fn scan_inputs<'b>(
        &'b self,
        image: Image<'b>,
        u: &'b [f32],
        drive: &'b Drive,
    ) -> ScanInputs<'b> {
        ScanInputs {
            sizes: self.sizes,
            spec: self.scan,
            u,
            delta: &drive.delta,
            a: &self.a,
            b: &drive.b,
            c: &drive.c,
            d: Some(self.d),
            z: Some(image.z),
            delta_bias: Some(self.delta_bias),
        }
    }
}
