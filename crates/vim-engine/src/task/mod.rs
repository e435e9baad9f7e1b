//! The interface between the model-independent training loop and the tasks.

pub mod backends;
pub mod batches;
pub(crate) mod classes;
pub mod classification;
mod dense;
pub mod detection;
pub mod drawing;
pub mod explained;
pub(crate) mod frame;
mod init;
pub mod kinds;
pub(crate) mod known;
pub mod named;
pub mod own;
pub(crate) mod replayed;
pub mod segmentation;
pub(crate) mod trained;
pub mod without_data;

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vim_comm::Comm;
use vim_data::{BadSample, Pixels};
use vim_kernels::{KernelError, Recompute, runs_cuda};
use vim_model::Vim;
use vim_run::metrics::{ScoreKind, Scores};
use vim_run::signals::StopRequest;

use crate::config::{Config, ConfigError, RecomputeChoice};
use crate::error::Error;
use crate::weights::place::Place;
use crate::weights::record::Recorded;
pub use init::InitFor;

/// A model and its loss: the part of a task that a training step needs.
///
/// Errors name the faulty key, file or kernel.
pub trait Objective {
    /// The trained module. Float parameters that require a gradient are optimized; all others, such
    /// as running statistics, are only saved and restored.
    type Model: Module;
    /// A training batch on the device: images and targets.
    type Inputs: Clone;
    /// The model with initial weights drawn from `run.seed`.
    fn init(&self, device: &Device) -> Result<Self::Model, Error>;

    /// The model with the weights of `train.init`, if set, for the classes and images `of` the run.
    fn load_init(
        &self,
        device: &Device,
        of: &InitFor,
    ) -> Result<Option<InitWeights<Self::Model>>, Error>;

    /// How the optimizer treats the parameter at `path`, a tensor with `rank` dimensions.
    fn placement(&self, path: &str, rank: usize) -> Placement;

    /// Images of a batch.
    fn count(inputs: &Self::Inputs) -> usize;

    /// How a recorded step holds its inputs, or why none can be recorded: [`Self::losses`] must
    /// launch the same for every batch, read nothing on the host, and upload what it draws by
    /// [`drawn`](vim_kernels::drawn) alone.
    fn held(&self) -> Result<Held<Self::Inputs>, String> {
        Err("the task says nothing of graphs".into())
    }

    /// `model`, whose backward passes compute again what `recompute` says, if it is a Vim.
    fn with_recompute(model: Self::Model, _recompute: Recompute) -> Self::Model {
        model
    }

    /// Names of the parts of a loss, which records of training show beside it.
    fn parts(&self) -> &'static [&'static str] {
        &[]
    }

    /// The mean loss over the images `range` of a shard, and behind it its [`Self::parts`], which
    /// no gradient is taken of: `[1 + P]`. Random draws for an image depend only on `draw` and its
    /// index in the shard.
    fn loss(
        &self,
        model: &Self::Model,
        inputs: Self::Inputs,
        range: Range<usize>,
        draw: Draw,
    ) -> Result<Tensor<1>, Error>;

    /// Whether the images of a micro-batch must be seen together, as batch normalization does: then
    /// [`Self::losses`] gets all shards of a rank at once, and else one after the other.
    const JOINT: bool = false;

    /// [`Self::loss`] of the images `range` of each shard, by a model for each: the model itself
    /// for one shard, else copies that have gradients of their own.
    fn losses(
        &self,
        models: &[Self::Model],
        shards: Vec<Self::Inputs>,
        range: Range<usize>,
        draws: &[Draw],
    ) -> Result<Vec<Tensor<1>>, Error> {
        let each = models.iter().zip(shards).zip(draws);
        each.map(|((model, inputs), draw)| self.loss(model, inputs, range.clone(), *draw)).collect()
    }
}

/// A warning if `choice` changes nothing where a model on `backbone` trains on `device`.
fn recompute_warning(choice: RecomputeChoice, backbone: &Vim, device: &Device) -> Option<String> {
    let is_lost = match choice {
        RecomputeChoice::Auto | RecomputeChoice::Inputs => false,
        RecomputeChoice::Nothing => !(runs_cuda(device) && backbone.can_recompute(device)),
        RecomputeChoice::States => !backbone.can_recompute(device),
    };
    is_lost.then(|| {
        "warning: train.recompute changes nothing here: only the kernels for CUDA and, but for \
         \"nothing\", CPUs that take both directions at once have it"
            .into()
    })
}

