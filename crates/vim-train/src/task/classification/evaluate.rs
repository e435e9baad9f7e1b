//! Loss, top-1 and top-5 over a split.

use burn::tensor::Device;
use vim_data::{Batch, Loader, LoaderConfig, Split, Statistics};
use vim_model::Vim;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use super::to_tensors;
use crate::error::Error;
use crate::task::Evaluation;

/// Share of images whose class has the largest logit.
pub const TOP1: ScoreKind = ScoreKind::share("top1", "top-1");

/// Mean cross-entropy without smoothing, top-1, and top-5.
pub const SCORES: &[ScoreKind] = &[ScoreKind::LOSS, TOP1, ScoreKind::share("top5", "top-5")];

/// Evaluates `model` on `split`; `None` if `stop` was raised meanwhile.
///
/// `each` gets the logits of every image, in the split's order, and whether the image was read.
pub fn evaluate(
    model: &Vim,
    split: &Split,
    statistics: Statistics,
    config: LoaderConfig,
    device: &Device,
    stop: &StopRequest,
    each: &mut dyn FnMut(&[f32], bool),
) -> Result<Option<Evaluation>, Error> {
    let loader = Loader::new(split.clone(), config)?;
    let (mut images, mut loss, mut top1, mut top5) = (0, 0.0, 0, 0);
    let mut batches = loader.epoch(0, 0);
    let mut upload = || {
        let batch = batches.next()?.map_err(Error::from);
        Some(batch.and_then(|batch| {
            let (pixels, _) = to_tensors(&batch, statistics, device)?;
            let Batch { labels, count, unread, .. } = batch;
            Ok((pixels, labels, count, unread))
        }))
    };
    let mut next = upload();
    while let Some(batch) = next {
        if stop.get().is_some() {
            return Ok(None);
        }
        let (pixels, labels, count, unread) = batch?;
        let logits = model.forward(pixels)?;
        // Prefetch while the device computes, as in training.
        next = upload();
        let logits: Vec<f32> = logits.into_data().iter().collect();
        let classes = logits.len() / labels.len();
        let images_of_it = logits.chunks_exact(classes).zip(&labels).enumerate();
        for (place, (row, &label)) in images_of_it.take(count) {
            let (nll, mut rank) = score(row, label as usize);
            let is_read = !unread.contains(&place);
            if !is_read {
                rank = classes;
            }
            each(row, is_read);
            loss += nll;
            top1 += usize::from(rank < 1);
            top5 += usize::from(rank < 5);
        }
        images += count;
    }
    let share = |count: usize| count as f64 / images as f64;
    let numbers = [loss / images as f64, share(top1), share(top5)];
    let names = SCORES.iter().map(|kind| kind.name);
    Ok(Some(Evaluation { scores: names.zip(numbers).collect(), images }))
}

/// Negative log-likelihood of `label`, and how many classes rank before it.
///
/// Of equal logits the smaller class ranks first; a NaN logit makes the image wrong.
fn score(logits: &[f32], label: usize) -> (f64, usize) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - largest).exp()).sum();
    let own = logits[label];
    let before = |(class, x): (usize, f32)| {
        class != label && (x > own || (x == own && class < label) || x.is_nan())
    };
    let rank = logits.iter().copied().enumerate().filter(|&pair| before(pair)).count();
    let rank = if own.is_nan() { logits.len() } else { rank };
    (sum.ln() - f64::from(own - largest), rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_break_ties_by_class_and_nan_is_wrong() {
        assert_eq!(score(&[0.0, 3.0, 1.0], 1).1, 0);
        assert_eq!(score(&[0.0, 3.0, 1.0], 0).1, 2);
        assert_eq!(score(&[2.0, 2.0, 2.0], 0).1, 0);
        assert_eq!(score(&[2.0, 2.0, 2.0], 2).1, 2);
        assert_eq!(score(&[f32::NAN; 6], 3).1, 6);
        assert_eq!(score(&[0.0, f32::NAN], 0).1, 1);
        let (nll, _) = score(&[1.0, 2.0], 0);
        assert!((nll - (1.0 + 1f64.exp()).ln()).abs() < 1e-6, "{nll}");
    }
}
