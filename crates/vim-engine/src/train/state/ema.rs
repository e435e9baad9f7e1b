//! The moving average of weights and running statistics.

use std::collections::HashMap;
use std::mem;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use vim_dense::is_running_statistic;
use vim_kernels::{FlatParams, in_own_buffer, moving_average, supports_multi_tensor};

use crate::config::{EmaStatistics, TrainConfig};
use crate::train::optim::{flat_values, with_flat_values};

/// The average of the weights, always in f32; starts as the initial weights. Running statistics are
/// averaged likewise, unless `train.ema_statistics` takes the model's own.
///
/// # Source
///
/// timm 0.4.12's `ModelEma`, which the original keeps at 0.99996: it averages all of a model's
/// state; the warm-up is TensorFlow's `ExponentialMovingAverage` with `num_updates`.
#[derive(Clone, Debug)]
pub struct Ema {
    decay: f64,
    warmup: bool,
    averages: Averages,
    /// Of the running statistics; `None` if there are none, or they are the model's own.
    statistics: Option<Averages>,
}

/// One tensor per parameter, or one for all.
#[derive(Clone, Debug)]
enum Averages {
    Each(Vec<Tensor<1>>),
    Packed(Box<(FlatParams, Tensor<1>)>),
}

impl Averages {
    /// One tensor per parameter.
    fn each(self) -> Vec<Tensor<1>> {
        match self {
            Self::Each(averages) => averages,
            Self::Packed(packed) => packed.0.parts(&packed.1),
        }
    }

    fn update(&mut self, values: Vec<Tensor<1>>, decay: f64) {
        // Taken, because a second reference would prevent updates in place.
        let averages = mem::replace(self, Self::Each(Vec::new())).each();
        let pairs = averages.into_iter().zip(values);
        let averages =
            pairs.map(|(average, value)| average.mul_scalar(decay) + value.mul_scalar(1.0 - decay));
        *self = Self::Each(averages.collect());
    }

    fn update_packed(
        &mut self,
        (packing, value): (&FlatParams, &Tensor<1>),
        decay: f64,
        square_norm: Tensor<1>,
    ) {
        if let Self::Each(averages) = self {
            let average = packing.pack(averages.clone());
            *self = Self::Packed(Box::new((packing.clone(), average)));
        }
        if let Self::Packed(packed) = self {
            moving_average(&packed.1, value.clone(), square_norm, decay);
        }
    }
}

impl Ema {
    /// The average of `train.ema`, if set, starting from `model`.
    pub fn new<M: Module>(train: &TrainConfig, model: &M) -> Option<Self> {
        let decay = train.ema?;
        let averages = Averages::Each(flat_values(model));
        let statistics = match train.ema_statistics.unwrap_or_default() {
            // Copies: where a GPU computes, those of the model change in place.
            EmaStatistics::Averaged => values(running_statistics(model))
                .into_iter()
                .map(|value| match supports_multi_tensor(&value.device()) {
                    true => in_own_buffer(&value),
                    false => value,
                })
                .collect(),
            EmaStatistics::Model => Vec::new(),
        };
        let statistics = (!statistics.is_empty()).then_some(Averages::Each(statistics));
        Some(Self { decay, warmup: train.ema_warmup, averages, statistics })
    }

    /// Adds the weights after the `updates`-th optimizer step to the average.
    pub fn update<M: Module>(&mut self, model: &M, updates: u64) {
        let decay = self.decay_at(updates);
        self.averages.update(flat_values(model), decay);
        if let Some(statistics) = &mut self.statistics {
            statistics.update(values(running_statistics(model)), decay);
        }
    }

    /// [`Self::update`] with packed weights of `model`, for devices with
    /// [multi-tensor kernels](vim_kernels::supports_multi_tensor). Changes nothing where
    /// `square_norm`, the squared gradient norm, `[1]`, is not finite.
    pub fn update_packed<M: Module>(
        &mut self,
        model: &M,
        weights: (&FlatParams, &Tensor<1>),
        updates: u64,
        square_norm: Tensor<1>,
    ) {
        let decay = self.decay_at(updates);
        if let Some(statistics) = &mut self.statistics {
            let values = values(running_statistics(model));
            let packing = match statistics {
                Averages::Each(_) => FlatParams::of(&values),
                Averages::Packed(packed) => packed.0.clone(),
            };
            let value = packing.pack(values);
            statistics.update_packed((&packing, &value), decay, square_norm.clone());
        }
        self.averages.update_packed(weights, decay, square_norm);
    }

    pub(super) fn decay_at(&self, updates: u64) -> f64 {
        let updates = updates as f64;
        if self.warmup { self.decay.min((1.0 + updates) / (10.0 + updates)) } else { self.decay }
    }

    /// `model` with the average in place of its weights, for evaluation.
    pub fn model<M: Module>(&self, model: &M) -> M {
        let averaged = with_flat_values(model.clone(), self.averages.clone().each()).valid();
        let Some(statistics) = &self.statistics else { return averaged };
        // Only now: clones of a model share its running statistics, which `valid` copies.
        let ids = running_statistics(model).into_iter().map(|(id, _)| id);
        averaged.map(&mut Put(ids.zip(statistics.clone().each()).collect()))
    }
}

/// The running statistics of `model`, `[C]` each, and what identifies them in its copies.
pub(in crate::train) fn running_statistics<M: Module>(model: &M) -> Vec<(ParamId, Tensor<1>)> {
    #[derive(Default)]
    struct Statistics {
        path: Vec<String>,
        found: Vec<(ParamId, Tensor<1>)>,
    }
    impl ModuleVisitor for Statistics {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if self.path.last().is_some_and(|name| is_running_statistic(name)) {
                let value = param.val().inner();
                let count = value.shape().num_elements();
                self.found.push((param.id, value.reshape([count])));
            }
        }
    }
    let mut statistics = Statistics::default();
    model.visit(&mut statistics);
    statistics.found
}

fn values(statistics: Vec<(ParamId, Tensor<1>)>) -> Vec<Tensor<1>> {
    statistics.into_iter().map(|(_, value)| value).collect()
}

/// Puts values in the places that their ids name.
struct Put(HashMap<ParamId, Tensor<1>>);

impl ModuleMapper for Put {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.0.remove(&param.id) {
            Some(value) => param.map(|old| value.reshape(old.dims())),
            None => param,
        }
    }
}
