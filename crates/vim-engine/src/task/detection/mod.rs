//! Object detection and instance segmentation by Cascade Mask R-CNN on Vision Mamba; the primary
//! score is the average precision of boxes.

mod answers;
pub mod evaluate;
pub mod inference;
mod objective;
mod trained;
mod weights;

use std::sync::Arc;

use burn::tensor::Device;
use vim_comm::Comm;
use vim_data::{
    Batch, EvalScene, EvalScenes, ImageObjects, Mask, ObjectRecipe, OnBad, Purpose, Split, Splits,
    Targets,
};
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::{Detector, DetectorConfig, Truths};
use vim_model::Vim;
use vim_run::metrics::ScoreKind;

use super::dense::{DenseObjective, DenseTask, Drawn, PICTURES, is_federated};
use super::kinds::parameters;
use super::named::Evaluating;
use super::{Description, Evaluation, batches};
use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::output::coco;
use evaluate::{Evaluated, Loading, evaluate, scores};
use inference::{Viewer, annotated};
pub use objective::{FoundObject, FoundObjects, ObjectDetector, Scenes};
pub use trained::TrainedDetector;

/// Score from which on an object is drawn.
const SHOWN: f32 = 0.5;
/// Side of a box below which it has no inside, in pixels.
///
/// # Source
///
/// detectron2, `filter_empty_instances`.
const LEAST_SIDE: f32 = 1e-5;

/// Detection of the objects in a dataset's images.
pub type Detection = DenseTask<ObjectDetector>;

/// How the images of `split` are shown to the model in evaluation.
fn viewer(config: &Config, split: &Split) -> Viewer {
    Viewer { statistics: split.statistics(config.data.normalize) }
}

/// The objects of an image as the model learns from them; those without an inside are left out.
/// They have masks or boxes alone, as the targets have.
fn truths(targets: &Targets, frame: [usize; 2]) -> Truths {
    let mut truths = Truths::default();
    for (place, &edges) in targets.boxes.iter().enumerate() {
        let [left, top, right, bottom] = edges;
        let has_inside = right - left > LEAST_SIDE && bottom - top > LEAST_SIDE;
        let mask = match targets.masks.get(place) {
            None => None,
            Some(Mask::Polygons(polygons)) if polygons.is_empty() => continue,
            Some(Mask::Polygons(polygons)) => Some(InstanceMask::Polygons(polygons.clone())),
            Some(mask @ Mask::Runs(_)) => {
                let pixels = mask.pixels(frame).into_iter().map(|pixel| pixel == 1).collect();
                Some(InstanceMask::Bitmap { height: frame[0], width: frame[1], pixels })
            }
        };
        if has_inside {
            truths.boxes.push(edges);
            truths.classes.push(targets.classes[place] as usize);
            truths.masks.extend(mask);
        }
    }
    truths
}

impl DenseObjective for ObjectDetector {
    type Annotation = ImageObjects;
    type Measured = Evaluated;

    const SCORES: &'static [ScoreKind] = evaluate::SCORES;
    const PRIMARY: ScoreKind = evaluate::BOX_AP;

    fn new(config: &Config, classes: usize, _comm: &Comm) -> Result<Self, ConfigError> {
        Self::new(config, classes)
    }

    fn backbone(model: &Detector) -> &Vim {
        &model.backbone
    }

    fn purpose(config: &Config) -> Purpose {
        Purpose::Objects(config.objects())
    }

    fn describe(config: &Config, splits: &Splits) -> Result<Description, Error> {
        let model = &config.model;
        let ObjectRecipe { scale: [least, most], .. } = config.objects();
        let size = model.image_size;
        let detector = config.detector();
        let classes = splits.train.num_classes();
        let strides = DetectorConfig::strides(model);
        Ok(Description {
            model: format!(
                "Cascade {} on {} tokens, strides {} to {}, method {} (ssm.series = {})",
                if detector.masks { "Mask R-CNN" } else { "R-CNN" },
                model.num_tokens(),
                strides[0],
                strides[strides.len() - 1],
                model.method_label(),
                model.ssm.series
            ),
            parameters: parameters(config, classes)?,
            image_bytes: (size.height * size.width * 3) as u64,
            data: format!(
                "data {} train, {} val, {} test images, objects of {} classes; crops of {size} px \
                 from images of {least} to {most} times that",
                splits.train.len(),
                splits.val.as_ref().map_or(0, Split::len),
                splits.test.len(),
                splits.train.num_classes(),
            ),
            notes: splits.notes.clone(),
        })
    }

