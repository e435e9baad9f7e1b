//! What the tasks with targets inside of images share: segmentation and detection.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;
use vim_comm::Comm;
use vim_data::{
    Annotation, Batch, Batches, ClassList, LabelMaps, Loader, LoaderConfig, Pixels, Purpose, Split,
    Splits,
};
use vim_model::Vim;
use vim_run::PER_CLASS;
use vim_run::metrics::ScoreKind;
use vim_run::signals::StopRequest;

use super::named::Evaluating;
use super::without_data::WithoutData;
use super::{
    Description, EvalSplit, Evaluation, Pictures, Task, Tested, absent, batches, drawing, known,
    recompute_warning,
};
use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::task::classes::{as_begun, unlearnable};
use crate::weights::record::{Recorded, RecordedData};

/// Images of an evaluation that are shown.
pub(super) const PICTURES: usize = 4;

/// Most classes of a legend.
const NAMED: usize = 60;

/// An objective whose targets are inside of images, and its evaluation.
///
/// Errors name the faulty key, file or kernel.
pub trait DenseObjective: WithoutData {
    /// What its images are annotated with.
    type Annotation: Annotation;
    /// What an evaluation measures.
    type Measured;

    /// As [`Task::SCORES`].
    const SCORES: &'static [ScoreKind];
    /// As [`Task::PRIMARY`].
    const PRIMARY: ScoreKind;

    /// The objective of `config` for `classes` classes.
    fn new(config: &Config, classes: usize, comm: &Comm) -> Result<Self, ConfigError>;

    /// What all else of `model` reads features of.
    fn backbone(model: &Self::Model) -> &Vim;

    /// What the loader makes of an image.
    fn purpose(config: &Config) -> Purpose;

    /// Model and data in words and numbers.
    fn describe(config: &Config, splits: &Splits) -> Result<Description, Error>;

    /// Queues the upload of a batch of `split`.
    fn upload(
        config: &Config,
        split: &Split,
        batch: &Batch,
        device: &Device,
    ) -> Result<Self::Inputs, Error>;

    /// Evaluates `model`; `None` if a rank was asked to stop meanwhile.
    fn measure(model: &Self::Model, of: &Evaluating<'_>) -> Result<Option<Self::Measured>, Error>;

    /// The scores of what was measured.
    fn scores(measured: &Self::Measured) -> Evaluation;

    /// The scores of each of the classes called `names`, as CSV.
    fn classes_csv(measured: &Self::Measured, names: &[String]) -> Result<Vec<u8>, Error>;

    /// The first [`PICTURES`] images of `split` that can be read, by their places: each beside what
    /// `model` says of it and what is annotated, and what is to be said of the former.
    fn drawn(
        config: &Config,
        model: &Self::Model,
        split: &Split,
        device: &Device,
    ) -> Result<Vec<Drawn>, Error>;

    /// A function that evaluates one batch of `split`.
    fn evaluation_batch(
        config: &Config,
        split: &Split,
        device: &Device,
    ) -> Result<impl Fn(&Self::Model) -> Result<(), Error>, Error>;
}

/// An image by its place, beside it what a model says of it and what is annotated, and words for
/// the former.
pub(super) type Drawn = (usize, [Pixels; 3], Option<String>);

/// A dataset's images with such an objective.
#[derive(Debug)]
pub struct DenseTask<O> {
    config: Config,
    objective: O,
    splits: Splits,
    loader: Loader,
    comm: Comm,
}

impl<O: DenseObjective> DenseTask<O> {
    fn new(config: &Config, splits: Splits, comm: &Comm) -> Result<Self, ConfigError> {
        let objective = O::new(config, splits.train.num_classes(), comm)?;
        let together = config.train.images() / config.train.accumulate;
        if O::JOINT && together < 2 {
            let expected = "2 images or more in a micro-batch, as batch normalization needs";
            return Err(ConfigError::range("train.batch_size", config.train.images(), expected));
        }
        let training = training::<O>(config, comm);
        let loader = Loader::new(splits.train.clone(), training).map_err(ConfigError::of_data)?;
        let config = config.clone();
        Ok(Self { config, objective, splits, loader, comm: comm.clone() })
    }

    fn split(&self, split: EvalSplit) -> &Split {
        match split {
            EvalSplit::Val => self.splits.val.as_ref().unwrap_or(&self.splits.test),
            EvalSplit::Test => &self.splits.test,
        }
    }

    fn measured(
        &self,
        model: &O::Model,
        split: &Split,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<O::Measured>, Error> {
        let (config, comm) = (&self.config, &self.comm);
        let (batch, multi_scale, advance) = (None, false, &|_| {});
        O::measure(
            model,
            &Evaluating { config, split, batch, multi_scale, device, comm, stop, advance },
        )
    }
}

/// Loader settings for training: the shards of this rank, at the model's image size.
pub(super) fn training<O: DenseObjective>(config: &Config, comm: &Comm) -> LoaderConfig {
    LoaderConfig {
        purpose: O::purpose(config),
        ..batches::training(config, config.model.image_size, comm)
    }
}

/// The names of ADE20K or COCO, whichever has `count` classes.
pub(super) fn published_names(count: usize) -> Option<Vec<String>> {
    let mut lists = [ClassList::ade20k(), ClassList::coco()].into_iter();
    lists.find(|list| list.names.len() == count).map(|list| list.names)
}

/// Whether each image is annotated with some of the classes only, as LVIS's are: then nothing is
/// measured.
pub(super) fn is_federated(split: &Split) -> bool {
    split.dataset().object_classes().is_some_and(|classes| classes.federated)
}

impl<O: DenseObjective> Task for DenseTask<O> {
    type Objective = O;
    type Batch = Batch;
    type Batches = Batches;

