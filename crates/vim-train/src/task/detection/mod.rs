//! Object detection and instance segmentation by Cascade Mask R-CNN on Vision Mamba; the primary
//! score is the average precision of boxes.

pub(crate) mod classes;
pub mod evaluate;
pub mod inference;
mod objective;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Device;
use vim_comm::Comm;
use vim_data::{
    Batch, EvalScene, EvalScenes, Loader, LoaderConfig, Mask, ObjectRecipe, OnBad, Purpose, Split,
    Splits, Targets, contact_sheet, encode_png,
};
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::{Detector, DetectorConfig, Truths};
use vim_run::PER_CLASS;
use vim_run::metrics::{Picture, ScoreKind};
use vim_run::signals::StopRequest;

use super::classification::{absent, to_tensors};
use super::{Description, EvalSplit, Evaluation, Task, Tested, loaders};
use crate::config::{Config, ConfigError};
use crate::error::Error;
use classes::classes_csv;
use evaluate::{Evaluated, Loading, evaluate, scores};
use inference::{Viewer, annotated};
pub use objective::{FoundObject, FoundObjects, ObjectDetector, Scenes};

/// Images of an evaluation that are shown.
const PICTURES: usize = 4;
/// Score from which on an object is drawn.
pub(crate) const SHOWN: f32 = 0.5;
/// Side of a box below which it has no inside, in pixels.
///
/// # Source
///
/// detectron2, `filter_empty_instances`.
const LEAST_SIDE: f32 = 1e-5;

/// Detection of the objects in a dataset's images.
#[derive(Debug)]
pub struct Detection {
    config: Config,
    objective: ObjectDetector,
    splits: Splits,
    loader: Loader,
    comm: Comm,
}

impl Detection {
    fn new(config: &Config, splits: Splits, comm: &Comm) -> Result<Self, ConfigError> {
        let objective = ObjectDetector::new(config, splits.train.num_classes())?;
        let training = training(config, comm);
        let loader = Loader::new(splits.train.clone(), training).map_err(ConfigError::of_data)?;
        let config = config.clone();
        Ok(Self { config, objective, splits, loader, comm: comm.clone() })
    }

    fn evaluated(
        &self,
        model: &Detector,
        split: &Split,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluated>, Error> {
        let how = (&viewer(&self.config, split), loading(&self.config));
        evaluate(model, split, how, device, (&self.comm, stop), &mut |_, _| Ok(()))
    }

    fn split(&self, split: EvalSplit) -> &Split {
        match split {
            EvalSplit::Val => self.splits.val.as_ref().unwrap_or(&self.splits.test),
            EvalSplit::Test => &self.splits.test,
        }
    }
}

/// Loader settings for training: the shards of this rank, at the model's image size.
pub(crate) fn training(config: &Config, comm: &Comm) -> LoaderConfig {
    LoaderConfig {
        purpose: Purpose::Objects(config.objects()),
        ..loaders::training(config, config.model.image_size, comm)
    }
}

/// How the images of `split` are shown to the model in evaluation.
pub(crate) fn viewer(config: &Config, split: &Split) -> Viewer {
    Viewer { statistics: split.statistics(config.data.normalize) }
}

/// How the images of an evaluation are loaded.
pub(crate) fn loading(config: &Config) -> Loading {
    Loading {
        threads: config.data.workers.count(),
        batch: loaders::evaluation_batch(config),
        on_bad: config.data.bad_test.into(),
    }
}

/// The objects of an image as the model learns from them; those without an inside are left out.
fn truths(targets: &Targets, frame: [usize; 2]) -> Truths {
    let mut truths = Truths::default();
    for (place, mask) in targets.masks.iter().enumerate() {
        let edges @ [left, top, right, bottom] = targets.boxes[place];
        let has_inside = right - left > LEAST_SIDE && bottom - top > LEAST_SIDE;
        let mask = match mask {
            Mask::Polygons(polygons) if polygons.is_empty() => continue,
            Mask::Polygons(polygons) => InstanceMask::Polygons(polygons.clone()),
            Mask::Runs(_) => {
                let pixels = mask.pixels(frame).into_iter().map(|pixel| pixel == 1).collect();
                InstanceMask::Bitmap { height: frame[0], width: frame[1], pixels }
            }
        };
        if has_inside {
            truths.boxes.push(edges);
            truths.classes.push(targets.classes[place] as usize);
            truths.masks.push(mask);
        }
    }
    truths
}

/// The images of a batch of `split` on the device, and what is to be found in them.
fn upload(config: &Config, split: &Split, batch: &Batch, device: &Device) -> Result<Scenes, Error> {
    let statistics = split.statistics(config.data.normalize);
    let (images, _) = to_tensors(batch, statistics, device)?;
    if batch.targets.len() != batch.len() {
        return Err(Error::internal("a batch without objects"));
    }
    let frame = [batch.height, batch.width];
    let sizes = batch.targets.iter().map(|targets| targets.size).collect();
    let truths = batch.targets.iter().map(|targets| truths(targets, frame)).collect();
    Ok(Scenes { images, sizes: Arc::new(sizes), truths: Arc::new(truths) })
}

impl Task for Detection {
    type Objective = ObjectDetector;
    type Batch = Batch;
    type Batches = vim_data::Batches;

