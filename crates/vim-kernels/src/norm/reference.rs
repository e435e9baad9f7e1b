//! The addition and the norm in tensor operations, in f32.

use burn::tensor::{FloatDType, Tensor};

pub(super) fn add_rms_norm<const R: usize>(
    x: Tensor<R>,
    residual: Option<Tensor<R>>,
    weight: Tensor<1>,
    epsilon: f64,
) -> (Tensor<R>, Tensor<R>) {
    let dtype = FloatDType::from(x.dtype());
    let x = x.cast(FloatDType::F32);
    let sum = match residual {
        Some(residual) => residual + x,
        None => x,
    };
    let scale = (sum.clone().square().mean_dim(R - 1) + epsilon).sqrt(); // [.., 1]
    let normed = sum.clone() / scale * weight.unsqueeze();
    (normed.cast(dtype), sum)
}
