//! Convolutions of the heads and the pyramid, channels last, as explicit products; and how a pass
//! computes them.

use burn::module::{Module, Param};
use burn::tensor::{FloatDType, Tensor};
use vim_kernels::{KernelChoice, KernelError, Precision, conv3x3, linear};
use vim_model::{Rule, Scope};

use crate::batch_norm::{BatchNorm, Statistics};
use crate::error::DenseError;

/// Statistics and precision of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) statistics: Statistics<'a>,
    pub(crate) precision: Precision,
}

impl Pass<'_> {
    /// [`ConvModule::forward`].
    pub(crate) fn conv(
        self,
        models: &[&ConvModule],
        xs: Vec<Tensor<4>>,
        layer: &'static str,
    ) -> Result<Vec<Tensor<4>>, DenseError> {
        ConvModule::forward(models, xs, self.statistics, self.precision, layer)
    }
}

/// A convolution without bias, `[B, H, W, K]` to `[B, H, W, N]`, that keeps the image's size.
#[derive(Module, Debug)]
pub struct Conv {
    /// `[N, K, 1, 1]` or `[N, K, 3, 3]`.
    pub weight: Param<Tensor<4>>,
}

impl Conv {
    /// `side` is 1 or 3.
    fn init(scope: &Scope<'_>, [inputs, outputs]: [usize; 2], side: usize) -> Self {
        let rule = kaiming(outputs * side * side);
        Self { weight: scope.param("weight", [outputs, inputs, side, side], rule) }
    }

    fn forward(&self, x: Tensor<4>, precision: Precision) -> Result<Tensor<4>, KernelError> {
        let weight = self.weight.val();
        let x = x.cast(precision.activations());
        match weight.dims() {
            [_, _, 1, 1] => pointwise(x, weight, None, precision),
            _ => conv3x3(x, weight, None, precision, KernelChoice::Auto),
        }
    }
}

/// Of a layer before a ReLU, each of whose inputs `outputs` numbers see.
///
/// # Source
///
/// He et al. 2015.
pub(crate) fn kaiming(outputs: usize) -> Rule {
    Rule::Normal { std: (2.0 / outputs as f64).sqrt(), cut: f64::INFINITY }
}

/// A convolution by one tap: a linear map of every pixel. `weight` is `[N, K, 1, 1]`.
pub(crate) fn pointwise(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    precision: Precision,
) -> Result<Tensor<4>, KernelError> {
    let [batch, height, width, inputs] = x.dims();
    let [outputs, ..] = weight.dims();
    let weight = weight.reshape([outputs, inputs]).transpose();
    let y = linear(x.reshape([batch, height * width, inputs]), weight, bias, precision)?;
    Ok(y.reshape([batch, height, width, outputs]))
}

/// Convolution, batch normalization, ReLU.
///
/// # Source
///
/// `ConvModule` of mmcv 1.7, with its initial values.
#[derive(Module, Debug)]
pub struct ConvModule {
    /// The convolution.
    pub conv: Conv,
    /// Of its outputs.
    pub bn: BatchNorm,
}

impl ConvModule {
    /// `side` of the convolution is 1 or 3.
    pub(crate) fn init(scope: &Scope<'_>, channels: [usize; 2], side: usize) -> Self {
        Self {
            conv: Conv::init(&scope.child("conv"), channels, side),
            bn: BatchNorm::init(&scope.child("bn"), channels[1]),
        }
    }

    /// The images of each shard, `[B, H, W, K]` to `[B, H, W, N]` in the type of activations;
    /// `layer` names this one in an error.
    pub(crate) fn forward(
        models: &[&Self],
        xs: Vec<Tensor<4>>,
        statistics: Statistics<'_>,
        precision: Precision,
        layer: &'static str,
    ) -> Result<Vec<Tensor<4>>, DenseError> {
        let xs = models.iter().zip(xs).map(|(model, x)| model.conv.forward(x, precision));
        let xs = xs.collect::<Result<_, _>>()?;
        let norms: Vec<_> = models.iter().map(|model| &model.bn).collect();
        BatchNorm::forward(&norms, xs, statistics, true, layer)
    }
}

/// The last layer of a head: logits of every pixel. Always in f32.
#[derive(Module, Debug)]
pub struct Classify {
    /// `[K, C, 1, 1]`.
    pub weight: Param<Tensor<4>>,
    /// `[K]`.
    pub bias: Param<Tensor<1>>,
}

impl Classify {
    /// PyTorch's default values, which the original's training script leaves in place.
    pub(crate) fn init(scope: &Scope<'_>, inputs: usize, classes: usize) -> Self {
        let rule = Rule::fan_in(inputs);
        Self {
            weight: scope.param("weight", [classes, inputs, 1, 1], rule),
            bias: scope.param("bias", [classes], rule),
        }
    }

    /// `[B, H, W, C]` to `[B, H, W, K]`.
    pub(crate) fn forward(&self, x: Tensor<4>) -> Result<Tensor<4>, KernelError> {
        let x = x.cast(FloatDType::F32);
        pointwise(x, self.weight.val(), Some(self.bias.val()), Precision::F32)
    }
}

/// A transposed convolution by 2×2 taps with stride 2: each pixel becomes four.
#[derive(Module, Debug)]
pub struct Upsample {
    /// `[K, N, 2, 2]`.
    pub weight: Param<Tensor<4>>,
    /// `[N]`.
    pub bias: Param<Tensor<1>>,
}

impl Upsample {
    /// PyTorch's default values.
    pub(crate) fn init(scope: &Scope<'_>, channels: [usize; 2]) -> Self {
        // PyTorch takes the second dimension for the inputs.
        let rule = Rule::fan_in(4 * channels[1]);
        Self::init_by(scope, channels, rule, rule)
    }

    pub(crate) fn init_by(
        scope: &Scope<'_>,
        [inputs, outputs]: [usize; 2],
        weight: Rule,
        bias: Rule,
    ) -> Self {
        Self {
            weight: scope.param("weight", [inputs, outputs, 2, 2], weight),
            bias: scope.param("bias", [outputs], bias),
        }
    }

    /// `[B, H, W, K]` to `[B, 2·H, 2·W, N]`, f32. No two pixels meet in a result, so that it is one
    /// product, and its numbers put in place.
    pub(crate) fn forward(
        &self,
        x: Tensor<4>,
        precision: Precision,
    ) -> Result<Tensor<4>, KernelError> {
        let weight = self.weight.val();
        let ([batch, height, width, inputs], [_, outputs, ..]) = (x.dims(), weight.dims());
        let weight = weight.permute([0, 2, 3, 1]).reshape([inputs, 4 * outputs]);
        let bias = self.bias.val().reshape([1, outputs]).repeat_dim(0, 4).reshape([4 * outputs]);
        let x = x.cast(precision.activations()).reshape([batch, height * width, inputs]);
        let y = linear(x, weight, Some(bias), precision)?.cast(FloatDType::F32);
        let y = y.reshape([batch, height, width, 2, 2, outputs]).permute([0, 1, 3, 2, 4, 5]);
        Ok(y.reshape([batch, 2 * height, 2 * width, outputs]))
    }
}
