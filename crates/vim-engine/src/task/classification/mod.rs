//! Image classification by a Vision Mamba; the primary score is top-1.

mod answers;
mod batch;
pub mod evaluate;
mod gallery;
pub mod predict;
pub(crate) mod predictions;
mod trained;
mod weights;
mod worst;

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use vim_comm::Comm;
use vim_data::{Batch, Class, CropMode, Loader, LoaderConfig, Recipe, Split, Splits};
use vim_kernels::{KernelError, Recompute, in_own_buffer, overwrite};
use vim_model::{Cost, ModelError, Vim, VimConfig, decays, layer_of};
use vim_run::PREDICTIONS;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use super::{
    Description, Draw, EvalSplit, Evaluation, Held, InitWeights, Objective, Pictures, Placement,
    Task, Tested, absent, batches, drawing, known, recompute_warning,
};
use crate::config::{Config, ConfigError, LossKind};
use crate::error::Error;
use crate::task::classes::{as_begun, unlearnable};
use crate::task::init::{InitFor, init_weights};
use crate::task::without_data::{self, Forward, Pass, WithoutData};
use crate::weights::record::{Recorded, RecordedData};
pub use batch::{Mixed, Targets, cross_entropy};
use batch::{bce, check_threshold, target_loss, to_tensors};
use evaluate::evaluate;
use predictions::Predictions;
pub use trained::TrainedClassifier;
use weights::LinearHead;

/// A Vision Mamba and its classification loss.
#[derive(Debug)]
pub struct Classifier {
    config: Config,
    model: VimConfig,
}

/// Images and targets on the device.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// `[B, 3, H, W]`, normalized, erased and mixed.
    pub images: Tensor<4>,
    /// Classes, and those mixed in.
    pub targets: Targets,
}

impl Labelled {
    fn held(&self) -> Self {
        Self { images: in_own_buffer(&self.images), targets: self.targets.held() }
    }

    fn overwrite(&self, by: Self) -> Result<(), KernelError> {
        overwrite(&self.images, by.images)?;
        self.targets.overwrite(by.targets)
    }
}

impl Classifier {
    /// The classifier of `config` with the head of `model`.
    pub fn new(config: &Config, model: VimConfig) -> Result<Self, ConfigError> {
        check_threshold(&config.train, model.num_classes)?;
        Ok(Self { config: config.clone(), model })
    }

    /// Its model.
    pub(crate) fn model(&self) -> &VimConfig {
        &self.model
    }
}

impl Objective for Classifier {
    type Model = Vim;
    type Inputs = Labelled;

    fn init(&self, device: &Device) -> Result<Vim, Error> {
        let Config { run, train, .. } = &self.config;
        let seeded = self.model.init(device, run.seed)?;
        Ok(seeded.with_precision(train.precision)?.with_recompute(train.recompute.into()))
    }

    fn with_recompute(model: Vim, recompute: Recompute) -> Vim {
        model.with_recompute(recompute)
    }

    /// For fine-tuning, the head may have other classes and the positions another grid.
    fn load_init(&self, device: &Device, of: &InitFor) -> Result<Option<InitWeights<Vim>>, Error> {
        init_weights::<LinearHead>(self, &self.config, of, device)
    }

    fn placement(&self, path: &str, rank: usize) -> Placement {
        let depth = self.model.depth;
        Placement {
            decays: decays(path, rank, self.config.optim.decay_groups),
            layers_above: depth + 1 - layer_of(path, depth),
        }
    }

    fn held(&self) -> Result<Held<Labelled>, String> {
        Ok(Held { hold: Labelled::held, overwrite: Labelled::overwrite })
    }

    fn count(inputs: &Labelled) -> usize {
        inputs.images.dims()[0]
    }

    fn loss(
        &self,
        model: &Vim,
        Labelled { images, targets }: Labelled,
        range: Range<usize>,
        Draw { seed, first: before }: Draw,
    ) -> Result<Tensor<1>, Error> {
        let (first, len) = (range.start, range.len());
        let (images, targets) = if len == images.dims()[0] {
            (images, targets)
        } else {
            (images.narrow(0, first, len), targets.narrow(first, len))
        };
        let logits = model.forward_train_part(images, seed, before + first)?;
        let train = &self.config.train;
        Ok(match train.loss {
            LossKind::CrossEntropy => target_loss(logits, targets, train.label_smoothing),
            LossKind::Bce => bce(logits, targets, train.label_smoothing, train.bce_threshold),
        })
    }
}

