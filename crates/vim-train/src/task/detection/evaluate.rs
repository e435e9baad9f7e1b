//! COCO's scores of boxes and of masks over a split.

use std::collections::BTreeMap;

use burn::tensor::Device;
use vim_comm::Comm;
use vim_data::{
    CocoAnnotations, CocoDetections, CocoEvaluation, CocoKind, CocoScores, EvalScene, EvalScenes,
    ObjectClasses, OnBad, Pixels, Split,
};
use vim_dense::detection::Detector;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use super::inference::{Seen, Viewer};
use crate::error::Error;
use crate::task::{Evaluation, share};

/// Average precision of boxes: the score that the original's models are compared by. Masks are
/// predicted of the boxes that are found, so that theirs follows it.
pub const BOX_AP: ScoreKind = ScoreKind::share("box_ap", "box AP");

/// Average precision of boxes and of masks: over ten overlaps, at a half and at three quarters.
pub const SCORES: &[ScoreKind] = &[
    BOX_AP,
    ScoreKind::share("box_ap50", "box AP50"),
    ScoreKind::share("box_ap75", "box AP75"),
    ScoreKind::share("mask_ap", "mask AP"),
    ScoreKind::share("mask_ap50", "mask AP50"),
    ScoreKind::share("mask_ap75", "mask AP75"),
];

/// Numbers of COCO's twelve that are scores.
const OF_COCO: usize = SCORES.len() / 2;

/// What an evaluation needs beside the model and the images.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Images decoded at a time.
    pub threads: usize,
    /// Images seen at a time.
    pub batch: usize,
    /// What becomes of an image that cannot be used.
    pub on_bad: OnBad,
}

/// What is done with an image and its detections.
pub type Each<'a> = &'a mut dyn FnMut(&EvalScene, &Seen) -> Result<(), Error>;

/// What an evaluation found, beside what is there.
#[derive(Debug)]
pub struct Evaluated {
    /// What is there, and what was found; absent where nothing can be measured.
    pub compared: Option<(CocoAnnotations, CocoDetections)>,
    /// Scores of boxes, and of masks if those are found.
    pub scores: Vec<CocoScores>,
    /// Images evaluated.
    pub images: usize,
}

/// Finds the objects in the images of `split` and compares them with the annotated ones; `None` if
/// a rank was asked to stop meanwhile.
///
/// The ranks share the batches; every rank gets the result of all. `each` gets every image of this
/// rank with its detections. With [`OnBad::CountAsWrong`] nothing is found in an image that
/// cannot be read.
pub fn evaluate(
    model: &Detector,
    split: &Split,
    (viewer, loading): (&Viewer, Loading),
    device: &Device,
    (comm, stop): (&Comm, &StopRequest),
    each: Each<'_>,
) -> Result<Option<Evaluated>, Error> {
    let classes = split.dataset().object_classes();
    let classes = classes.ok_or_else(|| Error::internal("a detection without objects"))?;
    let positions: Vec<usize> = (0..split.len()).collect();
    let batches = positions.chunks(loading.batch.max(1)).skip(comm.rank()).step_by(comm.size());
    let batches: Vec<&[usize]> = batches.collect();
    let mut scenes = EvalScenes::new(split, batches.concat(), loading.threads, loading.on_bad)?;
    // By number of the image.
    let mut own: BTreeMap<u64, Seen> = BTreeMap::new();
    for batch in batches {
        comm.beat();
        if stop.get().is_some() {
            break;
        }
        let mut read: Vec<EvalScene> = Vec::with_capacity(batch.len());
        for scene in scenes.by_ref().take(batch.len()) {
            match scene? {
                Ok(scene) => read.push(scene),
                Err(unread) => {
                    eprintln!("warning: {} {}; nothing is found in it", unread.name, unread.reason);
                }
            }
        }
        let images: Vec<&Pixels> = read.iter().map(|scene| &scene.image).collect();
        if images.is_empty() {
            continue;
        }
        let seen = viewer.seen(model, &images, device)?;
        for (scene, seen) in read.iter().zip(seen) {
            each(scene, &seen)?;
            own.insert(scene.objects.id, seen);
        }
    }
    let own = stop.get().is_none().then_some(own);
    let all: Vec<Option<BTreeMap<u64, Seen>>> = share(comm, &own)?;
    let Some(all) = all.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let all: BTreeMap<u64, Seen> = all.into_iter().flatten().collect();
    let masks = model.config().masks;
    Ok(Some(compared(split, (classes, masks), &all, loading.on_bad)?))
}

impl Evaluated {
    /// Nothing, of `images` whose annotations do not say what is right.
    pub(super) fn nothing(images: usize) -> Self {
        Self { compared: None, scores: Vec::new(), images }
    }

    /// Number of detections.
    pub(super) fn num_found(&self) -> usize {
        self.compared.as_ref().map_or(0, |(_, found)| found.len())
    }
}

/// `all` that was found in the images of `split`, by their numbers, compared with what is there.
fn compared(
    split: &Split,
    (classes, masks): (&ObjectClasses, bool),
    all: &BTreeMap<u64, Seen>,
    on_bad: OnBad,
) -> Result<Evaluated, Error> {
    let truths = CocoAnnotations::of(split, on_bad)?;
    let each = all.iter().flat_map(|(&image, seen)| seen.detections(image, classes));
    let found = CocoDetections::of(&truths, each)?;
    let of = |found: &CocoDetections, kind| {
        Ok::<_, Error>(CocoEvaluation::new(&truths, found, kind)?.scores())
    };
    let mut scores = vec![of(&found, CocoKind::Bbox)?];
    if masks {
        // As detectron2, by whose area of masks the original's models are compared.
        scores.push(of(&found.without_boxes(), CocoKind::Segm)?);
    }
    Ok(Evaluated { compared: Some((truths, found)), scores, images: split.len() })
}

/// The scores of an evaluation, those of masks if they are found; not a number where nothing is to
/// be found. None of annotations that do not say what is right.
pub fn scores(evaluated: &Evaluated) -> Evaluation {
    let measured = evaluated.scores.iter().flat_map(|of| of.numbers.into_iter().take(OF_COCO));
    let names = SCORES.iter().map(|kind| kind.name);
    let scores = names.zip(measured.map(|number| number.unwrap_or(f64::NAN))).collect();
    Evaluation { scores, images: evaluated.images }
}
