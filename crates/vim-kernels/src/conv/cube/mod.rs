//! The CubeCL kernels of the convolution: launch geometry and launches.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

pub(crate) mod bidirectional;
mod bidirectional_kernel;
mod kernel;

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::zeros;
use burn_cubecl::tensor::CubeTensor;
use cubecl::{CubeDim, calculate_cube_count_elemwise};

use super::autodiff::{BidirectionalConvArguments, ConvArguments};
use super::{BidirectionalConvSpec, ConvSpec};
use crate::cube::sum::sum_rows;
use crate::cube::{cubes, dense, empty, has_ptx, lanes};
use crate::op::{Forward, FusedOp};
use kernel::{COLUMNS, ConvConfig, STEP, STRIPS, StripsLaunch, conv_backward, conv_forward};

/// Threads of a forward cube.
pub(super) const FORWARD_CUBE: u32 = 128;
/// Channels of a forward thread.
pub(super) const FORWARD_LANES: usize = 4;
/// Channels of a backward thread, which needs twice the registers for each.
pub(super) const BACKWARD_LANES: usize = 2;
/// Threads that the strips are cut for: about as many as the largest GPUs run at once. Constant, so
/// that the order of a sum does not depend on the GPU.
const THREADS: usize = 1 << 17;
/// The shortest strip: its first W − 1 tokens are read twice.
const SHORTEST: usize = 8;

/// How `[B, L, D]` is cut into strips.
pub(super) struct StripLayout {
    pub(super) groups: usize,
    pitch: usize,
    len: usize,
    tokens: usize,
    per_sequence: usize,
    pub(super) total: usize,
}

impl StripLayout {
    /// Strips for threads of `lanes` channels that read `beyond` tokens past their strip; a
    /// thread's tokens fill whole steps.
    pub(super) fn new(x: &CubeTensor, lanes: usize, beyond: usize) -> Self {
        let [batch, len, d_inner] = x.shape().dims();
        let groups = d_inner / lanes;
        let wanted = THREADS.div_ceil(batch * groups);
        let steps = (len.div_ceil(wanted).max(SHORTEST) + beyond).div_ceil(STEP);
        let tokens = steps * STEP - beyond;
        let per_sequence = len.div_ceil(tokens);
        let pitch = x.meta.strides()[1] / lanes;
        Self { groups, pitch, len, tokens, per_sequence, total: batch * per_sequence }
    }

    pub(super) fn launch(&self) -> StripsLaunch {
        StripsLaunch::new(
            self.groups,
            self.pitch,
            self.len,
            self.tokens,
            self.per_sequence,
            self.total,
        )
    }
}

fn config(x: &CubeTensor, weight: &CubeTensor, spec: ConvSpec, accumulates: bool) -> ConvConfig {
    let [_, _, width] = weight.shape().dims();
    let ConvSpec { silu, reverse, has_bias } = spec;
    ConvConfig { width, silu, reverse, has_bias, accumulates, ptx: has_ptx(x) }
}

impl FusedOp<CubeBackend, 3, 0> for ConvSpec {
    type Inputs = ConvArguments<CubeBackend>;
    type Saved = ConvArguments<CubeBackend>;

    fn forward(
        self,
        arguments: ConvArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let saved = save.then(|| arguments.clone());
        let ConvArguments { x, weight, bias } = arguments;
        let x = dense(x);
        let y = empty(&x, x.shape(), x.dtype);
        conv_into(&x, [weight, bias], self, &y, 0);
        (y, [], saved)
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        arguments: ConvArguments<CubeBackend>,
        _wanted: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let ConvArguments { x, weight, bias } = arguments;
        let [grad_y, x] = [grad_y, x].map(dense);
        let grad_x = empty(&x, x.shape(), x.dtype);
        let [grad_weight, grad_bias] =
            conv_gradients(&grad_y, 0, &x, [weight, bias], self, &grad_x);
        [grad_x, grad_weight, grad_bias].map(Some)
    }
}

/// Both directions write into one tensor: nothing is concatenated.
impl FusedOp<CubeBackend, 5, 0> for BidirectionalConvSpec {
    type Inputs = BidirectionalConvArguments<CubeBackend>;
    type Saved = BidirectionalConvArguments<CubeBackend>;

