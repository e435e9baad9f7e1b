//! Cross-entropy of every pixel.

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};
use vim_kernels::KernelError;

use crate::op::DenseBackend;
use crate::resize::Matrix;

/// The label of pixels that no loss and no accuracy counts.
pub const IGNORED: i64 = 255;

/// A loss, and what the pixels tell beside it.
#[derive(Clone, Debug)]
pub struct PixelLoss {
    /// The mean over all pixels, ignored ones in the divisor, `[1]`; differentiable in the logits.
    pub loss: Tensor<1>,
    /// Labelled pixels whose largest logit is the label's, `[1]`, without autodiff.
    pub correct: Tensor<1>,
    /// Labelled pixels, `[1]`, without autodiff.
    pub labelled: Tensor<1>,
}

/// The cross-entropy of logits that are resized bilinearly to the size of the labels.
///
/// The gradient is computed with the loss, image by image: logits of the labels' size are there for
/// one image at a time, in either pass.
///
/// # Shapes
///
/// - `logits`: `[B, h, w, K]`, f32
/// - `labels`: `[B, H, W]`, 0 to K − 1; [`IGNORED`], and any other number, is no label
///
/// # Errors
///
/// [`KernelError::TooLarge`] on a GPU.
///
/// # Source
///
/// `CrossEntropyLoss` of mmsegmentation 0.29 with `ignore_index = 255` and `avg_non_ignore =
/// False`.
pub fn pixel_loss(logits: Tensor<4>, labels: &Tensor<3, Int>) -> Result<PixelLoss, KernelError> {
    let [batch, height, width, classes] = logits.dims();
    let [_, rows, columns] = labels.dims();
    let axes = Axes {
        rows: Matrix::bilinear(height, rows),
        columns: Matrix::bilinear(width, columns),
        pixels: (batch * rows * columns) as f64,
    };
    let is_tracked = logits.is_autodiff();
    let values = if is_tracked { logits.clone().inner() } else { logits.clone() };
    let labels = if labels.is_autodiff() { labels.clone().inner() } else { labels.clone() };
    let mut slopes = Vec::with_capacity(batch);
    let mut sums: Option<[Tensor<1>; 3]> = None;
    for image in 0..batch {
        let own = values.clone().narrow(0, image, 1).reshape([height, width, classes]);
        let label = labels.clone().narrow(0, image, 1);
        let (numbers, slope) = axes.image(own, label, is_tracked)?;
        slopes.extend(slope);
        sums = Some(match sums {
            None => numbers,
            Some([a, b, c]) => {
                let [d, e, f] = numbers;
                [a + d, b + e, c + f]
            }
        });
    }
    let nothing = || Tensor::<1>::zeros([1], &values.device());
    let [loss, correct, labelled] = sums.unwrap_or_else(|| [nothing(), nothing(), nothing()]);
    if !is_tracked {
        return Ok(PixelLoss { loss, correct, labelled });
    }
    let slope = Tensor::<4>::from_inner(Tensor::cat(slopes, 0));
    let (loss, slope) = (Tensor::from_inner(loss).into_dispatch(), slope.into_dispatch());
    let loss = Tensor::from_dispatch(Dispatch::with_slope(logits.into_dispatch(), loss, slope));
    Ok(PixelLoss { loss, correct, labelled })
}

/// How logits become as large as the labels, and how many pixels a batch has.
struct Axes {
    rows: Matrix,
    columns: Matrix,
    pixels: f64,
}

impl Axes {
    /// Loss, right pixels and labelled pixels of an image, each `[1]`, and the gradient of the loss
    /// in `logits`, `[h, w, K]`: `[1, h, w, K]`. `label` is `[1, H, W]`.
    fn image(
        &self,
        logits: Tensor<3>,
        label: Tensor<3, Int>,
        wants_slope: bool,
    ) -> Result<([Tensor<1>; 3], Option<Tensor<4>>), KernelError> {
        let [_, _, classes] = logits.dims();
        let large = self.rows.apply(logits.permute([2, 1, 0]))?; // [K, w, H]
        let large = self.columns.apply(large.swap_dims(1, 2))?; // [K, H, W]
        let is_label =
            label.clone().greater_equal_elem(0).bool_and(label.clone().lower_elem(classes as i64));
        let counts = is_label.clone().float();
        let label = label.mask_fill(is_label.bool_not(), 0);
        let largest = large.clone().max_dim(0);
        let picked = large.clone().gather(0, label.clone());
        let correct = picked.clone().greater_equal(largest.clone()).float() * counts.clone();
        let shifted = large - largest.clone();
        let exponentials = shifted.exp();
        let sum = exponentials.clone().sum_dim(0);
        let loss = (sum.clone().log() + largest - picked) * counts.clone();
        let total = |x: Tensor<3>| x.sum_dim(2).sum_dim(1).reshape([1]);
        let numbers = [total(loss).div_scalar(self.pixels), total(correct), total(counts.clone())];
        if !wants_slope {
            return Ok((numbers, None));
        }
        let weight = counts.div_scalar(self.pixels);
        let [_, height, width] = weight.dims();
        let class = Tensor::<1, Int>::arange(0..classes as i64, &label.device());
        let class = class.reshape([classes, 1, 1]).expand([classes, height, width]);
        let is_picked = class.equal(label.expand([classes, height, width])).float();
        let slope = exponentials * (weight.clone() / sum) - is_picked * weight; // [K, H, W]
        let slope = self.columns.transposed().apply(slope)?; // [K, H, w]
        let slope = self.rows.transposed().apply(slope.swap_dims(1, 2))?; // [K, w, h]
        Ok((numbers, Some(slope.permute([2, 1, 0]).unsqueeze_dim(0))))
    }
}