impl WithoutData for Classifier {
    fn without_data(config: &Config, classes: usize, _comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, config.model.with_classes(classes)?)?)
    }

    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
        config.model.with_classes(classes)?.cost()
    }

    fn random(&self, count: usize, device: &Device) -> Labelled {
        let model = self.model();
        let labels = without_data::labels(count, model.num_classes, device);
        Labelled {
            images: without_data::images(count, model.image_size, device),
            targets: Targets::new(labels, None),
        }
    }

    /// Images to logits.
    fn forward<'a>(
        _config: &Config,
        model: &'a Vim,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error> {
        let sum = |logits: Tensor<2>| logits.abs().sum();
        match pass {
            Pass::Whole => Ok(Box::new(move || Ok(sum(model.forward(images.clone())?)))),
            Pass::Recorded => {
                let graph = without_data::record(model, &images)?;
                Ok(Box::new(move || Ok(sum(graph.replay(images.clone())?))))
            }
            Pass::Windows => Err(pass.refused()),
        }
    }
}

/// Classification of a dataset's images.
#[derive(Debug)]
pub struct Classification {
    classifier: Classifier,
    splits: Splits,
    loader: Loader,
    evaluation: LoaderConfig,
    comm: Comm,
}

impl Classification {
    fn new(config: &Config, splits: Splits, comm: &Comm) -> Result<Self, ConfigError> {
        let classes = splits.train.num_classes();
        let model = config.model.with_classes(classes)?;
        check_image_size(&model, &config.augment, &splits.train)?;
        let evaluation = batches::evaluation(config, model.image_size, comm);
        let training = batches::training(config, model.image_size, comm);
        let loader = Loader::new(splits.train.clone(), training).map_err(ConfigError::of_data)?;
        let classifier = Classifier::new(config, model)?;
        Ok(Self { classifier, splits, loader, evaluation, comm: comm.clone() })
    }

    /// Evaluates `model` on `split`; `each` gets what [`evaluate`] gives it.
    fn evaluate_each(
        &self,
        model: &Vim,
        split: &Split,
        device: &Device,
        stop: &StopRequest,
        each: &mut dyn FnMut(usize, &[f32], bool),
    ) -> Result<Option<Evaluation>, Error> {
        let statistics = split.statistics(self.classifier.config.data.normalize);
        let loading = self.evaluation.clone();
        evaluate(model, split, statistics, loading, device, (&self.comm, stop), each)
    }

    /// Queues the upload of a batch of `split`, normalized by its statistics.
    fn upload_of(&self, split: &Split, batch: &Batch, device: &Device) -> Result<Labelled, Error> {
        let statistics = split.statistics(self.classifier.config.data.normalize);
        let (images, targets) = to_tensors(batch, statistics, device)?;
        Ok(Labelled { images, targets })
    }
}

impl Task for Classification {
    type Objective = Classifier;
    type Batch = Batch;
    type Batches = vim_data::Batches;

    const SCORES: &'static [ScoreKind] = evaluate::SCORES;
    const PRIMARY: ScoreKind = evaluate::TOP1;

    fn open(
        config: &Config,
        device: &Device,
        comm: &Comm,
        classes: &[String],
    ) -> Result<Self, Error> {
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        let splits = vim_data::open::<Class>(&config.data)?;
        let mut task = Self::new(config, as_begun(splits, classes, config)?, comm)?;
        let steps = config.train.total_steps(task.steps_per_epoch());
        known::check(&mut task.splits, config, steps, comm)?;
        Ok(task)
    }

