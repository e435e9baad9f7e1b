//! The losses of a micro-batch, its shards in lock-step.

use burn::tensor::{Int, Tensor};
use vim_kernels::KernelError;
use vim_model::Draw;

use crate::error::{DenseError, expect};
use crate::heads::{FcnHead, UperHead};
use crate::loss::{PixelLoss, pixel_loss};
use crate::pyramid::Pyramid;
use crate::segmenter::Segmenter;
use crate::shards::ShardSum;

/// A shard's images and labels, or those of its part in a micro-batch.
#[derive(Clone, Debug)]
pub struct Shard {
    /// `[B, 3, H, W]`, of the model's size, normalized.
    pub images: Tensor<4>,
    /// `[B, H, W]`; see [`pixel_loss`].
    pub labels: Tensor<3, Int>,
    /// Place in the whole batch of the first image.
    pub first: usize,
}

/// The losses of a shard.
#[derive(Clone, Debug)]
pub struct SegmentationLoss {
    /// The decode head's, and the auxiliary head's times its weight: `[1]`, differentiable.
    pub loss: Tensor<1>,
    /// Of the decode head.
    pub decode: PixelLoss,
    /// Of the auxiliary head, times its weight.
    pub aux: PixelLoss,
}

/// The logits of both heads in training.
#[derive(Clone, Debug)]
pub struct HeadLogits {
    /// Of the decode head, `[B, h, w, K]` at stride 4.
    pub decode: Tensor<4>,
    /// Of the auxiliary head, `[B, h, w, K]` at stride 16.
    pub aux: Tensor<4>,
}

impl HeadLogits {
    /// The losses of these logits; `aux_weight` is that of the auxiliary head.
    ///
    /// # Errors
    ///
    /// As [`pixel_loss`].
    pub fn losses(
        self,
        labels: &Tensor<3, Int>,
        aux_weight: f64,
    ) -> Result<SegmentationLoss, KernelError> {
        let decode = pixel_loss(self.decode, labels)?;
        let aux = pixel_loss(self.aux, labels)?;
        let aux = PixelLoss { loss: aux.loss.mul_scalar(aux_weight), ..aux };
        Ok(SegmentationLoss { loss: decode.loss.clone() + aux.loss.clone(), decode, aux })
    }
}

/// The losses of the shards of a micro-batch, each by a model of its own.
///
/// `models` has one for each shard: for one shard the model itself, for several
/// [`replicas`](crate::replicas), so that a backward pass of the sum of all losses gives the
/// gradients of each shard. Statistics of batch normalization are those of all shards of `sums`;
/// running statistics move once, for every replica. Shards are of one size.
///
/// Random draws for an image depend on `seed` and its place in the whole batch alone.
///
/// # Errors
///
/// [`DenseError::OneValue`] if a batch normalization sees one number for each channel,
/// [`DenseError::Comm`] if the ranks cannot add up, and [`DenseError::Argument`] if there are other
/// shards than models, or images than labels.
pub fn losses(
    models: &[Segmenter],
    shards: Vec<Shard>,
    seed: u64,
    sums: &ShardSum,
) -> Result<Vec<SegmentationLoss>, DenseError> {
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for Shard { images: own, labels: of, first } in shards {
        let ([batch, _, height, width], dims) = (own.dims(), of.dims());
        let expected = || format!("[{batch}, {height}, {width}], as the images");
        expect(dims == [batch, height, width], "labels", || format!("{dims:?}"), expected)?;
        images.push((own, first));
        labels.push(of);
    }
    let logits = training_logits(models, images, seed, sums)?;
    let shards = models.iter().zip(logits).zip(labels);
    let losses = shards
        .map(|((model, logits), labels)| Ok(logits.losses(&labels, model.config().aux_weight)?));
    losses.collect()
}

/// The logits of the shards of a micro-batch, as [`losses`] takes them: of each its images,
/// `[B, 3, H, W]`, and the place in the whole batch of the first.
///
/// # Errors
///
/// As [`losses`].
pub fn training_logits(
    models: &[Segmenter],
    shards: Vec<(Tensor<4>, usize)>,
    seed: u64,
    sums: &ShardSum,
) -> Result<Vec<HeadLogits>, DenseError> {
    let Some(model) = models.first() else { return Ok(Vec::new()) };
    let counts = [models.len(), shards.len(), sums.local()];
    let got = || format!("{} models, {} shards, sums over {}", counts[0], counts[1], counts[2]);
    let good = counts == [models.len(); 3];
    expect(good, "shards", got, || "one model for each".to_owned())?;
    let draws: Vec<Draw> = shards.iter().map(|&(_, first)| Draw { seed, first }).collect();
    let each = models.iter().zip(shards).zip(&draws);
    let maps = each.map(|((model, (images, _)), &draw)| model.maps(images, Some(draw)));
    let maps = maps.collect::<Result<Vec<_>, _>>()?;
    let draws: Vec<Option<Draw>> = draws.into_iter().map(Some).collect();

    let (pass, rate) = (model.training(sums), model.config().dropout);
    let pyramids: Vec<_> = models.iter().map(|model| &model.pyramid).collect();
    let levels = Pyramid::forward(&pyramids, maps, pass.statistics, pass.precision)?;
    let third = levels.iter().map(|levels| levels[2].clone()).collect();
    let heads: Vec<_> = models.iter().map(|model| &model.decode_head).collect();
    let decoded = UperHead::forward(&heads, levels, pass, rate, &draws)?;
    let heads: Vec<_> = models.iter().map(|model| &model.auxiliary_head).collect();
    let aux = FcnHead::forward(&heads, third, pass, rate, &draws)?;
    let both = decoded.into_iter().zip(aux);
    Ok(both.map(|(decoded, aux)| HeadLogits { decode: decoded.logits, aux }).collect())
}
