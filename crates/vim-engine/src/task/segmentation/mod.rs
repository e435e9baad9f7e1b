//! Semantic segmentation by UperNet on Vision Mamba; the primary score is mean IoU.

mod answers;
pub(crate) mod classes;
pub mod evaluate;
pub mod inference;
mod objective;
mod trained;
mod weights;

use burn::tensor::{Device, Tensor, TensorData};
use vim_comm::Comm;
use vim_data::dense_ops::overlay;
use vim_data::{
    Batch, Confusion, DenseRecipe, EvalPair, EvalPairs, Floors, LabelMap, OnBad, Purpose, Split,
    Splits,
};
use vim_dense::Segmenter;
use vim_model::Vim;
use vim_run::metrics::ScoreKind;

use super::dense::{DenseObjective, DenseTask, Drawn, PICTURES};
use super::kinds::parameters;
use super::named::Evaluating;
use super::{Description, Evaluation, batches};
use crate::config::{Config, ConfigError};
use crate::error::Error;
use classes::{class_rows, classes_csv};
use evaluate::{Loading, evaluate, scores};
use inference::Viewer;
pub use objective::{ClassShare, ClassShares, Mapped, PixelClassifier, placement};
pub use trained::{PixelClasses, TrainedSegmenter};

/// Images that the floors are learned from.
const FLOOR_IMAGES: usize = 1000;

/// Segmentation of a dataset's images.
pub type Segmentation = DenseTask<PixelClassifier>;

/// What needs no network, of images that are drawn: these alone are at hand at once.
fn floors(config: &Config, splits: &Splits) -> Result<Option<String>, Error> {
    if config.data.dataset.has_files() {
        return Ok(None);
    }
    let Splits { train, test, .. } = splits;
    let Floors { majority, colour } = Floors::measure(train, test, FLOOR_IMAGES)?;
    let [majority, colour] =
        [majority, colour].map(|counts| evaluate::MIOU.show(counts.mean_iou()));
    Ok(Some(format!(
        "floors of the test images' mIoU: {majority} by the commonest class everywhere, {colour} \
         by each pixel's colour alone"
    )))
}

/// How the images of `split` are shown to the model in evaluation.
fn viewer(config: &Config, split: &Split) -> Viewer {
    let statistics = split.statistics(config.data.normalize);
    Viewer { recipe: config.pairs(), statistics, multi_scale: false }
}

impl DenseObjective for PixelClassifier {
    type Annotation = LabelMap;
    /// The confusion of all pixels, and the number of images.
    type Measured = (Confusion, usize);

    const SCORES: &'static [ScoreKind] = evaluate::SCORES;
    const PRIMARY: ScoreKind = evaluate::MIOU;

    fn new(config: &Config, classes: usize, comm: &Comm) -> Result<Self, ConfigError> {
        Self::new(config, classes, comm)
    }

    fn backbone(model: &Segmenter) -> &Vim {
        &model.backbone
    }

    fn purpose(config: &Config) -> Purpose {
        Purpose::Dense(config.pairs())
    }

    fn describe(config: &Config, splits: &Splits) -> Result<Description, Error> {
        let model = &config.model;
        let DenseRecipe { scale: [long, short], ratio: [least, most], inference, .. } =
            config.pairs();
        let size = model.image_size;
        let classes = splits.train.num_classes();
        Ok(Description {
            model: format!(
                "UperNet on {} tokens, method {} (ssm.series = {})",
                model.num_tokens(),
                model.method_label(),
                model.ssm.series
            ),
            parameters: parameters(config, classes)?,
            image_bytes: (size.height * size.width * 4) as u64,
            data: format!(
                "data {} train, {} val, {} test pairs, {} classes; crops of {size} px from images \
                 of {short} to {long} px times {least} to {most}; evaluation {inference}",
                splits.train.len(),
                splits.val.as_ref().map_or(0, Split::len),
                splits.test.len(),
                splits.train.num_classes(),
            ),
            notes: splits.notes.iter().cloned().chain(floors(config, splits)?).collect(),
        })
    }

    fn upload(
        config: &Config,
        split: &Split,
        batch: &Batch,
        device: &Device,
    ) -> Result<Mapped, Error> {
        let images = batches::images(batch, split.statistics(config.data.normalize), device)?;
        let maps = batch.label_maps.as_ref();
        let maps = maps.ok_or_else(|| Error::internal("a batch without label maps"))?;
        let labels: Vec<i32> = maps.iter().map(|&label| i32::from(label)).collect();
        let shape = [batch.len(), batch.height, batch.width];
        Ok(Mapped { images, labels: Tensor::from_data(TensorData::new(labels, shape), device) })
    }

    fn measure(
        model: &Segmenter,
        of: &Evaluating<'_>,
    ) -> Result<Option<(Confusion, usize)>, Error> {
        let &Evaluating { config, split, batch, multi_scale, device, comm, stop, advance } = of;
        let viewer = Viewer { multi_scale, ..viewer(config, split) };
        let loading = Loading {
            threads: config.data.workers.count(),
            batch: batch.unwrap_or(1),
            on_bad: config.data.bad_test.into(),
        };
        let mut each = |_: &_, _: &_| {
            advance(1);
            Ok(())
        };
        evaluate(model, split, (&viewer, loading), device, (comm, stop), &mut each)
    }

    fn scores((confusion, images): &(Confusion, usize)) -> Evaluation {
        scores(confusion, *images)
    }

    fn classes_csv(
        (confusion, _): &(Confusion, usize),
        names: &[String],
    ) -> Result<Vec<u8>, Error> {
        classes_csv(&class_rows(names, confusion))
    }

    fn drawn(
        config: &Config,
        model: &Segmenter,
        split: &Split,
        device: &Device,
    ) -> Result<Vec<Drawn>, Error> {
        let maps = split.dataset().label_maps();
        let colours = maps.map(|maps| maps.colours.clone()).unwrap_or_default();
        let viewer = viewer(config, split);
        let positions = (0..split.len().min(PICTURES)).collect();
        let mut drawn = Vec::new();
        for pair in EvalPairs::new(split, positions, PICTURES, OnBad::CountAsWrong)? {
            let Ok(EvalPair { position, image, map }) = pair? else { continue };
            let labels = viewer.labels(model, &[&image], device)?.concat();
            let [said, labelled] =
                [&labels, &map.labels].map(|labels| overlay(&image, labels, &colours));
            drawn.push((position, [image, said, labelled], None));
        }
        Ok(drawn)
    }

    fn evaluation_batch(
        config: &Config,
        split: &Split,
        device: &Device,
    ) -> Result<impl Fn(&Segmenter) -> Result<(), Error>, Error> {
        let mut pairs = EvalPairs::new(split, vec![0], 1, OnBad::Fail)?;
        let pair = pairs.next().transpose()?.and_then(Result::ok);
        let pair = pair.ok_or_else(|| Error::internal("an evaluation without images"))?;
        let viewer = viewer(config, split);
        Ok(move |model: &Segmenter| viewer.labels(model, &[&pair.image], device).map(|_| ()))
    }
}
