//! The state of training, in memory and in a checkpoint's files.

mod ema;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use vim_kernels::{FlatParams, Recompute, supports_multi_tensor};
use vim_model::{NamedArrays, PendingArrays, load_module};
use vim_run::checkpoint::{Checkpoint, State, Weights};
use vim_torch::{ReadError, read_safetensors};

use super::optim::{AdamW, Moments, ParamGroup};
use crate::config::{Config, RecomputeChoice};
use crate::error::Error;
use crate::task::Objective;
use crate::weights::WeightsError;

pub use ema::Ema;
pub(super) use ema::running_statistics;

/// Name of the optimizer's file in a checkpoint.
const OPTIMIZER: &str = "optimizer.safetensors";
/// The key of the number of updates in the metadata of that file.
const STEPS: &str = "steps";

/// Says what the backward passes of a model compute again.
type WithRecompute<M> = fn(M, Recompute) -> M;

/// Model, optimizer, moving average and counters. Random draws are a function of the seed and the
/// step, so no generator is stored.
#[derive(Debug)]
pub struct TrainState<M> {
    /// `None` only while the optimizer updates it.
    pub(super) model: Option<M>,
    pub(super) optimizer: AdamW,
    pub(super) ema: Option<Ema>,
    /// Steps done and the other counters of a checkpoint.
    pub counters: State,
    pub(super) seed: u64,
    pub(super) micro_batches: usize,
    pub(super) clip: Option<f64>,
    /// Of gradients and loss, once several shards or ranks have been summed.
    pub(super) packing: Option<Packing>,
    /// How the model's backward passes come to recompute nothing after the first step: where that
    /// is chosen, or, by `auto`, the device's memory allows it.
    pub(super) may_keep: Option<(WithRecompute<M>, RecomputeChoice)>,
    /// Whether it did, until somebody asks.
    pub(super) keeps: Option<bool>,
}

impl<M: Module> TrainState<M> {
    /// The state of training `model` under `config` before the first step.
    pub fn new<O: Objective<Model = M>>(objective: &O, config: &Config, model: M) -> Self {
        let choice = config.train.recompute;
        let may_keep = matches!(choice, RecomputeChoice::Auto | RecomputeChoice::Nothing);
        let groups = ParamGroup::all(&model, config, |path, rank| objective.placement(path, rank));
        Self {
            optimizer: AdamW::new(&config.optim, groups),
            ema: Ema::new(&config.train, &model),
            model: Some(model),
            counters: State::default(),
            seed: config.run.seed,
            micro_batches: config.train.accumulate,
            clip: config.train.clip_grad,
            packing: None,
            may_keep: may_keep.then_some((O::with_recompute as WithRecompute<M>, choice)),
            keeps: None,
        }
    }

    /// Sets the number of micro-batches per batch.
    pub fn with_micro_batches(self, count: usize) -> Self {
        Self { micro_batches: count, ..self }
    }

    /// The state restored from `checkpoint`, which errors call `source`: it may be of another
    /// model, or lack the configured moving average.
    pub fn restored(
        mut self,
        mut checkpoint: Checkpoint,
        config: &Config,
        device: &Device,
        source: &str,
    ) -> Result<Self, Error> {
        let model = self.model.take().expect("invariant: taken only within a step");
        // First: clones share their running statistics, which those of the model then replace.
        if self.ema.is_some() {
            let average = checkpoint.take(Weights::Ema.file())?;
            let average = model_from_bytes(model.clone(), &average, source)?;
            self.ema = Ema::new(&config.train, &average);
        }
        let bytes = checkpoint.take(Weights::Model.file())?;
        let model = model_from_bytes(model, &bytes, source)?;
        let moments = checkpoint.take(OPTIMIZER)?;
        let optimizer = optimizer_from_bytes(self.optimizer, &moments, device, source)?;
        Ok(Self { model: Some(model), optimizer, counters: checkpoint.state, ..self })
    }

    /// The model in training.
    pub fn model(&self) -> &M {
        self.model.as_ref().expect("invariant: taken only within a step")
    }

    /// The available kinds of weights; of equal scores the first kind wins.
    pub fn kinds(&self) -> Vec<Weights> {
        let ema = self.ema.is_some().then_some(Weights::Ema);
        [Weights::Model].into_iter().chain(ema).collect()
    }

    /// The model with the weights of `kind`, for an evaluation: on a GPU the next step changes them
    /// where they are.
    pub fn weights(&self, kind: Weights) -> M {
        match (kind, &self.ema) {
            (Weights::Ema, Some(ema)) => ema.model(self.model()),
            (Weights::Model | Weights::Ema, _) => self.model().valid(),
        }
    }

    /// BLAKE3 of the model's weights, in hexadecimal.
    pub fn hash(&self) -> Result<String, Error> {
        let bytes = NamedArrays::of(&self.model().valid()).to_safetensors();
        let bytes = bytes.map_err(|error| Error::internal(format!("weights: {error}")))?;
        Ok(blake3::hash(&bytes).to_hex().to_string())
    }

