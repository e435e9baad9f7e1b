//! What a run learns: the interface between the loop, which knows no model, and the tasks.

pub mod classification;
pub mod loaders;

use std::ops::Range;
use std::time::Duration;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use vim_data::{BadSample, Replica};
use vim_run::metrics::{ScoreKind, Scores};
use vim_run::signals::StopRequest;

use crate::config::{Config, ConfigError};
use crate::error::Error;

/// A model and its loss: what a step of training needs of a task.
///
/// Errors name the key, file or kernel that is wrong.
pub trait Objective {
    /// What is trained. Float parameters that require a gradient are optimized; all others, such as
    /// running statistics, are only saved and restored with them.
    type Model: Module;
    /// A training batch on the device: images and targets.
    type Inputs: Clone;

    /// The model with initial weights drawn from `run.seed`.
    fn init(&self, device: &Device) -> Result<Self::Model, Error>;

    /// The model with the weights of `train.init`, where that is set.
    fn load_init(&self, device: &Device) -> Result<Option<InitWeights<Self::Model>>, Error>;

    /// How the optimizer treats the parameter at `path`, a tensor with `rank` dimensions.
    fn placement(&self, path: &str, rank: usize) -> Placement;

    /// Images of a batch.
    fn count(inputs: &Self::Inputs) -> usize;

    /// The mean loss over the images `range` of a batch, `[1]`. What is drawn for an image depends
    /// on `seed` and on its place in the whole batch alone.
    fn loss(
        &self,
        model: &Self::Model,
        inputs: Self::Inputs,
        range: Range<usize>,
        seed: u64,
    ) -> Result<Tensor<1>, Error>;
}

/// What a run learns: an objective, the data, and an evaluation.
///
/// The loop owns everything else: steps, optimizer, moving average, checkpoints, resume, records.
/// Errors name the key, file or kernel that is wrong.
pub trait Task: Sized {
    /// The model and its loss.
    type Objective: Objective;
    /// A training batch on the host.
    type Batch;
    /// The training batches of a range of steps.
    type Batches: BatchStream<Batch = Self::Batch>;

    /// The scores of an evaluation, in the order of its records.
    const SCORES: &'static [ScoreKind];
    /// The score that chooses the best checkpoint; one of [`Self::SCORES`].
    const PRIMARY: ScoreKind;

    /// Opens the data for the device `replica`, and checks all that can be checked before training.
    fn open(config: &Config, device: &Device, replica: Replica) -> Result<Self, Error>;

    /// The task on data that are counted and not read, where their number is known without them;
    /// and a text for each file that may be missing where the run is to be.
    fn preflight(config: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError>;

    /// The model and its loss.
    fn objective(&self) -> &Self::Objective;

    /// Model and data in words and numbers.
    fn describe(&self) -> Result<Description, Error>;

    /// What the configuration asks for and `device` does not do, if anything.
    fn device_warning(&self, _model: &Model<Self>, _device: &Device) -> Option<String> {
        None
    }

    /// A warning about the training so far, if there is one; the loop logs the first.
    fn training_warning(&self) -> Option<String> {
        None
    }

    /// Whether images are mixed in pairs, so that their number in a batch must be even.
    fn mixes_pairs(&self) -> bool {
        false
    }

    /// Training steps of an epoch.
    fn steps_per_epoch(&self) -> u64;

    /// The training batches of `steps`, counted from the start of training.
    fn batches(&self, steps: Range<u64>) -> Self::Batches;

    /// Queues the upload of a training batch.
    fn upload(&self, batch: &Self::Batch, device: &Device) -> Result<Inputs<Self>, Error>;

    /// Whether there are images to choose the best checkpoint by.
    fn has_validation(&self) -> bool;

    /// Evaluates `model`, which is not on an autodiff device; `None` if `stop` asked to stop.
    fn evaluate(
        &self,
        model: &Model<Self>,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error>;

    /// A batch of evaluation that each call uploads and computes, for `warmup`.
    fn evaluation_batch(
        &self,
        device: &Device,
    ) -> Result<impl Fn(&Model<Self>) -> Result<(), Error>, Error>;
}

/// The model of a task.
pub type Model<T> = <<T as Task>::Objective as Objective>::Model;
/// A training batch of a task on the device.
pub type Inputs<T> = <<T as Task>::Objective as Objective>::Inputs;

/// Training batches on the host, in the order of the steps.
pub trait BatchStream {
    /// What it yields.
    type Batch;

    /// Waits for the next batch; `None` after the last.
    fn next(&mut self) -> Option<Result<Self::Batch, Error>>;

    /// Whether [`Self::next`] would return at once.
    fn is_ready(&self) -> bool;

    /// How long [`Self::next`] has waited so far.
    fn waited(&self) -> Duration;

    /// Images that could not be read and were replaced since the last call.
    fn take_bad(&mut self) -> Vec<BadSample>;
}

impl BatchStream for vim_data::Batches {
    type Batch = vim_data::Batch;

    fn next(&mut self) -> Option<Result<Self::Batch, Error>> {
        Some(Iterator::next(self)?.map_err(Error::from))
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn waited(&self) -> Duration {
        self.stats().waited
    }

    fn take_bad(&mut self) -> Vec<BadSample> {
        self.take_bad()
    }
}

/// The images to evaluate on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EvalSplit {
    /// The validation images, by which the best checkpoint was chosen.
    Val,
    /// The test images.
    #[default]
    Test,
}

impl EvalSplit {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// What an evaluation measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The numbers, by the names of [`Task::SCORES`].
    pub scores: Scores,
    /// Images evaluated.
    pub images: usize,
}

/// A task in words and numbers, for logs.
#[derive(Clone, Debug)]
pub struct Description {
    /// The model's shape and method.
    pub model: String,
    /// Numbers in all parameters.
    pub parameters: u64,
    /// Bytes of an image as the loader holds it.
    pub image_bytes: u64,
    /// The images and classes, in a line.
    pub data: String,
    /// What is odd about the data, a line each.
    pub notes: Vec<String>,
}

/// How the optimizer treats a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Whether weight decay acts on it.
    pub decays: bool,
    /// Layers between it and the output: 0 for the head. `train.layer_decay` scales the learning
    /// rate once for each.
    pub layers_above: usize,
}

/// A model that starts from given weights.
#[derive(Debug)]
pub struct InitWeights<M> {
    /// The model with these weights.
    pub model: M,
    /// Where the weights came from.
    pub record: InitRecord,
    /// What the log says about them.
    pub lines: Vec<String>,
}

/// `init.json`: the weights that a run started from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InitRecord {
    /// As read.
    pub name: String,
    /// Of the file, in hexadecimal.
    pub blake3: String,
    /// What was resized or replaced.
    pub notes: Vec<String>,
}