    fn preflight(config: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError> {
        let splits = vim_data::dry_run::<Class>(&config.data).map_err(ConfigError::of_data)?;
        let task = match splits {
            Some(splits) => Some(Self::new(config, splits, &Comm::single())?),
            None => {
                let size = config.model.image_size;
                let training = batches::training(config, size, &Comm::single());
                training.check().map_err(ConfigError::of_data)?;
                None
            }
        };
        Ok((task, absent(config)))
    }

    fn objective(&self) -> &Classifier {
        &self.classifier
    }

    fn describe(&self) -> Result<Description, Error> {
        let (model, splits) = (&self.classifier.model, &self.splits);
        let size = model.image_size;
        let sides = batches::sides(size);
        let (recipe, images) = (&self.classifier.config.augment, splits.train.image_size());
        let mut notes = splits.notes.clone();
        notes.extend(unlearnable(splits));
        if images.is_none() && recipe.crop == CropMode::Pad {
            notes.push(format!(
                "augment.crop = \"pad\" trains on pieces of {size} px of images of all sizes, as \
                 they are; \"auto\" resizes parts of them"
            ));
        }
        let [rows, columns] = model.unseen_margin();
        if rows + columns > 0 {
            let patch_size = model.patch_size;
            notes.push(format!(
                "patches of {patch_size} px every {} px leave the last {rows} rows and {columns} \
                 columns of {size} px unseen; choose model.image_size, patch_size or stride to fit",
                model.stride()
            ));
        }
        notes.extend(few_tokens(model));
        Ok(Description {
            model: format!(
                "{} tokens, method {} (ssm.series = {})",
                model.num_tokens(),
                model.method_label(),
                model.ssm.series
            ),
            parameters: model.num_parameters() as u64,
            image_bytes: (size.height * size.width * 3) as u64,
            data: format!(
                "data {} train, {} val, {} test images of {size} px, {} classes, {}",
                splits.train.len(),
                splits.val.as_ref().map_or(0, Split::len),
                splits.test.len(),
                splits.train.num_classes(),
                recipe.cropping(sides, images)
            ),
            notes,
        })
    }

    fn class_names(&self) -> &[String] {
        self.splits.train.class_names()
    }

    fn record(&self) -> Option<Recorded> {
        let config = &self.classifier.config;
        let data = RecordedData::of(&config.data, &self.splits);
        Some(Recorded::of_run(config, self.class_names(), data))
    }

    fn device_warning(&self, model: &Vim, device: &Device) -> Option<String> {
        recompute_warning(self.classifier.config.train.recompute, model, device)
    }

    fn mixes_pairs(&self) -> bool {
        self.classifier.config.augment.mixes()
    }

    fn steps_per_epoch(&self) -> u64 {
        self.loader.batches_per_epoch() as u64
    }

    fn batches(&self, steps: Range<u64>) -> vim_data::Batches {
        self.loader.batches(steps)
    }

    fn upload(&self, batch: &Batch, device: &Device) -> Result<Labelled, Error> {
        self.upload_of(&self.splits.train, batch, device)
    }

    fn has_validation(&self) -> bool {
        self.splits.val.is_some()
    }

    fn evaluate(
        &self,
        model: &Vim,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error> {
        let split = match split {
            EvalSplit::Val => self.splits.val.as_ref().unwrap_or(&self.splits.test),
            EvalSplit::Test => &self.splits.test,
        };
        self.evaluate_each(model, split, device, stop, &mut |_, _, _| {})
    }

    fn test(
        &self,
        model: &Vim,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Tested>, Error> {
        let mut predictions = Predictions::of(&self.splits.test);
        let mut each = |place, logits: &[f32], is_read| predictions.add(place, logits, is_read);
        let evaluation = self.evaluate_each(model, &self.splits.test, device, stop, &mut each)?;
        let Some(evaluation) = evaluation else { return Ok(None) };
        let table = Some((PREDICTIONS, predictions.shared(&self.comm)?.csv()?));
        Ok(Some(Tested { evaluation, table }))
    }

    fn galleries(
        &self,
        _model: &Vim,
        _device: &Device,
        run: &Path,
    ) -> Result<Vec<Pictures>, Error> {
        let config = &self.classifier.config;
        let plain = batches::evaluation(config, config.model.image_size, &Comm::single());
        let statistics = self.splits.train.statistics(config.data.normalize);
        let worst = worst::mistakes(&self.splits.test, &run.join(PREDICTIONS), plain.clone())?;
        Ok(vec![worst, drawing::first_batch(&self.loader, plain, statistics)])
    }

    fn evaluation_batch(
        &self,
        device: &Device,
    ) -> Result<impl Fn(&Vim) -> Result<(), Error>, Error> {
        let split = self.splits.val.as_ref().unwrap_or(&self.splits.test);
        let batch = Loader::new(split.clone(), self.evaluation.clone())?.epoch(0, 0).next();
        let batch = batch.expect("invariant: a loader has at least one batch")?;
        Ok(move |model: &Vim| {
            let Labelled { images, .. } = self.upload_of(split, &batch, device)?;
            let _: Vec<f32> = model.forward(images)?.into_data().iter().collect();
            Ok(())
        })
    }
}

/// Checks that images that are padded and cropped instead of resized have the model's size.
pub fn check_image_size(
    model: &VimConfig,
    recipe: &Recipe,
    split: &Split,
) -> Result<(), ConfigError> {
    let wanted = batches::sides(model.image_size);
    let images = split.image_size();
    match images {
        Some(size) if size != wanted && recipe.crop_mode(wanted, images) == CropMode::Pad => {
            let [height, width] = size;
            let size =
                if height == width { height.to_string() } else { format!("{height}x{width}") };
            let expected = format!(
                "{size}, the size of the dataset's images, which augment.crop = \"pad\" does not \
                 change"
            );
            Err(ConfigError::range("model.image_size", model.image_size, expected))
        }
        Some(_) | None => Ok(()),
    }
}
/// Fewer patches than this leave the blocks little to relate.
const FEW_PATCHES: usize = 16;

/// A note of an image that is cut into very few patches, as the default patch does with a small
/// one.
fn few_tokens(model: &VimConfig) -> Option<String> {
    let ([rows, columns], tokens) = (model.grid(), model.num_tokens());
    let (size, patch) = (model.image_size, model.patch_size);
    let side = size.height.min(size.width);
    let fit = (1..=side / 7).rev().find(|patch| side.is_multiple_of(*patch))?;
    (rows * columns < FEW_PATCHES && fit < patch).then(|| {
        format!(
            "patches of {patch} px make {tokens} tokens of an image of {size} px, {rows} x \
             {columns} patches: small pieces alone are seen as a whole; model.patch_size = {fit} \
             makes more"
        )
    })
}