    /// The files of a checkpoint.
    pub fn files(&self) -> Vec<(&'static str, NamedArrays)> {
        // `valid` applies pending updates of running statistics.
        let mut files = vec![
            (Weights::Model.file(), NamedArrays::of(&self.model().valid())),
            (OPTIMIZER, optimizer_arrays(&self.optimizer)),
        ];
        let ema = self.ema.as_ref().map(|ema| NamedArrays::of(&ema.model(self.model())));
        files.extend(ema.map(|ema| (Weights::Ema.file(), ema)));
        files
    }
}

/// How the tensors of a shard lie behind each other, so that a sum of all is one operation and one
/// exchange.
#[derive(Clone, Debug)]
pub(super) enum Packing {
    /// By kernels that take many tensors.
    Blocks(Box<FlatParams>),
    /// Their lengths.
    Dense(Vec<usize>),
}

impl Packing {
    pub(super) fn of(tensors: &[Tensor<1>]) -> Self {
        if tensors.first().is_some_and(|tensor| supports_multi_tensor(&tensor.device())) {
            return Self::Blocks(Box::new(FlatParams::of(tensors)));
        }
        Self::Dense(tensors.iter().map(|tensor| tensor.dims()[0]).collect())
    }

    pub(super) fn pack(&self, tensors: Vec<Tensor<1>>) -> Tensor<1> {
        match self {
            Self::Blocks(layout) => layout.pack(tensors),
            Self::Dense(_) => Tensor::cat(tensors, 0),
        }
    }

    pub(super) fn parts(&self, packed: &Tensor<1>) -> Vec<Tensor<1>> {
        match self {
            Self::Blocks(layout) => layout.parts(packed),
            Self::Dense(lengths) => {
                let begins = lengths.iter().scan(0, |end, length| {
                    *end += length;
                    Some(*end - length)
                });
                let part = |(begin, &length)| packed.clone().narrow(0, begin, length);
                begins.zip(lengths).map(part).collect()
            }
        }
    }
}

/// `model` with the parameters in `bytes`, which `source` names in errors: [`WeightsError::Unfit`]
/// lists the parameters that are missing, unknown or of another shape.
pub fn model_from_bytes<M: Module>(model: M, bytes: &[u8], source: &str) -> Result<M, Error> {
    let state = read_safetensors(bytes).map_err(|error| unreadable(source, error))?.state;
    load_module(model, &state).map_err(|mismatch| misfit(source, mismatch.to_string()))
}

/// The optimizer's state: the moments by parameter path, and the number of updates.
pub fn optimizer_arrays(optimizer: &AdamW) -> NamedArrays {
    let mut pending = PendingArrays::default();
    for (path, Moments { first, second }) in optimizer.moments() {
        pending.add(format!("first.{path}"), first);
        pending.add(format!("second.{path}"), second);
    }
    pending.read().with_metadata(STEPS, optimizer.steps.to_string())
}

/// `optimizer` with the state in `bytes`, which `source` names in errors. Every parameter must have
/// moments of its size: bias correction would be wrong for new moments among old ones.
pub fn optimizer_from_bytes(
    optimizer: AdamW,
    bytes: &[u8],
    device: &Device,
    source: &str,
) -> Result<AdamW, Error> {
    let file = read_safetensors(bytes).map_err(|error| unreadable(source, error))?;
    let steps: Option<u64> = file.about.get(STEPS).and_then(|steps| steps.parse().ok());
    let steps = steps.ok_or_else(|| misfit(source, "the number of steps is missing".into()))?;
    if steps == 0 {
        return Ok(optimizer);
    }
    let device = device.clone().inner();
    let load = |path: &str, size: usize, kind: &str| -> Result<Tensor<1>, Error> {
        let array = file.state.array(&format!("{kind}.{path}"));
        let array = array.filter(|array| array.values.len() == size).ok_or_else(|| {
            misfit(source, format!("the optimizer's moments of {path} are not its own"))
        })?;
        Ok(Tensor::from_data(TensorData::new(array.values.clone(), [size]), &device))
    };
    let moments = optimizer.parameters().map(|(path, size)| {
        Ok(Moments { first: load(path, size, "first")?, second: load(path, size, "second")? })
    });
    let moments = moments.collect::<Result<Vec<_>, Error>>()?;
    Ok(optimizer.resumed(steps, moments))
}

fn unreadable(path: &str, source: ReadError) -> Error {
    WeightsError::Unreadable { path: path.to_owned(), source }.into()
}

fn misfit(checkpoint: &str, problems: String) -> Error {
    WeightsError::Unfit { checkpoint: checkpoint.to_owned(), problems }.into()
}

#[cfg(test)]
mod tests;
