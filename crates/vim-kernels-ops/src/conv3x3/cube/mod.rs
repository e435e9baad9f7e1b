//! The convolution on a GPU: which kernel runs, on which matrices.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

mod convolve;
mod gathered;
mod pixels;
mod table;
#[cfg(all(test, feature = "wgpu"))]
mod tests;
mod weight;

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Conv3x3Arguments, Conv3x3Spec, Images, TAPS};
use crate::matmul::cube::arithmetic::Arithmetic;
use crate::matmul::cube::plan::{DEPTH, ExtentsLaunch, MatmulForm, MatmulPlan};
use crate::matmul::cube::{Matrix, activations, add_parts, column_sums, rounded};
use pixels::ImageSizeLaunch;
use vim_kernels_core::Precision;
use vim_kernels_core::cube::{dense, elem, empty};
use vim_kernels_core::op::{Forward, FusedOp};

impl FusedOp<CubeBackend, 3, 0> for Conv3x3Spec {
    type Inputs = Conv3x3Arguments<CubeBackend>;
    /// x and the weight in the type that is multiplied, and the type of x.
    type Saved = ([CubeTensor; 2], DType);

    fn forward(
        self,
        arguments: Conv3x3Arguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let dtype = arguments.x.dtype;
        let [x, weight, bias] = [arguments.x, arguments.weight, arguments.bias].map(dense);
        let images = Images::new(x.shape().dims());
        let [terms, outputs] = weight.shape().dims();
        let x = self.multiplied(x, [images.pixels(), images.channels]);
        let weight = self.multiplied(weight, [terms, outputs]);
        let y = [images.batch, images.height, images.width, outputs];
        let y = activations(&x, y, self.precision);
        let bias = self.has_bias.then_some(&bias);
        if self.gathers_in_place() {
            convolve(&x, images, &weight, false, bias, &y);
        } else {
            gathered::convolve(&x, images, &weight, bias, &y, self.precision);
        }
        (y, [], save.then_some(([x, weight], dtype)))
    }

    fn backward(
        self,
        grad: CubeTensor,
        ([x, weight], dtype): Self::Saved,
        [wants_x, wants_weight, wants_bias]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let [_, outputs] = weight.shape().dims();
        let [batch, height, width, _] = grad.shape().dims();
        let images = Images::new([batch, height, width, weight.shape().dims::<2>()[0] / TAPS]);
        let rows = [images.pixels(), outputs];
        let grad = self.multiplied(dense(grad), rows);
        let of_grad = Images { channels: outputs, ..images };
        let grad_x = wants_x.then(|| {
            let grad_x = empty(&grad, [batch, height, width, images.channels], dtype);
            if self.gathers_in_place() {
                convolve(&grad, of_grad, &weight, true, None, &grad_x);
            } else {
                let mirrored = gathered::mirrored(&weight, [images.channels, outputs]);
                gathered::convolve(&grad, of_grad, &mirrored, None, &grad_x, self.precision);
            }
            grad_x
        });
        let grad_weight = wants_weight.then(|| {
            if self.gathers_in_place() {
                weight_gradient(&x, images, &grad, outputs)
            } else {
                gathered::weight_gradient(&x, images, &grad, outputs, self.precision)
            }
        });
        let grad_bias =
            (self.has_bias && wants_bias).then(|| column_sums(&Matrix::dense(&grad, rows)));
        [grad_x, grad_weight, grad_bias]
    }
}

impl Conv3x3Spec {
    /// Whether the nine pixels around each are gathered within the product, which only the kernels
    /// of bf16 do.
    fn gathers_in_place(self) -> bool {
        self.precision == Precision::Bf16
    }

    /// A dense tensor in the type that is multiplied.
    fn multiplied(self, tensor: CubeTensor, size: [usize; 2]) -> CubeTensor {
        match self.precision {
            Precision::F32 | Precision::Tf32 => tensor,
            Precision::Bf16 => {
                let meta = tensor.meta.clone();
                CubeTensor { meta, ..rounded(&Matrix::dense(&tensor, size)).buffer }
            }
        }
    }
}

/// What multiplies numbers of this type here: f32 only where there are no tensor cores.
fn arithmetic(dtype: DType) -> Arithmetic {
    if dtype == DType::BF16 { Arithmetic::Bf16 } else { Arithmetic::Units }
}

fn shared_memory(of: &CubeTensor) -> usize {
    of.client.properties().hardware.max_shared_memory_size
}

/// `y = x * weight + bias`, of images with `images.channels` and `weight [9·C, N]`; or, with
/// `mirrored`, the gradient of an input with N channels from that of an output, x, and the weight
/// `[9·N, C]` of that convolution.
fn convolve(
    x: &CubeTensor,
    images: Images,
    weight: &CubeTensor,
    mirrored: bool,
    bias: Option<&CubeTensor>,
    y: &CubeTensor,
) {
    let [.., n] = y.shape().dims::<4>();
    let form = MatmulForm {
        lhs_by_columns: false,
        rhs_by_columns: mirrored,
        arithmetic: arithmetic(x.dtype),
        has_bias: bias.is_some(),
        accumulates: false,
    };
    let plan = table::convolution(form, images.pixels(), n, shared_memory(x));
    launch_convolve(x, images, weight, bias, y, plan);
}