/// How inputs stay in one place of the device, from step to step.
#[derive(Debug)]
pub struct Held<I> {
    /// Copies in buffers of their own.
    pub hold: fn(&I) -> I,
    /// Writes others there, of the same shapes.
    pub overwrite: fn(&I, I) -> Result<(), KernelError>,
}

impl<I> Clone for Held<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Held<I> {}

/// Where the random draws of a shard's images come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the step.
    pub seed: u64,
    /// Index in the whole batch of the shard's first image.
    pub first: usize,
}

/// An objective, the data and an evaluation.
///
/// The loop owns everything else: steps, optimizer, moving average, checkpoints, resume, records.
/// Errors name the faulty key, file or kernel.
pub trait Task: Sized {
    /// The model and its loss.
    type Objective: Objective;
    /// A training batch on the host.
    type Batch;
    /// The training batches of a range of steps.
    type Batches: BatchStream<Batch = Self::Batch>;

    /// The scores of an evaluation, in record order.
    const SCORES: &'static [ScoreKind];
    /// The score that chooses the best checkpoint; one of [`Self::SCORES`].
    const PRIMARY: ScoreKind;

    /// Opens the data for this rank of `comm`, and runs every check possible before training. The
    /// task may keep a handle of `comm`, for sums of its own within a pass or an evaluation.
    ///
    /// `classes` are those of a run that goes on, by label, under which the data come by name; none
    /// where the data alone say them.
    fn open(
        config: &Config,
        device: &Device,
        comm: &Comm,
        classes: &[String],
    ) -> Result<Self, Error>;

    /// The task without reading data, where the number of images is known without them; and a
    /// text for each file missing here, which may exist where the run starts.
    fn preflight(config: &Config) -> Result<(Option<Self>, Vec<String>), ConfigError>;

    /// The model and its loss.
    fn objective(&self) -> &Self::Objective;

    /// Model and data in words and numbers.
    fn describe(&self) -> Result<Description, Error>;

    /// Names of the classes, by label; empty if there are no classes. A run records them.
    fn class_names(&self) -> &[String] {
        &[]
    }

    /// What checkpoints record of the weights; `None` of a task that no configuration names.
    fn record(&self) -> Option<Recorded> {
        None
    }

    /// A warning about a setting that `device` does not support, if any.
    fn device_warning(&self, _model: &Model<Self>, _device: &Device) -> Option<String> {
        None
    }

    /// Whether images are mixed in pairs, so that their number in a batch must be even.
    fn mixes_pairs(&self) -> bool {
        false
    }

    /// Training steps of an epoch.
    fn steps_per_epoch(&self) -> u64;

    /// The training batches of `steps`, which count from the start of training: of each step the
    /// rank's shards, one after the other.
    fn batches(&self, steps: Range<u64>) -> Self::Batches;

    /// Queues the upload of a training batch.
    fn upload(&self, batch: &Self::Batch, device: &Device) -> Result<Inputs<Self>, Error>;

    /// Whether there are validation images, which choose the best checkpoint.
    fn has_validation(&self) -> bool;

    /// Whether the images say what is right, so that there are scores.
    fn is_measured(&self) -> bool {
        true
    }

