//! The 3×3 convolution of images that are stored channels last: arguments, checks, reference, and
//! which implementation runs.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
mod native;
pub(crate) mod oracle;

use burn::backend::Dispatch;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::matmul::linear;
use vim_kernels_core::check::{check_dtypes, check_precision, check_rows, expect};
use vim_kernels_core::op::{Single, fused_op, tensors};
use vim_kernels_core::{
    Implementation, KernelChoice, KernelError, Precision, record_run, runs_cubecl,
};

const OPERATION: &str = "conv3x3";
/// Weights of an input and an output channel.
pub(crate) const TAPS: usize = 9;
/// Most elements of the gathered rows that are in memory at once, where rows are gathered: 128 MiB
/// in f32, the least that WebGPU binds.
const GATHERED: usize = 1 << 25;
/// Rows are gathered in multiples of this, so that parts of a buffer begin at aligned addresses.
const ROWS: usize = 64;

/// The checked call. The weight is a matrix, see [`ConvArguments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conv3x3Spec {
    has_bias: bool,
    precision: Precision,
}

tensors! {
    /// The arguments on a backend: `x [B, H, W, C]`, `weight [9·C, O]`, whose row `tap·C + c` has
    /// the weights of channel c of the pixel `(tap/3 − 1, tap%3 − 1)` away, and `bias [O]`.
    Conv3x3Arguments, 3: { x, weight, bias }
}

fused_op! {
    Flex and Cube:
    Conv3x3Backend::conv3x3(Conv3x3Spec, Conv3x3Arguments, 3) -> Single { y }
}

/// Convolves images with 3×3 weights, a zero pixel around each image and no stride.
///
/// `y[i, j, o] = bias[o] + Σ x[i + k − 1, j + l − 1, c]·weight[o, c, k, l]`, differentiable in all
/// three inputs.
///
/// On a GPU in bf16 it is one product on tensor cores whose left matrix, the nine pixels around
/// each, is gathered while it is copied to shared memory; so is the gradient of `x`, a convolution
/// with the same weights mirrored, and that of the weight. In f32, and on a CPU, the nine pixels
/// around each are gathered in memory, a bounded number of rows at a time. No sum has an order that
/// depends on timing.
///
/// # Shapes
///
/// - `x`: `[B, H, W, C]`, f32, or the activations' type of `precision`
/// - `weight`: `[O, C, 3, 3]`, f32, as PyTorch stores it; it is transposed to `[3, 3, C, O]` and
///   rounded once a call, for both passes
/// - `bias`: `[O]`, f32
/// - result: `[B, H, W, O]`, of the activations' type
///
/// # Errors
///
/// [`KernelError::Shape`] names the argument whose shape disagrees, [`KernelError::Dtype`] one of
/// another type; [`KernelError::NoPrecision`] if the device does not multiply in `precision`;
/// [`KernelError::NoKernel`] if `choice` forces a kernel that the device does not have;
/// [`KernelError::TooLarge`] on a GPU.
pub fn conv3x3(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    precision: Precision,
    choice: KernelChoice,
) -> Result<Tensor<4>, KernelError> {
    check(&x, &weight, bias.as_ref(), precision)?;
    let device = x.device();
    let implementation = choice.resolve(&device)?;
    record_run(OPERATION, implementation);
    let [batch, height, width, channels] = x.dims();
    let [outputs, ..] = weight.dims();
    if runs_cubecl(&device) {
        check_rows(OPERATION, batch * height * width, channels.max(outputs))?;
    }
    let weight = weight.permute([2, 3, 1, 0]).reshape([TAPS * channels, outputs]);
    if implementation == Implementation::Reference {
        return reference(x, weight, bias, precision);
    }
    let spec = Conv3x3Spec { has_bias: bias.is_some(), precision };
    // A backend extension has no optional tensors: an absent bias is passed as one zero.
    let bias = bias.unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32)));
    let arguments = Conv3x3Arguments {
        x: x.into_dispatch(),
        weight: weight.into_dispatch(),
        bias: bias.into_dispatch(),
    };
    Ok(Tensor::from_dispatch(Dispatch::conv3x3(arguments, spec).y))
}

