//! The convolution in tensor operations, in f32: one shifted product per tap.

use burn::tensor::activation::silu;
use burn::tensor::{DType, FloatDType, Tensor};

use super::ConvSpec;

pub(super) fn conv(x: Tensor<3>, weight: Tensor<3>, bias: Tensor<1>, spec: ConvSpec) -> Tensor<3> {
    let [batch, len, d_inner] = x.dims();
    let [_, _, width] = weight.dims();
    let dtype = FloatDType::from(x.dtype());
    let x = x.cast(FloatDType::F32);
    let zeros = Tensor::zeros([batch, width - 1, d_inner], (&x.device(), DType::F32));
    let padded = Tensor::cat(if spec.reverse { vec![x, zeros] } else { vec![zeros, x] }, 1);
    let mut y: Option<Tensor<3>> = None;
    for tap in 0..width {
        let start = if spec.reverse { width - 1 - tap } else { tap };
        let gain = weight.clone().narrow(2, tap, 1).reshape([1, 1, d_inner]);
        let term = padded.clone().narrow(1, start, len) * gain;
        y = Some(match y {
            Some(y) => y + term,
            None => term,
        });
    }
    let y = y.expect("invariant: at least two taps");
    let y = if spec.has_bias { y + bias.unsqueeze() } else { y };
    let y = if spec.silu { silu(y) } else { y };
    y.cast(dtype)
}