    const SCORES: &'static [ScoreKind] = evaluate::SCORES;
    const PRIMARY: ScoreKind = evaluate::BOX_AP;

    fn open(config: &Config, device: &Device, comm: &Comm) -> Result<Self, Error> {
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        let splits = vim_data::open::<vim_data::ImageObjects>(&config.data, config.run.seed)?;
        Ok(Self::new(config, splits, comm)?)
    }

    fn preflight(config: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError> {
        let splits = vim_data::dry_run::<vim_data::ImageObjects>(&config.data, config.run.seed)
            .map_err(ConfigError::of_data)?;
        let task = match splits {
            Some(splits) => Some(Self::new(config, splits, &Comm::single())?),
            None => {
                // The files alone tell how many classes there are.
                ObjectDetector::new(config, config.task.usual_classes())?;
                training(config, &Comm::single()).check().map_err(ConfigError::of_data)?;
                None
            }
        };
        Ok((task, absent(config)))
    }

    fn objective(&self) -> &ObjectDetector {
        &self.objective
    }

    fn describe(&self) -> Result<Description, Error> {
        let (model, splits) = (&self.config.model, &self.splits);
        let ObjectRecipe { scale: [least, most], .. } = self.config.objects();
        let size = model.image_size;
        let detector = self.config.detector();
        let cost = detector.cost(model, splits.train.num_classes())?;
        let strides = DetectorConfig::strides(model);
        Ok(Description {
            model: format!(
                "Cascade Mask R-CNN on {} tokens, strides {} to {}, method {} (ssm.series = {})",
                model.num_tokens(),
                strides[0],
                strides[strides.len() - 1],
                model.method_label(),
                model.ssm.series
            ),
            parameters: cost.parameters(),
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

    fn class_names(&self) -> &[String] {
        self.splits.train.class_names()
    }

    fn steps_per_epoch(&self) -> u64 {
        self.loader.batches_per_epoch() as u64
    }

    fn batches(&self, steps: Range<u64>) -> vim_data::Batches {
        self.loader.batches(steps)
    }

    fn upload(&self, batch: &Batch, device: &Device) -> Result<Scenes, Error> {
        upload(&self.config, &self.splits.train, batch, device)
    }

    fn has_validation(&self) -> bool {
        self.splits.val.is_some()
    }

    fn evaluate(
        &self,
        model: &Detector,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error> {
        let evaluated = self.evaluated(model, self.split(split), device, stop)?;
        Ok(evaluated.as_ref().map(scores))
    }

    /// With a row for each class.
    fn test(
        &self,
        model: &Detector,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Tested>, Error> {
        let evaluated = self.evaluated(model, &self.splits.test, device, stop)?;
        let Some(evaluated) = evaluated else { return Ok(None) };
        let table = Some((PER_CLASS, classes_csv(&evaluated.scores)?));
        Ok(Some(Tested { evaluation: scores(&evaluated), table }))
    }

    /// The first images, each beside what is found and what is annotated.
    fn pictures(
        &self,
        model: &Detector,
        split: EvalSplit,
        device: &Device,
    ) -> Result<Vec<Picture>, Error> {
        let (name, split) = (split.name(), self.split(split));
        let colours = split.dataset().object_classes().map(|classes| classes.colours.clone());
        let (names, colours) = (split.class_names(), colours.unwrap_or_default());
        let viewer = viewer(&self.config, split);
        let positions = (0..split.len().min(PICTURES)).collect();
        let mut pictures = Vec::new();
        for scene in EvalScenes::new(split, positions, PICTURES, OnBad::CountAsWrong)? {
            let Ok(EvalScene { position, image, objects }) = scene? else { continue };
            let Some(seen) = viewer.seen(model, &[&image], device)?.pop() else { continue };
            let found = seen.drawn(&image, names, &colours, SHOWN);
            let there = annotated(&image, &objects, names, &colours);
            // Drawings of small images are enlarged.
            let image = image.enlarged(found.height / image.height);
            let sheet = contact_sheet(&[Some(image), Some(found), Some(there)], 3);
            let png = encode_png(&sheet).map_err(Error::io("encode", "a picture"))?;
            let (tag, height, width) =
                (format!("{name}/image {position}"), sheet.height, sheet.width);
            pictures.push(Picture { tag, height, width, png });
        }
        Ok(pictures)
    }

    fn evaluation_batch(
        &self,
        device: &Device,
    ) -> Result<impl Fn(&Detector) -> Result<(), Error>, Error> {
        let split = self.split(EvalSplit::Val);
        let mut scenes = EvalScenes::new(split, vec![0], 1, OnBad::Fail)?;
        let scene = scenes.next().transpose()?.and_then(Result::ok);
        let scene = scene.ok_or_else(|| Error::internal("an evaluation without images"))?;
        let viewer = viewer(&self.config, split);
        let batch = loading(&self.config).batch.min(split.len());
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
        truths.check(8).unwrap();
        let InstanceMask::Bitmap { pixels, .. } = &truths.masks[1] else { panic!("pixels") };
        assert_eq!(pixels, &[true, false, false, true, false, false]);
    }
}