fn launch_convolve(
    x: &CubeTensor,
    images: Images,
    weight: &CubeTensor,
    bias: Option<&CubeTensor>,
    y: &CubeTensor,
    plan: MatmulPlan,
) {
    let (m, k) = (images.pixels(), images.channels);
    let [.., n] = y.shape().dims::<4>();
    let mirrored = plan.form.rhs_by_columns;
    let [rows, columns] = if mirrored { [n, k] } else { [k, n] };
    let lhs_lanes = Matrix::dense(x, [m, k]).load_lanes();
    let rhs_lanes = Matrix::dense(weight, [TAPS * rows, columns]).load_lanes();
    let out_lanes = Matrix::dense(y, [m, n]).load_lanes();
    let extents = ExtentsLaunch::new(
        m as u32,
        n as u32,
        k as u32,
        k as u32,
        1,
        (k / lhs_lanes) as u32,
        (columns / rhs_lanes) as u32,
        (n / out_lanes) as u32,
        0,
        0,
        (rows * columns / rhs_lanes) as u32,
        0,
    );
    let client = x.client.clone();
    let address = [x, weight, y].map(|tensor| tensor.required_address_type());
    let grid = [n.div_ceil(plan.tile[1]), m.div_ceil(plan.tile[0])].map(|count| count as u32);
    // SAFETY: the buffers are dense and have the sizes passed; the kernel checks every pixel and
    // channel against them, and the width of a load divides the channels.
    unsafe {
        convolve::convolve::launch_unchecked(
            &client,
            CubeCount::Static(grid[0], grid[1], 1),
            CubeDim::new_1d(plan.threads() as u32),
            address.into_iter().max().unwrap_or_default(),
            lhs_lanes,
            rhs_lanes,
            out_lanes,
            x.clone().into_buffer_arg(),
            weight.clone().into_buffer_arg(),
            // An absent bias is passed as a buffer that the kernel does not read.
            bias.unwrap_or(y).clone().into_buffer_arg(),
            y.clone().into_buffer_arg(),
            extents,
            ImageSizeLaunch::new(images.height as u32, images.width as u32),
            mirrored,
            plan,
            elem(x),
            elem(y),
        );
    }
}

/// The gradient of the weight, `[9·C, O]`, in f32, from x and the gradient of y with `outputs`
/// channels. The pixels are split into parts, whose number depends on the sizes alone, and the
/// parts are added in order.
fn weight_gradient(
    x: &CubeTensor,
    images: Images,
    grad: &CubeTensor,
    outputs: usize,
) -> CubeTensor {
    let form = MatmulForm {
        lhs_by_columns: true,
        rhs_by_columns: false,
        arithmetic: arithmetic(x.dtype),
        has_bias: false,
        accumulates: false,
    };
    let size = [images.channels, outputs, images.pixels()];
    let (plan, parts) = table::gradient(form, size, shared_memory(x));
    launch_weight_gradient(x, images, grad, outputs, plan, parts)
}

fn launch_weight_gradient(
    x: &CubeTensor,
    images: Images,
    grad: &CubeTensor,
    n: usize,
    plan: MatmulPlan,
    parts: usize,
) -> CubeTensor {
    let (m, k) = (images.channels, images.pixels());
    let part = k.div_ceil(parts).next_multiple_of(DEPTH);
    let parts = k.div_ceil(part);
    let count = TAPS * m * n;
    let out = empty(x, [TAPS * m, n], DType::F32);
    let partial = if parts == 1 { out.clone() } else { empty(x, [parts, count], DType::F32) };
    let lhs_lanes = Matrix::dense(x, [k, m]).load_lanes();
    let rhs_lanes = Matrix::dense(grad, [k, n]).load_lanes();
    let out_lanes = Matrix::dense(&partial, [TAPS * m, n]).load_lanes();
    let extents = ExtentsLaunch::new(
        m as u32,
        n as u32,
        k as u32,
        part as u32,
        parts as u32,
        (m / lhs_lanes) as u32,
        (n / rhs_lanes) as u32,
        (n / out_lanes) as u32,
        (count / out_lanes) as u32,
        0,
        0,
        (m * n / out_lanes) as u32,
    );
    let client = x.client.clone();
    let address = [x, grad, &partial].map(|tensor| tensor.required_address_type());
    let grid = [n.div_ceil(plan.tile[1]), TAPS * m.div_ceil(plan.tile[0]), parts];
    let [across, along, deep] = grid.map(|count| count as u32);
    // SAFETY: as above; `partial` holds the nine matrices of every part.
    unsafe {
        weight::weight_gradient::launch_unchecked(
            &client,
            CubeCount::Static(across, along, deep),
            CubeDim::new_1d(plan.threads() as u32),
            address.into_iter().max().unwrap_or_default(),
            lhs_lanes,
            rhs_lanes,
            out_lanes,
            x.clone().into_buffer_arg(),
            grad.clone().into_buffer_arg(),
            // There is no bias.
            x.clone().into_buffer_arg(),
            partial.clone().into_buffer_arg(),
            extents,
            ImageSizeLaunch::new(images.height as u32, images.width as u32),
            plan,
            elem(x),
            elem(&partial),
        );
    }
    if parts > 1 {
        add_parts(&partial, [1, parts, count], &out);
    }
    out
}