    const SCORES: &'static [ScoreKind] = O::SCORES;
    const PRIMARY: ScoreKind = O::PRIMARY;

    fn open(
        config: &Config,
        device: &Device,
        comm: &Comm,
        classes: &[String],
    ) -> Result<Self, Error> {
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        let splits = vim_data::open::<O::Annotation>(&config.opened_data())?;
        let mut task = Self::new(config, as_begun(splits, classes, config)?, comm)?;
        let steps = config.train.total_steps(task.steps_per_epoch());
        known::check(&mut task.splits, config, steps, comm)?;
        Ok(task)
    }

    fn preflight(config: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError> {
        let comm = Comm::single();
        let splits = vim_data::dry_run::<O::Annotation>(&config.opened_data());
        let task = match splits.map_err(ConfigError::of_data)? {
            Some(splits) => Some(Self::new(config, splits, &comm)?),
            None => {
                // The files alone tell how many classes there are.
                O::new(config, config.task.usual_classes(), &comm)?;
                training::<O>(config, &comm).check().map_err(ConfigError::of_data)?;
                None
            }
        };
        Ok((task, absent(config)))
    }

    fn objective(&self) -> &O {
        &self.objective
    }

    fn describe(&self) -> Result<Description, Error> {
        let mut description = O::describe(&self.config, &self.splits)?;
        description.notes.extend(unlearnable(&self.splits));
        Ok(description)
    }

    fn class_names(&self) -> &[String] {
        self.splits.train.class_names()
    }

    fn device_warning(&self, model: &O::Model, device: &Device) -> Option<String> {
        recompute_warning(self.config.train.recompute, O::backbone(model), device)
    }

    fn record(&self) -> Option<Recorded> {
        let data = RecordedData::of(&self.config.data, &self.splits);
        Some(Recorded::of_run(&self.config, self.class_names(), data))
    }

    fn steps_per_epoch(&self) -> u64 {
        self.loader.batches_per_epoch() as u64
    }

    fn batches(&self, steps: Range<u64>) -> Batches {
        self.loader.batches(steps)
    }

    fn upload(&self, batch: &Batch, device: &Device) -> Result<O::Inputs, Error> {
        O::upload(&self.config, &self.splits.train, batch, device)
    }

    fn has_validation(&self) -> bool {
        // Of LVIS nothing can be measured that would choose a checkpoint.
        self.splits.val.as_ref().is_some_and(|val| !is_federated(val))
    }

    fn is_measured(&self) -> bool {
        !is_federated(&self.splits.test)
    }

    fn evaluate(
        &self,
        model: &O::Model,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error> {
        let measured = self.measured(model, self.split(split), device, stop)?;
        Ok(measured.as_ref().map(O::scores))
    }

    /// With a row for each class.
    fn test(
        &self,
        model: &O::Model,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Tested>, Error> {
        let Some(measured) = self.measured(model, &self.splits.test, device, stop)? else {
            return Ok(None);
        };
        let rows = O::classes_csv(&measured, self.class_names())?;
        Ok(Some(Tested { evaluation: O::scores(&measured), table: Some((PER_CLASS, rows)) }))
    }

    /// The first images, each beside what the model says and what is annotated.
    fn pictures(
        &self,
        model: &O::Model,
        split: EvalSplit,
        device: &Device,
    ) -> Result<Vec<(usize, [Pixels; 3])>, Error> {
        let drawn = O::drawn(&self.config, model, self.split(split), device)?;
        Ok(drawn.into_iter().map(|(position, pictures, _)| (position, pictures)).collect())
    }

    fn galleries(
        &self,
        model: &O::Model,
        device: &Device,
        _run: &Path,
    ) -> Result<Vec<Pictures>, Error> {
        let (config, test) = (&self.config, &self.splits.test);
        let image = |(position, [_, said, annotated], words): Drawn| {
            let name = test.dataset().name(test.index(position));
            [(said, "as the model says", words), (annotated, "as annotated", None)].map(
                |(pixels, whose, words)| {
                    let lines = std::iter::once(whose.to_owned()).chain(words).collect();
                    (name.clone(), pixels, lines)
                },
            )
        };
        let drawn = O::drawn(config, model, test, device)?;
        // Of objects each has its name beside it; of more classes nobody finds a colour.
        let maps = test.dataset().label_maps().filter(|maps| maps.colours.len() <= NAMED);
        let colours = |maps: &LabelMaps| {
            let names = test.class_names().iter().cloned();
            names.zip(maps.colours.iter().copied()).collect()
        };
        let legend = maps.map(colours);
        let predictions = Pictures {
            title: "Predictions",
            note: "The first test images: what the tested model says beside what is annotated."
                .to_owned(),
            legend: legend.unwrap_or_default(),
            images: drawn.into_iter().flat_map(image).collect(),
        };
        let plain = batches::evaluation(config, config.model.image_size, &Comm::single());
        let statistics = self.splits.train.statistics(config.data.normalize);
        Ok(vec![predictions, drawing::first_batch(&self.loader, plain, statistics)])
    }

    fn evaluation_batch(
        &self,
        device: &Device,
    ) -> Result<impl Fn(&O::Model) -> Result<(), Error>, Error> {
        O::evaluation_batch(&self.config, self.split(EvalSplit::Val), device)
    }
}
