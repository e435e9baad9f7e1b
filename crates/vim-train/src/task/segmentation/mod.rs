//! Semantic segmentation by UperNet on Vision Mamba; the primary score is mean IoU.

pub(crate) mod classes;
pub mod evaluate;
pub mod inference;
mod objective;

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use vim_comm::Comm;
use vim_data::dense_ops::overlay;
use vim_data::{
    Batch, Confusion, DenseRecipe, EvalPair, EvalPairs, Floors, Loader, LoaderConfig, OnBad,
    Purpose, Split, Splits, contact_sheet, encode_png,
};
use vim_dense::Segmenter;
use vim_run::PER_CLASS;
use vim_run::metrics::{Picture, ScoreKind};
use vim_run::signals::StopRequest;

use super::classification::{absent, to_tensors};
use super::{Description, EvalSplit, Evaluation, Task, Tested, loaders};
use crate::config::{Config, ConfigError};
use crate::error::Error;
use classes::{class_rows, classes_csv};
use evaluate::{Loading, evaluate, scores};
use inference::Viewer;
pub(crate) use objective::placement;
pub use objective::{ClassShare, ClassShares, Mapped, PixelClassifier};

/// Images of an evaluation that are shown.
const PICTURES: usize = 4;

/// Images that the floors are learned from.
const FLOOR_IMAGES: usize = 1000;

/// Segmentation of a dataset's images.
#[derive(Debug)]
pub struct Segmentation {
    config: Config,
    objective: PixelClassifier,
    splits: Splits,
    loader: Loader,
    comm: Comm,
}

impl Segmentation {
    fn new(config: &Config, splits: Splits, comm: &Comm) -> Result<Self, ConfigError> {
        let objective = PixelClassifier::new(config, splits.train.num_classes(), comm)?;
        let train = &config.train;
        let together = train.batch_size / train.accumulate;
        if together < 2 {
            let expected = "2 images or more in a micro-batch, as batch normalization needs";
            return Err(ConfigError::range("train.batch_size", train.batch_size, expected));
        }
        let training = training(config, comm);
        let loader = Loader::new(splits.train.clone(), training).map_err(ConfigError::of_data)?;
        let config = config.clone();
        Ok(Self { config, objective, splits, loader, comm: comm.clone() })
    }

    /// What needs no network, of images that are drawn: these alone are at hand at once.
    fn floors(&self) -> Result<Option<String>, Error> {
        if self.config.data.dataset.has_files() {
            return Ok(None);
        }
        let Splits { train, test, .. } = &self.splits;
        let Floors { majority, colour } = Floors::measure(train, test, FLOOR_IMAGES)?;
        let [majority, colour] =
            [majority, colour].map(|counts| evaluate::MIOU.show(counts.mean_iou()));
        Ok(Some(format!(
            "floors of the test images' mIoU: {majority} by the commonest class everywhere, {colour} \
             by each pixel's colour alone"
        )))
    }

    fn counted(
        &self,
        model: &Segmenter,
        split: &Split,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<(Confusion, usize)>, Error> {
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
        purpose: Purpose::Dense(config.pairs()),
        ..loaders::training(config, config.model.image_size, comm)
    }
}

/// How the images of `split` are shown to the model in evaluation.
pub(crate) fn viewer(config: &Config, split: &Split) -> Viewer {
    let statistics = split.statistics(config.data.normalize);
    Viewer { recipe: config.pairs(), statistics, multi_scale: false }
}

/// How the pairs of an evaluation are loaded.
pub(crate) fn loading(config: &Config) -> Loading {
    Loading { threads: config.data.workers.count(), on_bad: config.data.bad_test.into() }
}

/// The images and label maps of a batch of `split` on the device.
fn upload(config: &Config, split: &Split, batch: &Batch, device: &Device) -> Result<Mapped, Error> {
    let statistics = split.statistics(config.data.normalize);
    let (images, _) = to_tensors(batch, statistics, device)?;
    let maps = batch.label_maps.as_ref();
    let maps = maps.ok_or_else(|| Error::internal("a batch without label maps"))?;
    let labels: Vec<i32> = maps.iter().map(|&label| i32::from(label)).collect();
    let shape = [batch.len(), batch.height, batch.width];
    Ok(Mapped { images, labels: Tensor::from_data(TensorData::new(labels, shape), device) })
}

impl Task for Segmentation {
    type Objective = PixelClassifier;
    type Batch = Batch;
    type Batches = vim_data::Batches;

