//! Loss, top-1 and top-5 over a split.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use vim_comm::Comm;
use vim_data::{Batch, Loader, LoaderConfig, Split, Statistics};
use vim_model::Vim;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use crate::error::Error;
use crate::task::replayed::Replayed;
use crate::task::{Evaluation, batches, share};

/// Share of images whose class has the largest logit.
pub const TOP1: ScoreKind = ScoreKind::share("top1", "top-1");

/// Share of images whose class is among the five of the largest logits. Of fewer classes it would
/// be 1, and is not measured.
const TOP5: ScoreKind = ScoreKind::share("top5", "top-5");

/// Mean cross-entropy without smoothing, top-1, and top-5.
pub const SCORES: &[ScoreKind] = &[ScoreKind::LOSS, TOP1, TOP5];

/// Evaluates `model` on `split`; `None` if a rank was asked to stop meanwhile.
///
/// The ranks share the batches; the scores are those of all, in the split's order on every rank.
/// `each` gets of every image of this rank its place in the split, its logits, and whether it was
/// read.
pub fn evaluate(
    model: &Vim,
    split: &Split,
    statistics: Statistics,
    config: LoaderConfig,
    device: &Device,
    (comm, stop): (&Comm, &StopRequest),
    each: &mut dyn FnMut(usize, &[f32], bool),
) -> Result<Option<Evaluation>, Error> {
    let batch_size = config.batch_size;
    let loader = Loader::new(split.clone(), config)?;
    let mut images: Vec<Scored> = Vec::new();
    let mut number = comm.rank();
    let mut batches = loader.epoch(0, 0);
    let mut upload = || {
        let batch = batches.next()?.map_err(Error::from);
        Some(batch.and_then(|batch| {
            let pixels = batches::images(&batch, statistics, device)?;
            let Batch { labels, count, unread, .. } = batch;
            Ok((pixels, labels, count, unread))
        }))
    };
    let mut passes = Replayed::new(|images| model.forward(images));
    let mut next = upload();
    while let Some(batch) = next {
        comm.beat();
        if stop.get().is_some() {
            break;
        }
        let (pixels, labels, count, unread) = batch?;
        let logits = passes.run(pixels)?;
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
            let place = number * batch_size + place;
            each(place, row, is_read);
            images.push(Scored { place, nll: nll.to_bits(), rank });
        }
        number += comm.size();
    }
    let Some(images) = of_all_ranks(images, comm, stop.get().is_some())? else { return Ok(None) };
    let count = images.len() as f64;
    // In the split's order, so that the bits are those of one rank.
    let loss: f64 = images.iter().fold(0.0, |sum, image| sum + f64::from_bits(image.nll));
    let top = |most: usize| images.iter().filter(|image| image.rank < most).count() as f64;
    let top5 = (model.config().num_classes >= 5).then(|| (TOP5.name, top(5) / count));
    let numbers = [(ScoreKind::LOSS.name, loss / count), (TOP1.name, top(1) / count)];
    let scores = numbers.into_iter().chain(top5).collect();
    Ok(Some(Evaluation { scores, images: images.len() }))
}

/// An image's part in the scores.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Scored {
    /// Place in the split.
    place: usize,
    /// Bits of the negative log-likelihood of its class: JSON has only finite numbers.
    nll: u64,
    /// How many classes rank before its class.
    rank: usize,
}

/// The images of all ranks, in the split's order; `None` if a rank is asked to stop.
fn of_all_ranks(
    images: Vec<Scored>,
    comm: &Comm,
    stops: bool,
) -> Result<Option<Vec<Scored>>, Error> {
    let all: Vec<Option<Vec<Scored>>> = share(comm, &(!stops).then_some(images))?;
    let Some(all) = all.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut all: Vec<Scored> = all.into_iter().flatten().collect();
    all.sort_unstable_by_key(|image| image.place);
    Ok(Some(all))
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