    fn upload(
        config: &Config,
        split: &Split,
        batch: &Batch,
        device: &Device,
    ) -> Result<Scenes, Error> {
        let images = batches::images(batch, split.statistics(config.data.normalize), device)?;
        if batch.targets.len() != batch.len() {
            return Err(Error::internal("a batch without objects"));
        }
        let frame = [batch.height, batch.width];
        let sizes = batch.targets.iter().map(|targets| targets.size).collect();
        let truths = batch.targets.iter().map(|targets| truths(targets, frame)).collect();
        Ok(Scenes { images, sizes: Arc::new(sizes), truths: Arc::new(truths) })
    }

    fn measure(model: &Detector, of: &Evaluating<'_>) -> Result<Option<Evaluated>, Error> {
        let &Evaluating { config, split, batch, device, comm, stop, advance, .. } = of;
        if is_federated(split) {
            // Nothing can be measured of LVIS; a run says so at its start.
            return Ok(Some(Evaluated::nothing(split.len())));
        }
        let viewer = viewer(config, split);
        let loading = Loading {
            threads: config.data.workers.count(),
            batch: batch.unwrap_or(batches::evaluation_batch(config)),
            on_bad: config.data.bad_test.into(),
        };
        let mut each = |_: &_, _: &_| {
            advance(1);
            Ok(())
        };
        evaluate(model, split, (&viewer, loading), device, (comm, stop), &mut each)
    }

    fn scores(measured: &Evaluated) -> Evaluation {
        scores(measured)
    }

    /// The names are in the scores.
    fn classes_csv(measured: &Evaluated, _names: &[String]) -> Result<Vec<u8>, Error> {
        coco::classes_csv(&measured.scores)
    }

    fn drawn(
        config: &Config,
        model: &Detector,
        split: &Split,
        device: &Device,
    ) -> Result<Vec<Drawn>, Error> {
        let colours = split.dataset().object_classes().map(|classes| classes.colours.clone());
        let (names, colours) = (split.class_names(), colours.unwrap_or_default());
        let viewer = viewer(config, split);
        let positions = (0..split.len().min(PICTURES)).collect();
        let mut drawn = Vec::new();
        for scene in EvalScenes::new(split, positions, PICTURES, OnBad::CountAsWrong)? {
            let Ok(EvalScene { position, image, objects }) = scene? else { continue };
            let Some(seen) = viewer.seen(model, &[&image], device)?.pop() else { continue };
            let found = seen.drawn(&image, names, &colours, SHOWN);
            let there = annotated(&image, &objects, names, &colours);
            // Drawings of small images are enlarged.
            let image = image.enlarged(found.height / image.height);
            drawn.push((position, [image, found, there], seen.below(SHOWN, names)));
        }
        Ok(drawn)
    }

    fn evaluation_batch(
        config: &Config,
        split: &Split,
        device: &Device,
    ) -> Result<impl Fn(&Detector) -> Result<(), Error>, Error> {
        let mut scenes = EvalScenes::new(split, vec![0], 1, OnBad::Fail)?;
        let scene = scenes.next().transpose()?.and_then(Result::ok);
        let scene = scene.ok_or_else(|| Error::internal("an evaluation without images"))?;
        let viewer = viewer(config, split);
        let batch = batches::evaluation_batch(config).min(split.len());
        Ok(move |model: &Detector| {
            viewer.seen(model, &vec![&scene.image; batch], device).map(|_| ())
        })
    }
}

#[cfg(test)]
mod tests {
    use vim_data::mask_ops::Rle;

    use super::*;

    #[test]
    fn objects_without_an_inside_teach_nothing() {
        let square = vec![vec![0.0, 0.0, 4.0, 0.0, 4.0, 4.0, 0.0, 4.0]];
        let targets = Targets {
            size: [2, 3],
            boxes: vec![[0.0, 0.0, 3.0, 2.0], [1.0; 4], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 2.0]],
            classes: vec![4, 5, 6, 7],
            masks: vec![
                Mask::Polygons(square.clone()),
                Mask::Polygons(square),
                Mask::Polygons(Vec::new()),
                Mask::Runs(Rle { h: 2, w: 3, counts: vec![0, 2, 4] }),
            ],
        };
        let truths = truths(&targets, [2, 3]);
        assert_eq!(truths.classes, [4, 7]);
        truths.check(8, true).unwrap();
        let alone = super::truths(&Targets { masks: Vec::new(), ..targets }, [2, 3]);
        assert_eq!((alone.classes, alone.masks.len()), (vec![4, 6, 7], 0));
        let InstanceMask::Bitmap { pixels, .. } = &truths.masks[1] else { panic!("pixels") };
        assert_eq!(pixels, &[true, false, false, true, false, false]);
    }
}