fn check(
    x: &Tensor<4>,
    weight: &Tensor<4>,
    bias: Option<&Tensor<1>>,
    precision: Precision,
) -> Result<(), KernelError> {
    precision.check(&x.device())?;
    let weights = [("weight", Some(weight.dtype())), ("bias", bias.map(Tensor::dtype))];
    check_dtypes(OPERATION, &x.device(), &[("x", x.dtype())], &weights)?;
    check_precision(OPERATION, "x", x.dtype(), precision)?;
    let expected = "[B, H, W, C], none of them 0".to_string();
    expect(OPERATION, "x", &x.dims(), !x.dims().contains(&0), expected)?;
    let [outputs, inputs, rows, columns] = weight.dims();
    let channels = x.dims()[3];
    let good = outputs > 0 && inputs == channels && [rows, columns] == [3, 3];
    let expected = format!("[O, C, 3, 3] with C = {channels}");
    expect(OPERATION, "weight", &weight.dims(), good, expected)?;
    let Some(bias) = bias else { return Ok(()) };
    let good = bias.dims() == [outputs];
    expect(OPERATION, "bias", &bias.dims(), good, format!("[O] = [{outputs}]"))
}

/// The convolution in tensor operations: a product of the shifted images for each tap. Rounded to
/// the type of `precision` before and after, and computed in f32.
fn reference(
    x: Tensor<4>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    precision: Precision,
) -> Result<Tensor<4>, KernelError> {
    let [batch, height, width, channels] = x.dims();
    let [_, outputs] = weight.dims();
    let activations = FloatDType::from(precision.activations());
    let round = FloatDType::F32;
    let (x, weight) = (x.cast(activations).cast(round), weight.cast(activations).cast(round));
    let exact = if precision == Precision::Bf16 { Precision::F32 } else { precision };
    let zeros = |shape: [usize; 4]| Tensor::<4>::zeros(shape, (&x.device(), DType::F32));
    let side = zeros([batch, height, 1, channels]);
    let padded = Tensor::cat(vec![side.clone(), x.clone(), side], 2);
    let side = zeros([batch, 1, width + 2, channels]);
    let padded = Tensor::cat(vec![side.clone(), padded, side], 1);
    let mut bias = bias;
    let mut sum: Option<Tensor<3>> = None;
    for tap in 0..TAPS {
        let shifted = padded.clone().narrow(1, tap / 3, height).narrow(2, tap % 3, width);
        let rows = shifted.reshape([batch, height * width, channels]);
        let own = weight.clone().narrow(0, tap * channels, channels);
        let term = linear(rows, own, bias.take(), exact)?;
        sum = Some(match sum {
            Some(sum) => sum + term,
            None => term,
        });
    }
    let sum = sum.expect("invariant: there are nine taps");
    Ok(sum.reshape([batch, height, width, outputs]).cast(activations))
}

/// Rows of nine pixels of `channels` that are gathered at a time.
fn gathered_rows(channels: usize) -> usize {
    (GATHERED / (TAPS * channels) / ROWS).max(1) * ROWS
}

/// Images, by their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    batch: usize,
    height: usize,
    width: usize,
    channels: usize,
}

impl Images {
    fn new([batch, height, width, channels]: [usize; 4]) -> Self {
        Self { batch, height, width, channels }
    }

    fn pixels(&self) -> usize {
        self.batch * self.height * self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_rows_are_bounded() {
        for channels in [1, 3, 192, 768, 1536, 3840] {
            let rows = gathered_rows(channels);
            assert!(rows.is_multiple_of(ROWS) && rows * TAPS * channels <= GATHERED, "{channels}");
        }
        // However wide a row is, some are gathered.
        assert_eq!(gathered_rows(1 << 24), ROWS);
    }
}
