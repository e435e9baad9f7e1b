//! The CubeCL kernels of the convolution: launch geometry and launches.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

pub(crate) mod bidirectional;
mod kernel;
mod strips;

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::zeros;
use burn_cubecl::tensor::CubeTensor;
use cubecl::{CubeDim, calculate_cube_count_elemwise};

use super::{BidirectionalConvArguments, ConvArguments, ConvSpec};
use kernel::{COLUMNS, ConvConfig, STRIPS, conv_backward, conv_forward};
use strips::Strips;
use vim_kernels_core::cube::sum::sum_rows;
use vim_kernels_core::cube::{cubes, dense, elem, empty, has_ptx, lanes};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Threads of a forward cube.
pub(super) const FORWARD_CUBE: u32 = 128;
/// Channels of a forward thread.
pub(super) const FORWARD_LANES: usize = 4;
/// Channels of a backward thread, which needs twice the registers for each.
pub(super) const BACKWARD_LANES: usize = 2;
fn config(x: &CubeTensor, weight: &CubeTensor, spec: ConvSpec, accumulates: bool) -> ConvConfig {
    let [_, _, width] = weight.shape().dims();
    ConvConfig { spec, width, accumulates, ptx: has_ptx(x) }
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
        let arguments = arguments.map(dense);
        let y = empty(&arguments.x, arguments.x.shape(), arguments.x.dtype);
        conv_into(arguments, self, &y, 0);
        (y, [], saved)
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        arguments: ConvArguments<CubeBackend>,
        [_, wanted @ ..]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let (grad_y, arguments) = (dense(grad_y), arguments.map(dense));
        let grad_x = empty(&arguments.x, arguments.x.shape(), arguments.x.dtype);
        let [grad_weight, grad_bias] = conv_gradients(&grad_y, 0, arguments, self, &grad_x, wanted);
        [Some(grad_x), grad_weight, grad_bias]
    }
}

/// Both directions write into one tensor: nothing is concatenated.
impl FusedOp<CubeBackend, 5, 0> for ConvSpec {
    type Inputs = BidirectionalConvArguments<CubeBackend>;
    type Saved = BidirectionalConvArguments<CubeBackend>;

    fn forward(
        self,
        arguments: BidirectionalConvArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let saved = save.then(|| arguments.clone());
        let [fwd, rev] = arguments.map(dense).directions();
        let [batch, len, d_inner] = fwd.x.shape().dims();
        let y = empty(&fwd.x, [2 * batch, len, d_inner], fwd.x.dtype);
        conv_into(fwd, self, &y, 0);
        conv_into(rev, self.reversed(), &y, batch * len * d_inner);
        (y, [], saved)
    }

    fn backward(
        self,
        grad_y: CubeTensor,
        arguments: BidirectionalConvArguments<CubeBackend>,
        [_, weight, bias, weight_back, bias_back]: [bool; 5],
    ) -> [Option<CubeTensor>; 5] {
        let (grad_y, [fwd, rev]) = (dense(grad_y), arguments.map(dense).directions());
        let grad_x = empty(&fwd.x, fwd.x.shape(), fwd.x.dtype);
        let half = fwd.x.shape().num_elements();
        let [ahead, back] = [[weight, bias], [weight_back, bias_back]];
        let reversed = self.reversed();
        let [weight_fwd, bias_fwd] = conv_gradients(&grad_y, 0, fwd, self, &grad_x, ahead);
        let [weight_rev, bias_rev] = conv_gradients(&grad_y, half, rev, reversed, &grad_x, back);
        [Some(grad_x), weight_fwd, bias_fwd, weight_rev, bias_rev]
    }
}

/// Writes the convolution of dense arguments into `y`, from element `to` on.
fn conv_into(arguments: ConvArguments<CubeBackend>, spec: ConvSpec, y: &CubeTensor, to: usize) {
    let ConvArguments { x, weight, bias } = arguments;
    let client = x.client.clone();
    let config = config(&x, &weight, spec, false);
    let [_, _, d_inner] = x.shape().dims();
    let lanes = lanes(d_inner, FORWARD_LANES);
    let strips = Strips::new(&x, lanes, 0);
    let dim = CubeDim::new_1d(FORWARD_CUBE);
    let count = calculate_cube_count_elemwise(&client, strips.total * strips.groups, dim);
    let (address, dtype) = (y.required_address_type(), elem(&x));
    // SAFETY: all tensors are contiguous, with the shapes that `causal_conv1d` checked, and `y` has
    // room for `x` from `to` on; a thread stays within a strip, and a strip within the tensor.
    unsafe {
        conv_forward::launch_unchecked(
            &client,
            count,
            dim,
            address,
            lanes,
            x.into_buffer_arg(),
            weight.into_buffer_arg(),
            bias.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            to / lanes,
            strips.launch(),
            config,
            dtype,
        );
    }
}

/// Writes the gradient of `x` into `grad_x`, or adds it if the gradient of y begins at element
/// `from` > 0. Returns the gradients of weight and bias, if one of them is wanted.
fn conv_gradients(
    grad_y: &CubeTensor,
    from: usize,
    arguments: ConvArguments<CubeBackend>,
    spec: ConvSpec,
    grad_x: &CubeTensor,
    wanted: [bool; 2],
) -> [Option<CubeTensor>; 2] {
    let ConvArguments { x, weight, bias } = arguments;
    let client = x.client.clone();
    let config = config(&x, &weight, spec, from > 0);
    let [_, _, d_inner] = x.shape().dims();
    let lanes = lanes(d_inner, BACKWARD_LANES);
    let strips = Strips::new(&x, lanes, config.width - 1);
    let rows = strips.total.div_ceil(STRIPS);
    let taps = d_inner * config.width;
    let partial_len = if spec.has_bias { taps + d_inner } else { taps };

    let [of_weight, of_bias] = [&weight, &bias].map(|of| (of.shape(), of.device.clone()));
    let partials = empty(&x, [rows, partial_len], DType::F32);
    let (address, dtype) = (grad_y.required_address_type(), elem(&x));
    // SAFETY: as in `conv_into`; a cube writes one row of the partial sums.
    unsafe {
        conv_backward::launch_unchecked(
            &client,
            cubes(&client, rows * strips.groups.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, STRIPS as u32),
            address,
            lanes,
            grad_y.clone().into_buffer_arg(),
            x.into_buffer_arg(),
            weight.into_buffer_arg(),
            bias.into_buffer_arg(),
            grad_x.clone().into_buffer_arg(),
            partials.clone().into_buffer_arg(),
            from / lanes,
            strips.launch(),
            partial_len,
            config,
            dtype,
        );
    }
    if !wanted.contains(&true) {
        return [None, None];
    }
    let grad_weight = empty(grad_x, of_weight.0, DType::F32);
    let grad_bias = if spec.has_bias {
        empty(grad_x, of_bias.0, DType::F32)
    } else {
        zeros(of_bias.1, of_bias.0, DType::F32)
    };
    sum_rows(partials, rows, partial_len, taps, &grad_weight, &grad_bias);
    [Some(grad_weight), Some(grad_bias)]
}