    /// Evaluates `model`, which is not on an autodiff device; `None` if a signal asked to stop.
    /// The ranks share the batches, and each returns the result of all.
    fn evaluate(
        &self,
        model: &Model<Self>,
        split: EvalSplit,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Evaluation>, Error>;

    /// A few images of `split` by their places, if the task draws: each beside what `model` says of
    /// it and what is annotated. A run shows them in TensorBoard; rank 0 alone is asked.
    fn pictures(
        &self,
        _model: &Model<Self>,
        _split: EvalSplit,
        _device: &Device,
    ) -> Result<Vec<(usize, [Pixels; 3])>, Error> {
        Ok(Vec::new())
    }

    /// The pictures on the page of the run in the folder `run`, whose result is `model`; rank 0
    /// alone is asked.
    fn galleries(
        &self,
        _model: &Model<Self>,
        _device: &Device,
        _run: &Path,
    ) -> Result<Vec<Pictures>, Error> {
        Ok(Vec::new())
    }

    /// [`Self::evaluate`] of the result of a run on the test images, with a table of what the model
    /// says of each image or class, if the task has one. A run records it.
    fn test(
        &self,
        model: &Model<Self>,
        device: &Device,
        stop: &StopRequest,
    ) -> Result<Option<Tested>, Error> {
        let evaluation = self.evaluate(model, EvalSplit::Test, device, stop)?;
        Ok(evaluation.map(|evaluation| Tested { evaluation, table: None }))
    }

    /// A function that uploads and evaluates one batch, for `warmup`.
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
    /// A batch.
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

/// The `own` values of all ranks, in the ranks' order, on every rank.
pub fn share<V: Serialize + DeserializeOwned + Clone>(
    comm: &Comm,
    own: &V,
) -> Result<Vec<V>, Error> {
    if comm.size() == 1 {
        return Ok(vec![own.clone()]);
    }
    let wrong = |error: serde_json::Error| Error::internal(format!("between ranks: {error}"));
    let bytes = serde_json::to_vec(own).map_err(wrong)?;
    let all = comm.gather(&bytes)?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(wrong)).collect()
}

/// What an evaluation measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The numbers, by the names of [`Task::SCORES`].
    pub scores: Scores,
    /// Images evaluated.
    pub images: usize,
}

/// What a test of a run's result measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Tested {
    /// The numbers.
    pub evaluation: Evaluation,
    /// The name of a file in the run's folder, and its rows in CSV: one for each image, or class.
    pub table: Option<(&'static str, Vec<u8>)>,
}

/// Pictures of a kind.
#[derive(Clone, Debug, Default)]
pub struct Pictures {
    /// What they are.
    pub title: &'static str,
    /// What to know of them.
    pub note: String,
    /// The classes and their colours, where these say what is what.
    pub legend: Vec<(String, [u8; 3])>,
    /// Each with its name, and what is to be said of it, line by line.
    pub images: Vec<(String, Pixels, Vec<String>)>,
}

/// A task in words and numbers, for logs.
#[derive(Clone, Debug)]
pub struct Description {
    /// The model's shape and method.
    pub model: String,
    /// Trainable numbers.
    pub parameters: u64,
    /// Bytes of an image as the loader holds it.
    pub image_bytes: u64,
    /// The images and classes, in a line.
    pub data: String,
    /// Peculiarities of the data, one line each.
    pub notes: Vec<String>,
}

/// How the optimizer treats a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Whether weight decay acts on it.
    pub decays: bool,
    /// Layers between the parameter and the output: 0 for the head. `train.layer_decay` scales the
    /// learning rate once per layer.
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

/// A text for each input file or folder that is not on this machine.
fn absent(config: &Config) -> Vec<String> {
    let data = &config.data;
    let of_data = [
        ("data.path", &data.path),
        ("data.val_path", &data.val_path),
        ("data.val_labels", &data.val_labels),
        ("data.classes", &data.classes),
        ("data.train_images", &data.train_images),
        ("data.train_annotations", &data.train_annotations),
        ("data.val_images", &data.val_images),
        ("data.val_annotations", &data.val_annotations),
    ];
    // Procedural images ignore the path keys.
    let of_data = of_data.into_iter().filter(|_| data.dataset.has_files());
    let missing = of_data.filter_map(|(key, path)| Some((key, path.as_deref()?)));
    let missing = missing.filter(|(_, path)| !path.exists());
    let init = config.train.init.as_deref().map(|path| ("train.init", path));
    let is_absent = |path: &Path| Place::find(path, &config.run.root, None).is_err();
    let missing = missing.chain(init.filter(|(_, path)| is_absent(path)));
    let text = |(key, path): (&str, &Path)| {
        format!(
            "{key}: {} is not on this machine: it must be there where the run starts",
            path.display()
        )
    };
    missing.map(text).collect()
}
