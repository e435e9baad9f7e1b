//! Layers that the pyramid and the heads share, channels last.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{FloatDType, Tensor};
use vim_kernels::{KernelChoice, KernelError, Precision, conv3x3, layer_norm, linear, read_while};
use vim_model::{Rule, Scope};

use crate::conv::pointwise;

/// ε, added to the variance.
const EPSILON: f64 = 1e-6;

/// Normalizes the channels of each pixel: `y = (x − mean) / sqrt(var + ε) · weight + bias`, with
/// the biased variance, in f32.
///
/// # Source
///
/// Ba et al. 2016; `LayerNorm` of detectron2's `layers/batch_norm.py`.
#[derive(Module, Debug)]
pub struct ChannelNorm {
    /// `[C]`, starts at 1.
    pub weight: Param<Tensor<1>>,
    /// `[C]`, starts at 0.
    pub bias: Param<Tensor<1>>,
}

impl ChannelNorm {
    pub(crate) fn init(scope: &Scope<'_>, channels: usize) -> Self {
        Self {
            weight: scope.param("weight", [channels], Rule::Constant(1.0)),
            bias: scope.param("bias", [channels], Rule::Constant(0.0)),
        }
    }

    /// `[B, H, W, C]`, rounded to `to`; with `relu` the larger of that and 0.
    pub(crate) fn forward(
        &self,
        x: Tensor<4>,
        relu: bool,
        to: FloatDType,
    ) -> Result<Tensor<4>, KernelError> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        layer_norm(x, weight, bias, EPSILON, relu, to, KernelChoice::Auto)
    }
}

/// A convolution without bias and a normalization.
#[derive(Module, Debug)]
pub struct NormedConv {
    /// `[N, K, 1, 1]` or `[N, K, 3, 3]`.
    pub weight: Param<Tensor<4>>,
    /// Of its outputs.
    pub norm: ChannelNorm,
}

impl NormedConv {
    /// `side` is 1 or 3.
    pub(crate) fn init(
        scope: &Scope<'_>,
        [inputs, outputs]: [usize; 2],
        side: usize,
        rule: Rule,
    ) -> Self {
        Self {
            weight: scope.param("weight", [outputs, inputs, side, side], rule),
            norm: ChannelNorm::init(&scope.child("norm"), outputs),
        }
    }

    /// `[B, H, W, K]` to `[B, H, W, N]`, rounded to `to`; with `relu` the larger of that and 0.
    pub(crate) fn forward(
        &self,
        x: Tensor<4>,
        precision: Precision,
        relu: bool,
        to: FloatDType,
    ) -> Result<Tensor<4>, KernelError> {
        self.norm.forward(convolved(x, self.weight.val(), None, precision)?, relu, to)
    }
}

/// A convolution with a bias.
#[derive(Module, Debug)]
pub struct BiasedConv {
    /// `[N, K, 1, 1]` or `[N, K, 3, 3]`.
    pub weight: Param<Tensor<4>>,
    /// `[N]`, starts at 0.
    pub bias: Param<Tensor<1>>,
}

impl BiasedConv {
    /// `side` is 1 or 3; weights are normal with the deviation `std`.
    pub(crate) fn init(
        scope: &Scope<'_>,
        [inputs, outputs]: [usize; 2],
        side: usize,
        std: f64,
    ) -> Self {
        Self {
            weight: scope.param("weight", [outputs, inputs, side, side], normal(std)),
            bias: scope.param("bias", [outputs], Rule::Constant(0.0)),
        }
    }

    /// `[B, H, W, K]` to `[B, H, W, N]`, of the activations' type of `precision`.
    pub(crate) fn forward(
        &self,
        x: Tensor<4>,
        precision: Precision,
    ) -> Result<Tensor<4>, KernelError> {
        convolved(x, self.weight.val(), Some(self.bias.val()), precision)
    }
}

fn convolved(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    precision: Precision,
) -> Result<Tensor<4>, KernelError> {
    let x = x.cast(precision.activations());
    match weight.dims() {
        [_, _, 1, 1] => pointwise(x, weight, bias, precision),
        _ => conv3x3(x, weight, bias, precision, KernelChoice::Auto),
    }
}

/// The numbers of `x` on the host, which waits for them.
pub(crate) fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    let ([numbers], ()) = read_while([x], || ());
    numbers
}

/// Normal with the deviation `std`, uncut.
pub(crate) fn normal(std: f64) -> Rule {
    Rule::Normal { std, cut: f64::INFINITY }
}

/// A linear layer whose bias starts at 0.
pub(crate) fn linear_layer(scope: &Scope<'_>, shape: [usize; 2], weight: Rule) -> Linear {
    Linear {
        weight: scope.param("weight", shape, weight),
        bias: Some(scope.param("bias", [shape[1]], Rule::Constant(0.0))),
    }
}

/// `[R, K]` to `[R, N]` by `layer`, f32.
pub(crate) fn linear_of(
    layer: &Linear,
    x: Tensor<2>,
    precision: Precision,
) -> Result<Tensor<2>, KernelError> {
    let bias = layer.bias.as_ref().map(Param::val);
    let x = x.cast(precision.activations()).unsqueeze();
    Ok(linear(x, layer.weight.val(), bias, precision)?.squeeze_dim::<2>(0).cast(FloatDType::F32))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    #[test]
    fn channels_are_normalized_pixel_by_pixel() {
        let device = Device::flex();
        let norm = ChannelNorm::init(&Scope::root(&device, 0), 3);
        let x = TensorData::new(vec![1.0_f32, 2.0, 6.0, 4.0, 4.0, 4.0], [1, 1, 2, 3]);
        let y = norm.forward(Tensor::from_data(x, &device), false, FloatDType::F32).unwrap();
        let y: Vec<f32> = y.into_data().iter().collect();
        // Deviations −2, −1, 3 of 3; variance 14/3.
        let expected = [-2.0, -1.0, 3.0].map(|of: f64| of / (14.0 / 3.0 + EPSILON).sqrt());
        for (got, want) in y.iter().zip(expected.into_iter().chain([0.0; 3])) {
            assert!((f64::from(*got) - want).abs() < 1e-6, "{y:?}");
        }
    }
}
