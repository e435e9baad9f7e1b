//! The state of training, in memory and in a checkpoint's files.

use burn::module::Module;
use burn::tensor::Device;
use vim_model::NamedArrays;
use vim_run::checkpoint::{Checkpoint, State, Weights};

use super::ema::Ema;
use super::flat;
use super::optim::{AdamW, ParamGroup, optimizer_arrays, optimizer_from_bytes};
use crate::config::Config;
use crate::error::Error;
use crate::task::Objective;
use crate::weights;
use crate::weights::WeightsError;

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
}

impl<M: Module> TrainState<M> {
    /// The state of training `model` under `config` before the first step.
    pub fn new(objective: &impl Objective<Model = M>, config: &Config, model: M) -> Self {
        let groups = ParamGroup::all(&model, config, |path, rank| objective.placement(path, rank));
        Self {
            optimizer: AdamW::new(&config.optim, groups),
            ema: Ema::new(&config.train, &model),
            model: Some(model),
            counters: State::default(),
            seed: config.run.seed,
            micro_batches: config.train.accumulate,
            clip: config.train.clip_grad,
        }
    }

    /// Sets the number of micro-batches per batch.
    pub fn with_micro_batches(self, count: usize) -> Self {
        Self { micro_batches: count, ..self }
    }

    /// The state restored from `checkpoint`, which errors call `source`.
    ///
    /// # Errors
    ///
    /// If the checkpoint is of another model, or lacks the configured moving average.
    pub fn restored(
        mut self,
        mut checkpoint: Checkpoint,
        config: &Config,
        device: &Device,
        source: &str,
    ) -> Result<Self, Error> {
        let model = self.model.take().expect("invariant: taken only within a step");
        let model = weights::model_from_bytes(model, &checkpoint.take(weights::MODEL)?, source)?;
        let moments = checkpoint.take(weights::OPTIMIZER)?;
        let optimizer = optimizer_from_bytes(self.optimizer, &moments, device, source)?;
        if self.ema.is_some() {
            let average = checkpoint.take(weights::EMA)?;
            let average = weights::model_from_bytes(model.clone(), &average, source)?;
            self.ema = Ema::new(&config.train, &average);
        }
        Ok(Self { model: Some(model), optimizer, counters: checkpoint.state, ..self })
    }

    /// Checks that every parameter has moments of its size: bias correction would be wrong for new
    /// moments among old ones.
    pub fn check_moments(&self, source: &str) -> Result<(), Error> {
        let moments = self.optimizer.moments();
        let fits = |path: &str, count: usize| {
            moments.get(path).is_some_and(|moments| {
                moments.first.dims() == [count] && moments.second.dims() == [count]
            })
        };
        let parameters = flat::parameters(self.model());
        match parameters.iter().find(|(path, shape)| !fits(path, shape.iter().product())) {
            None => Ok(()),
            Some((path, _)) => {
                let problems = format!("the optimizer's moments of {path} are not its own");
                Err(WeightsError::Unfit { checkpoint: source.to_owned(), problems }.into())
            }
        }
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

    /// The model with the weights of `kind`, for evaluation.
    pub fn weights(&self, kind: Weights) -> M {
        match (kind, &self.ema) {
            (Weights::Ema, Some(ema)) => ema.model(self.model()),
            (Weights::Model | Weights::Ema, _) => self.model().valid(),
        }
    }

    /// The files of a checkpoint.
    pub fn files(&self) -> Vec<(&'static str, NamedArrays)> {
        // `valid` applies pending updates of running statistics.
        let mut files = vec![
            (weights::MODEL, NamedArrays::of(&self.model().valid())),
            (weights::OPTIMIZER, optimizer_arrays(&self.optimizer)),
        ];
        let ema = self.ema.as_ref().map(|ema| NamedArrays::of(&ema.model(self.model())));
        files.extend(ema.map(|ema| (weights::EMA, ema)));
        files
    }
}
