//! Batch normalization over all shards of a micro-batch.

use burn::module::{Module, Param, RunningState};
use burn::tensor::Tensor;
use vim_kernels::{
    KernelChoice, KernelError, channel_sums, overwrite, scale_shift, supports_multi_tensor,
};
use vim_model::{Rule, Scope};

use crate::error::{DenseError, expect};
use crate::shards::ShardSum;

/// ε, added to the variance.
const EPSILON: f64 = 1e-5;
/// Weight of a batch's statistics in the running ones.
const MOMENTUM: f64 = 0.1;

/// Which statistics a pass normalizes by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Statistics<'a> {
    /// The running ones.
    Running,
    /// Those of the micro-batch, over all shards and ranks. The running ones move towards them.
    Batch(&'a ShardSum),
}

/// Normalizes every channel by mean and variance, `y = (x − mean) / sqrt(var + ε) · weight + bias`.
///
/// In training the statistics are those of the micro-batch over all shards and ranks, in f32 for
/// every precision of the model. Running statistics are no parameters: nothing optimizes them, and
/// checkpoints hold them. The running variance is the unbiased one, of `n` numbers `n/(n − 1)`
/// times that which normalizes, as in PyTorch.
///
/// # Source
///
/// Ioffe and Szegedy 2015; `torch.nn.SyncBatchNorm`.
#[derive(Module, Debug)]
pub struct BatchNorm {
    /// `[C]`, starts at 1.
    pub weight: Param<Tensor<1>>,
    /// `[C]`, starts at 0.
    pub bias: Param<Tensor<1>>,
    /// `[C]`, starts at 0.
    pub running_mean: RunningState<Tensor<1>>,
    /// `[C]`, starts at 1.
    pub running_var: RunningState<Tensor<1>>,
}

/// Whether the array at `path` is a running statistic of a [`BatchNorm`], and no parameter.
#[must_use]
pub fn is_running_statistic(path: &str) -> bool {
    matches!(path.rsplit('.').next(), Some("running_mean" | "running_var"))
}

impl BatchNorm {
    pub(crate) fn init(scope: &Scope<'_>, channels: usize) -> Self {
        let constant = |name, value| scope.param(name, [channels], Rule::Constant(value));
        // Detaching alone would keep that a gradient is required.
        let plain = |name, value| constant(name, value).val().set_require_grad(false);
        let state = |name, value| RunningState::new(plain(name, value));
        Self {
            weight: constant("weight", 1.0),
            bias: constant("bias", 0.0),
            running_mean: state("running_mean", 0.0),
            running_var: state("running_var", 1.0),
        }
    }

    /// Normalizes the images of each shard, and with `relu` takes the larger of that and 0; `layer`
    /// names this one in an error.
    ///
    /// # Shapes
    ///
    /// - `xs` and results: `[B, H, W, C]`, f32 or bf16; statistics are f32 in both
    pub(crate) fn forward(
        models: &[&Self],
        xs: Vec<Tensor<4>>,
        statistics: Statistics<'_>,
        relu: bool,
        layer: &'static str,
    ) -> Result<Vec<Tensor<4>>, DenseError> {
        let Statistics::Batch(sums) = statistics else {
            let normed = models.iter().zip(xs).map(|(model, x)| {
                let [mean, variance] =
                    [&model.running_mean, &model.running_var].map(RunningState::value_sync);
                let scale = model.scale(variance);
                let shift = model.bias.val() - mean * scale.clone();
                Ok(scale_shift(x, scale, shift, relu, KernelChoice::Auto)?)
            });
            return normed.collect();
        };
        let (Some(first), Some(model)) = (xs.first(), models.first()) else { return Ok(xs) };
        let dims = first.dims();
        for x in &xs {
            let got = || format!("{:?} beside {dims:?}", x.dims());
            expect(x.dims() == dims, "a shard", got, || "shards of one size".to_owned())?;
        }
        let [batch, height, width, channels] = dims;
        let numbers = batch * height * width * sums.shards();
        if numbers < 2 {
            return Err(DenseError::OneValue { layer });
        }
        // Over all shards: `which` 0 of the numbers, 1 of their squares.
        let mean = |xs: &[Tensor<4>], which| -> Result<Vec<Tensor<1>>, DenseError> {
            let rows = xs.iter().map(|x| channel_sums(x.clone(), KernelChoice::Auto));
            let rows = rows.map(|sums| Ok(sums?.narrow(0, which, 1)));
            let totals = sums.sum(rows.collect::<Result<_, KernelError>>()?)?.into_iter();
            Ok(totals.map(|total| total.reshape([channels]).div_scalar(numbers as f64)).collect())
        };
        let means = mean(&xs, 0)?;
        let batch_mean = means.first().cloned();
        let one = Tensor::ones([channels], &first.device());
        let centered = xs
            .into_iter()
            .zip(means)
            .map(|(x, mean)| scale_shift(x, one.clone(), -mean, false, KernelChoice::Auto))
            .collect::<Result<Vec<_>, _>>()?;
        // Not the mean square less the squared mean, which cancel where the mean is large.
        let variances = mean(&centered, 1)?;
        if let (Some(mean), Some(variance)) = (batch_mean, variances.first()) {
            let unbiased = numbers as f64 / (numbers - 1) as f64;
            // Replicas share them.
            moved(&model.running_mean, mean.detach())?;
            moved(&model.running_var, variance.clone().detach().mul_scalar(unbiased))?;
        }
        let normed = models.iter().zip(centered).zip(variances).map(|((model, x), variance)| {
            let (scale, shift) = (model.scale(variance), model.bias.val());
            Ok(scale_shift(x, scale, shift, relu, KernelChoice::Auto)?)
        });
        normed.collect()
    }

    /// What a centered number is multiplied by, `[C]`.
    fn scale(&self, variance: Tensor<1>) -> Tensor<1> {
        (variance + EPSILON).sqrt().recip() * self.weight.val()
    }
}

/// Moves a running statistic towards that of a batch. Numbers that are not finite move nothing: a
/// step with such numbers changes no parameter either.
fn moved(state: &RunningState<Tensor<1>>, towards: Tensor<1>) -> Result<(), KernelError> {
    let old = state.value_sync();
    let is_finite = towards.clone().is_finite();
    let new = old.clone().mul_scalar(1.0 - MOMENTUM) + towards.mul_scalar(MOMENTUM);
    let new = old.clone().mask_where(is_finite, new);
    if supports_multi_tensor(&old.device()) {
        // Where it is: a recorded step reads and writes it there.
        return overwrite(&old, new);
    }
    state.update(new);
    // At once: what reads the parameters does not wait for the next update.
    state.value_sync();
    Ok(())
}
