//! What the commands need of a task that configurations name, beside what the loop needs.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::Serialize;
use vim_comm::Comm;
use vim_data::{Annotation, Batch, Batches, DataError, LoaderConfig, Split, Splits};
use vim_model::Vim;
use vim_run::signals::StopRequest;

use super::explained::Explained;
use super::frame::Seer;
use super::without_data::WithoutData;
use super::{Model, Task};
use crate::config::Config;
use crate::error::Error;
use crate::output::OutputError;
use crate::weights::heads::Heads;

/// A task that the key `task` of a configuration names.
pub(crate) trait NamedTask:
    Task<Objective: WithoutData, Batch = Batch, Batches = Batches>
{
    /// What its images are annotated with.
    type Annotation: Annotation;
    /// What its models have on their backbone, for weights.
    type Heads: Heads<Model = Model<Self>>;
    /// What `eval` says of a split.
    type Report: Report;
    /// A model with all that it takes to answer about images.
    type Trained: Explained;
    /// What `predict` says of an image: as JSON for scripts, by `Display` for people.
    type Answer: Serialize + Display;

    /// The flags of `eval` and `predict` that have no meaning for it, each with the reason and what
    /// to use instead.
    const REFUSED: &'static [(&'static str, &'static str)];
    /// Images that `predict` takes at a time where no flag says so.
    const PREDICTED_AT_A_TIME: usize;
    /// Whether the weights alone do not say how images are shown to the model.
    const NEEDS_CONFIG: bool;
    /// Whether its runs record the scores of each class, by which sweeps are compared.
    const SCORES_CLASSES: bool;

    /// Opens the data of `config`.
    fn splits(config: &Config) -> Result<Splits, DataError> {
        vim_data::open::<Self::Annotation>(&config.opened_data())
    }

    /// Loader settings for training: the shards of this rank, at the model's image size.
    fn training(config: &Config, comm: &Comm) -> LoaderConfig;

    /// Loader settings for evaluation, where it has batches of one size.
    fn evaluation(_config: &Config) -> Option<LoaderConfig> {
        None
    }

    /// The names of a published dataset with `count` classes.
    fn published_names(count: usize) -> Option<Vec<String>>;

    /// Evaluates `model`; `None` if a signal asked to stop.
    fn report(model: Model<Self>, of: &Evaluating<'_>) -> Result<Option<Self::Report>, Error>;

    /// Checks the files that [`Self::predictor`] writes of each of the images at `paths`, and makes
    /// their folders.
    fn check_files(_options: &PredictOptions, _paths: &[PathBuf]) -> Result<(), Error> {
        Ok(())
    }

    /// `model` with all that it takes to answer about images.
    fn trained(model: Model<Self>, with: Settings<'_>) -> Result<Self::Trained, Error>;

    /// A function that says what `trained` makes of each of some image files, or why one cannot be
    /// read, and writes the files asked for.
    #[expect(clippy::type_complexity, reason = "a result for all of the images, and for each")]
    fn predictor(
        trained: Self::Trained,
        options: &PredictOptions,
    ) -> Result<impl FnMut(&[PathBuf]) -> Result<Vec<Result<Self::Answer, String>>, Error>, Error>;

    /// The content of the file that `predict --output` asks for, by a model of the weights called
    /// `weights`.
    fn table(_format: Format, _answers: &[Self::Answer], _weights: &str) -> Result<Vec<u8>, Error> {
        Err(Error::internal("a table of a task that has none"))
    }

    /// The model as `features` reads it, where the task has such a model, and how it sees images.
    fn into_features(_trained: Self::Trained) -> Option<(Vim, Seer)> {
        None
    }
}

/// Refuses the flags of `given` that have no meaning for a task.
pub(crate) fn check_flags<T: NamedTask>(given: &[&str]) -> Result<(), Error> {
    match T::REFUSED.iter().find(|(flag, _)| given.contains(flag)) {
        None => Ok(()),
        Some((flag, why)) => Err(Error::usage(format!(
            "{flag} has no meaning with task = \"{}\": {why}",
            T::Heads::TASK
        ))),
    }
}

/// What is evaluated, and how.
pub struct Evaluating<'a> {
    /// Of the model and the data.
    pub config: &'a Config,
    /// The images.
    pub split: &'a Split,
    /// Images at a time; `None` leaves it to the task.
    pub batch: Option<usize>,
    /// Whether each image is seen at several sizes and mirrored.
    pub multi_scale: bool,
    /// What to compute on.
    pub device: &'a Device,
    /// The ranks that share the images.
    pub comm: &'a Comm,
    /// Ends the evaluation early.
    pub stop: &'a StopRequest,
    /// Told how many more images are done.
    pub advance: &'a dyn Fn(usize),
}

/// The result of an evaluation; as JSON its scores and what they are of.
pub(crate) trait Report: Serialize {
    /// Images evaluated.
    fn images(&self) -> usize;

    /// Writes the files asked for; `title` is what a figure is called.
    fn write(&self, split: &Split, options: &EvalOptions, title: &str) -> Result<(), Error>;

    /// What people read of the images called `name`, a text for each paragraph.
    fn lines(&self, name: &str) -> Vec<String>;
}

/// What `eval` does and writes beside its scores.
#[derive(Debug, Default)]
pub struct EvalOptions {
    /// Write what the model says of each image to this file, as CSV.
    pub predictions: Option<PathBuf>,
    /// Write the scores of each class to this file, as CSV.
    pub per_class: Option<PathBuf>,
    /// Write which classes are taken for which to this file, as a table (.csv) or a figure (.svg).
    pub confusion: Option<PathBuf>,
    /// Segmentation only: see each image at six sizes and mirrored, and average the probabilities.
    pub multi_scale: bool,
    /// Detection only: write the detections to this file, as COCO's evaluation takes them.
    pub detections: Option<PathBuf>,
    /// Detection only: write the annotations of the same images to this file, likewise.
    pub annotations: Option<PathBuf>,
}

impl EvalOptions {
    /// The flags that are set.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let Self { predictions, per_class, confusion, multi_scale, detections, annotations } = self;
        flags([
            ("--predictions", predictions.is_some()),
            ("--per-class", per_class.is_some()),
            ("--confusion", confusion.is_some()),
            ("--multi-scale", *multi_scale),
            ("--detections", detections.is_some()),
            ("--annotations", annotations.is_some()),
        ])
    }

    /// The files to be written.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let Self { predictions, per_class, confusion, detections, annotations, .. } = self;
        let files = [predictions, per_class, confusion, detections, annotations];
        files.into_iter().filter_map(Option::as_deref)
    }
}