    fn forward(
        self,
        arguments: BidirectionalConvArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let saved = save.then(|| arguments.clone());
        let BidirectionalConvArguments { x, weight_fwd, bias_fwd, weight_rev, bias_rev } =
            arguments;
        let x = dense(x);
        let [batch, len, d_inner] = x.shape().dims();
        let y = empty(&x, [2 * batch, len, d_inner], x.dtype);
        let half = x.shape().num_elements();
        conv_into(&x, [weight_fwd, bias_fwd], self.0, &y, 0);
        conv_into(&x, [weight_rev, bias_rev], self.0.reversed(), &y, half);
        (y, [], saved)
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        arguments: BidirectionalConvArguments<CubeBackend>,
        _wanted: [bool; 5],
    ) -> [Option<CubeTensor>; 5] {
        let BidirectionalConvArguments { x, weight_fwd, bias_fwd, weight_rev, bias_rev } =
            arguments;
        let [grad_y, x] = [grad_y, x].map(dense);
        let grad_x = empty(&x, x.shape(), x.dtype);
        let half = x.shape().num_elements();
        let [weight_fwd, bias_fwd] =
            conv_gradients(&grad_y, 0, &x, [weight_fwd, bias_fwd], self.0, &grad_x);
        let rev = self.0.reversed();
        let [weight_rev, bias_rev] =
            conv_gradients(&grad_y, half, &x, [weight_rev, bias_rev], rev, &grad_x);
        [grad_x, weight_fwd, bias_fwd, weight_rev, bias_rev].map(Some)
    }
}

/// Writes the convolution of `x` into `y`, from element `to` on.
fn conv_into(x: &CubeTensor, weights: [CubeTensor; 2], spec: ConvSpec, y: &CubeTensor, to: usize) {
    let [weight, bias] = weights.map(dense);
    let client = x.client.clone();
    let config = config(x, &weight, spec, false);
    let [_, _, d_inner] = x.shape().dims();
    let lanes = lanes(d_inner, FORWARD_LANES);
    let layout = StripLayout::new(x, lanes, 0);
    let dim = CubeDim::new_1d(FORWARD_CUBE);
    let count = calculate_cube_count_elemwise(&client, layout.total * layout.groups, dim);
    let (address, dtype) = (y.required_address_type(), dtype_to_storage_type(x.dtype));
    // SAFETY: all tensors are contiguous, with the shapes that `causal_conv1d` checked, and `y` has
    // room for `x` from `to` on; a thread stays within a strip, and a strip within the tensor.
    unsafe {
        conv_forward::launch_unchecked(
            &client,
            count,
            dim,
            address,
            lanes,
            x.clone().into_buffer_arg(),
            weight.into_buffer_arg(),
            bias.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            to / lanes,
            layout.launch(),
            config,
            dtype,
        );
    }
}

/// Writes the gradient of `x` into `grad_x`, or adds it if the gradient of y begins at element
/// `from` > 0. Returns the gradients of weight and bias.
fn conv_gradients(
    grad_y: &CubeTensor,
    from: usize,
    x: &CubeTensor,
    weights: [CubeTensor; 2],
    spec: ConvSpec,
    grad_x: &CubeTensor,
) -> [CubeTensor; 2] {
    let [weight, bias] = weights.map(dense);
    let client = x.client.clone();
    let config = config(x, &weight, spec, from > 0);
    let [_, _, d_inner] = x.shape().dims();
    let lanes = lanes(d_inner, BACKWARD_LANES);
    let layout = StripLayout::new(x, lanes, config.width - 1);
    let rows = layout.total.div_ceil(STRIPS);
    let taps = d_inner * config.width;
    let partial_len = if spec.has_bias { taps + d_inner } else { taps };

    let grad_weight = empty(&weight, weight.shape(), DType::F32);
    let grad_bias = if spec.has_bias {
        empty(&bias, bias.shape(), DType::F32)
    } else {
        zeros(bias.device.clone(), bias.shape(), DType::F32)
    };
    let partials = empty(x, [rows, partial_len], DType::F32);
    let (address, dtype) = (grad_y.required_address_type(), dtype_to_storage_type(x.dtype));
    // SAFETY: as in `conv_into`; a cube writes one row of the partial sums.
    unsafe {
        conv_backward::launch_unchecked(
            &client,
            cubes(&client, rows * layout.groups.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, STRIPS as u32),
            address,
            lanes,
            grad_y.clone().into_buffer_arg(),
            x.clone().into_buffer_arg(),
            weight.into_buffer_arg(),
            bias.into_buffer_arg(),
            grad_x.clone().into_buffer_arg(),
            partials.clone().into_buffer_arg(),
            from / lanes,
            layout.launch(),
            partial_len,
            config,
            dtype,
        );
    }
    sum_rows(partials, rows, partial_len, taps, &grad_weight, &grad_bias);
    [grad_weight, grad_bias]
}
