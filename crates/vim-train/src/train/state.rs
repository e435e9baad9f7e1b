//! What training changes, in memory and in the files of a checkpoint.

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

/// Model, optimizer, moving average and counters: all that a resumed run needs. What a step draws
/// is a function of the seed and of the steps done, so no generator is kept.
#[derive(Debug)]
pub struct TrainState<M> {
    /// `None` only while the optimizer makes the next one in its place.
    pub(super) model: Option<M>,
    pub(super) optimizer: AdamW,
    pub(super) ema: Option<Ema>,
    /// Steps done, and what else a checkpoint remembers.
    pub counters: State,
    pub(super) seed: u64,
    pub(super) micro_batches: usize,
    pub(super) clip: Option<f64>,
}

impl<M: Module> TrainState<M> {
    /// Training of `model` as `config` says, before its first step.
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

    /// The same, computing a batch in `count` micro-batches.
    pub fn with_micro_batches(self, count: usize) -> Self {
        Self { micro_batches: count, ..self }
    }

    /// The same where `checkpoint` stands, which errors call `source`.
    ///
    /// # Errors
    ///
    /// If the checkpoint is of another model, or has no moving average where one is asked for.
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

    /// Checks that every parameter has moments of its size: new ones among old ones would be
    /// corrected for steps that they have not seen.
    ///
    /// # Errors
    ///
    /// The first parameter that has none.
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

    /// The model as it is trained.
    pub fn model(&self) -> &M {
        self.model.as_ref().expect("invariant: taken only within a step")
    }

    /// The kinds of weights that there are; where they are equally good, the first is the better.
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
        // `valid` brings running statistics up to date, of which a module may hold the last back.
        let mut files = vec![
            (weights::MODEL, NamedArrays::of(&self.model().valid())),
            (weights::OPTIMIZER, optimizer_arrays(&self.optimizer)),
        ];
        let ema = self.ema.as_ref().map(|ema| NamedArrays::of(&ema.model(self.model())));
        files.extend(ema.map(|ema| (weights::EMA, ema)));
        files
    }
}
