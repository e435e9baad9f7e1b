//! Mean IoU and accuracy over a split.

use burn::tensor::Device;
use vim_comm::Comm;
use vim_data::{Confusion, DataError, EvalPair, EvalPairs, OnBad, Pixels, Split};
use vim_dense::Segmenter;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use super::inference::Viewer;
use crate::error::Error;
use crate::task::{Evaluation, share};

/// Mean over the classes of intersection over union.
pub const MIOU: ScoreKind = ScoreKind::share("miou", "mIoU");

/// Mean accuracy over classes and over pixels, and mean IoU.
pub const SCORES: &[ScoreKind] =
    &[MIOU, ScoreKind::share("macc", "mAcc"), ScoreKind::share("aacc", "aAcc")];

/// What an evaluation needs beside the model and the images.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Pairs decoded at a time.
    pub threads: usize,
    /// Images seen at a time, where they have one size.
    pub batch: usize,
    /// What becomes of a pair that cannot be used.
    pub on_bad: OnBad,
}

/// What is done with a pair and its predicted classes.
pub type Each<'a> = &'a mut dyn FnMut(&EvalPair, &[u8]) -> Result<(), Error>;

/// Confusions of all pixels of `split`, and the number of images; `None` if a rank was asked to
/// stop meanwhile.
///
/// The ranks share the images; every rank gets the sums of all. `each` gets every pair of this rank
/// with the classes predicted.
pub fn evaluate(
    model: &Segmenter,
    split: &Split,
    (viewer, loading): (&Viewer, Loading),
    device: &Device,
    (comm, stop): (&Comm, &StopRequest),
    each: Each<'_>,
) -> Result<Option<(Confusion, usize)>, Error> {
    let positions = (comm.rank()..split.len()).step_by(comm.size()).collect();
    let absent = split.dataset().absent_classes();
    let mut confusion = Confusion::new(split.num_classes()).without(absent);
    let mut pairs = EvalPairs::new(split, positions, loading.threads, loading.on_bad)?;
    loop {
        comm.beat();
        let next: Vec<_> = pairs.by_ref().take(loading.batch.max(1)).collect();
        if next.is_empty() || stop.get().is_some() {
            break;
        }
        let mut read: Vec<EvalPair> = Vec::with_capacity(next.len());
        for pair in next {
            match pair? {
                Ok(pair) => match (viewer.check(model, &pair.image), loading.on_bad) {
                    (Ok(()), _) => read.push(pair),
                    (Err(_), OnBad::CountAsWrong) => confusion.add_unread(&pair.map.labels),
                    (Err(why), OnBad::Fail | OnBad::Replace) => {
                        let name = split.dataset().name(split.index(pair.position));
                        return Err(DataError::BadImage { name, reason: why.to_string() }.into());
                    }
                },
                Err(unread) => match &unread.labels {
                    Some(labels) => confusion.add_unread(labels),
                    None => eprintln!("warning: {} {}; it is left out", unread.name, unread.reason),
                },
            }
        }
        let images: Vec<&Pixels> = read.iter().map(|pair| &pair.image).collect();
        for (pair, predicted) in read.iter().zip(viewer.labels(model, &images, device)?) {
            confusion.add(&predicted, &pair.map.labels);
            each(pair, &predicted)?;
        }
    }
    let own = stop.get().is_none().then_some(confusion);
    let all: Vec<Option<Confusion>> = share(comm, &own)?;
    let Some(all) = all.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let sum = all.into_iter().reduce(|mut sum, other| {
        sum.merge(&other);
        sum
    });
    let sum = sum.ok_or_else(|| Error::internal("an evaluation without ranks"))?;
    Ok(Some((sum, split.len())))
}

/// The scores of these counts.
pub fn scores(confusion: &Confusion, images: usize) -> Evaluation {
    let numbers = [confusion.mean_iou(), confusion.mean_accuracy(), confusion.accuracy()];
    let names = SCORES.iter().map(|kind| kind.name);
    Evaluation { scores: names.zip(numbers).collect(), images }
}