/// What a model needs beside its weights, to answer about images.
pub(crate) struct Settings<'a> {
    /// The configuration that is given, else the one recorded with the weights, if any.
    pub(crate) config: Option<&'a Config>,
    /// Names of the classes, by number.
    pub(crate) classes: Vec<String>,
    /// What to compute on.
    pub(crate) device: &'a Device,
}

impl<'a> Settings<'a> {
    /// The configuration of a task with [`NamedTask::NEEDS_CONFIG`].
    pub(super) fn config(&self) -> Result<&'a Config, Error> {
        self.config.ok_or_else(|| Error::internal("predictions without a configuration"))
    }
}

/// What `predict` prints and writes.
#[derive(Debug, Default)]
pub struct PredictOptions {
    /// How many classes to print, the likeliest first; of objects, how many. Left out: 5 classes,
    /// and all objects.
    pub top: Option<usize>,
    /// Write the predictions to this file instead: a table (.csv), a line of JSON for each image
    /// (.jsonl), or a page with thumbnails (.html).
    pub output: Option<PathBuf>,
    /// Segmentation only: write a label map in the classes' colours (NAME.png) and the image seen
    /// through it (NAME_overlay.png) of each image to this folder, and classes.svg, their legend.
    pub maps: Option<PathBuf>,
    /// Segmentation only: write grey label maps to this folder, whose classes are numbered from 1
    /// as ADE20K's server takes them.
    pub submission: Option<PathBuf>,
    /// Segmentation only: see each image at six sizes and mirrored, and average the probabilities.
    pub multi_scale: bool,
    /// Detection only: write each image with boxes, masks and names drawn over it
    /// (NAME_objects.png) to this folder.
    pub drawn: Option<PathBuf>,
    /// Detection only: the score from which an object is printed and drawn, 0 to 1. Left out: 0.5,
    /// and 0 with --json.
    pub least: Option<f32>,
    /// Write over the output if it is there.
    pub force: bool,
    /// Print the result as JSON.
    pub json: bool,
}

/// Classes to print where no flag says how many.
pub(super) const TOP: usize = 5;

impl PredictOptions {
    /// The flags that are set.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let Self { top, output, maps, submission, multi_scale, drawn, least, force, json } = self;
        flags([
            ("--top", top.is_some()),
            ("--output", output.is_some()),
            ("--maps", maps.is_some()),
            ("--submission", submission.is_some()),
            ("--multi-scale", *multi_scale),
            ("--drawn", drawn.is_some()),
            ("--least", least.is_some()),
            ("--force", *force),
            ("--json", *json),
        ])
    }

    /// The form of `--output`.
    pub(crate) fn format(&self) -> Result<Option<Format>, Error> {
        self.output.as_deref().map(Format::of).transpose()
    }
}

/// The names of those flags that are set.
fn flags<const N: usize>(flags: [(&'static str, bool); N]) -> Vec<&'static str> {
    flags.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
}

/// The form of a file of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    JsonLines,
    Html,
}

impl Format {
    /// The form that the name of `path` asks for.
    fn of(path: &Path) -> Result<Self, Error> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            Some("html") => Ok(Self::Html),
            Some(_) | None => {
                let expected = ".csv, .jsonl or .html";
                Err(OutputError::Extension { path: path.to_owned(), expected }.into())
            }
        }
    }
}
