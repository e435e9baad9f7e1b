//! Cross-entropy of every pixel.

use burn::tensor::{Int, Tensor};
use vim_kernels::{KernelChoice, KernelError, resize_nll};

/// A loss, and what the pixels tell beside it.
#[derive(Clone, Debug)]
pub struct PixelLoss {
    /// The mean over all pixels, ignored ones in the divisor, `[1]`; differentiable in the logits.
    pub loss: Tensor<1>,
    /// Labelled pixels whose largest logit is the label's, `[1]`, without gradient.
    pub correct: Tensor<1>,
    /// Labelled pixels, `[1]`, without gradient.
    pub labelled: Tensor<1>,
}

/// The cross-entropy of logits that are resized bilinearly to the size of the labels.
///
/// # Shapes
///
/// - `logits`: `[B, h, w, K]`
/// - `labels`: `[B, H, W]`, 0 to K − 1, or [`vim_kernels::IGNORED_LABEL`], which is no label. Any
///   other number is none either, and nobody is told: what reads label maps refuses it
///
/// # Errors
///
/// As [`resize_nll`].
///
/// # Source
///
/// `CrossEntropyLoss` of mmsegmentation 0.29 with `ignore_index = 255` and `avg_non_ignore =
/// False`.
pub fn pixel_loss(logits: Tensor<4>, labels: &Tensor<3, Int>) -> Result<PixelLoss, KernelError> {
    let pixels: usize = labels.dims().iter().product();
    let nll = resize_nll(logits, labels.clone(), KernelChoice::Auto)?;
    let loss = nll.loss.div_scalar(pixels as f64);
    Ok(PixelLoss { loss, correct: nll.correct, labelled: nll.labelled })
}