    const SCORES: &'static [ScoreKind] = evaluate::SCORES;
    const PRIMARY: ScoreKind = evaluate::MIOU;

    fn open(config: &Config, device: &Device, comm: &Comm) -> Result<Self, Error> {
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        let splits = vim_data::open::<vim_data::LabelMap>(&config.data, config.run.seed)?;
        Ok(Self::new(config, splits, comm)?)
    }

    fn preflight(config: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError> {
        let splits = vim_data::dry_run::<vim_data::LabelMap>(&config.data, config.run.seed)
            .map_err(ConfigError::of_data)?;
        let task = match splits {
            Some(splits) => Some(Self::new(config, splits, &Comm::single())?),
            None => {
                training(config, &Comm::single()).check().map_err(ConfigError::of_data)?;
                None
            }
        };
        Ok((task, absent(config)))
    }

    fn objective(&self) -> &PixelClassifier {
        &self.objective
    }

    fn describe(&self) -> Result<Description, Error> {
        let (model, splits) = (&self.config.model, &self.splits);
        let DenseRecipe { scale: [long, short], ratio: [least, most], inference, .. } =
            self.config.pairs();
        let size = model.image_size;
        let cost = self.config.segmenter().cost(model, splits.train.num_classes())?;
        Ok(Description {
            model: format!(
                "UperNet on {} tokens, method {} (ssm.series = {})",
                model.num_tokens(),
                model.method_label(),
                model.ssm.series
            ),
            parameters: cost.parameters(),
            image_bytes: (size.height * size.width * 4) as u64,
            data: format!(
                "data {} train, {} val, {} test pairs, {} classes; crops of {size} px from images \
                 of {short} to {long} px times {least} to {most}; evaluation {inference}",
                splits.train.len(),
                splits.val.as_ref().map_or(0, Split::len),
                splits.test.len(),
                splits.train.num_classes(),
            ),
            notes: splits.notes.iter().cloned().chain(self.floors()?).collect(),
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

    fn upload(&self, batch: &Batch, device: &Device) -> Result<Mapped, Error> {
        upload(&self.config, &self.splits.train, batch, device)
    }

    fn has_validation(&self) -> bool {
        self.splits.val.is_some()
    }

    fn evaluate(
        &self,
        model: &Segmenter,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error> {
        let counted = self.counted(model, self.split(split), device, stop)?;
        Ok(counted.map(|(confusion, images)| scores(&confusion, images)))
    }

    /// With a row for each class.
    fn test(
        &self,
        model: &Segmenter,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Tested>, Error> {
        let counted = self.counted(model, &self.splits.test, device, stop)?;
        let Some((confusion, images)) = counted else { return Ok(None) };
        let rows = classes_csv(&class_rows(self.class_names(), &confusion))?;
        let evaluation = scores(&confusion, images);
        Ok(Some(Tested { evaluation, table: Some((PER_CLASS, rows)) }))
    }

    /// The first images, each beside what is predicted and what is labelled.
    fn pictures(
        &self,
        model: &Segmenter,
        split: EvalSplit,
        device: &Device,
    ) -> Result<Vec<Picture>, Error> {
        let (name, split) = (split.name(), self.split(split));
        let maps = split.dataset().label_maps();
        let colours = maps.map(|maps| maps.colours.clone()).unwrap_or_default();
        let viewer = viewer(&self.config, split);
        let positions = (0..split.len().min(PICTURES)).collect();
        let mut pictures = Vec::new();
        for pair in EvalPairs::new(split, positions, PICTURES, OnBad::CountAsWrong)? {
            let Ok(EvalPair { position, image, map }) = pair? else { continue };
            let predicted = viewer.labels(model, &image, device)?;
            let seen = [&predicted, &map.labels].map(|labels| overlay(&image, labels, &colours));
            let [predicted, labelled] = seen.map(Some);
            let sheet = contact_sheet(&[Some(image), predicted, labelled], 3);
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
    ) -> Result<impl Fn(&Segmenter) -> Result<(), Error>, Error> {
        let split = self.split(EvalSplit::Val);
        let mut pairs = EvalPairs::new(split, vec![0], 1, OnBad::Fail)?;
        let pair = pairs.next().transpose()?.and_then(Result::ok);
        let pair = pair.ok_or_else(|| Error::internal("an evaluation without images"))?;
        let viewer = viewer(&self.config, split);
        Ok(move |model: &Segmenter| viewer.labels(model, &pair.image, device).map(|_| ()))
    }
}
