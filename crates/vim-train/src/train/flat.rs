//! A model's trainable parameters as flat tensors without gradients, in the order of its modules;
//! and their moving average.
//!
//! Trainable parameters are float parameters that require a gradient, unlike running statistics.

use std::mem;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_kernels::{FlatParams, moving_average};

use crate::config::TrainConfig;

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// Paths, such as `layers.0.mixer.forward.a_log`, and shapes of the trainable parameters.
pub fn parameters<M: Module>(model: &M) -> Vec<(String, Vec<usize>)> {
    #[derive(Default)]
    struct Parameters(Vec<String>, Vec<(String, Vec<usize>)>);
    impl ModuleVisitor for Parameters {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.0.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.val().is_require_grad() {
                self.1.push((self.0.join("."), param.dims().to_vec()));
            }
        }
    }
    let mut parameters = Parameters::default();
    model.visit(&mut parameters);
    parameters.1
}

/// Values of the trainable parameters.
pub fn values<M: Module>(model: &M) -> Vec<Tensor<1>> {
    struct Values(Vec<Tensor<1>>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            if value.is_require_grad() {
                self.0.push(flat(value.inner()));
            }
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

/// Gradients of the trainable parameters that have one.
pub fn gradients<M: Module>(model: &M, gradients: GradientsParams) -> Vec<Tensor<1>> {
    struct Gradients(GradientsParams, Vec<Tensor<1>>);
    impl ModuleVisitor for Gradients {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.extend(self.0.remove::<D>(param.id).map(flat));
        }
    }
    let mut gradients = Gradients(gradients, Vec::new());
    model.visit(&mut gradients);
    gradients.1
}

/// `model`, which is on an autodiff device, with new values of its trainable parameters.
///
/// # Panics
///
/// If count or sizes of the values differ from the parameters'.
pub fn with_values<M: Module>(model: M, values: Vec<Tensor<1>>) -> M {
    struct Replace(std::vec::IntoIter<Tensor<1>>);
    impl ModuleMapper for Replace {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if !param.val().is_require_grad() {
                return param;
            }
            let new = self.0.next().expect("a value for every parameter");
            param.map(|old| Tensor::from_inner(new.reshape(old.dims())).require_grad())
        }
    }
    let mut replace = Replace(values.into_iter());
    let model = model.map(&mut replace);
    assert!(replace.0.next().is_none(), "no more values than parameters");
    model
}

/// The average of the weights, always in f32; starts as the initial weights.
///
/// # Source
///
/// timm 0.4.12's `ModelEma`, which the original keeps at 0.99996; the warm-up is TensorFlow's
/// `ExponentialMovingAverage` with `num_updates`.
#[derive(Clone, Debug)]
pub struct Ema {
    decay: f64,
    warmup: bool,
    averages: Averages,
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
}

impl Ema {
    /// The average of `train.ema`, if set, starting from `model`.
    pub fn new<M: Module>(train: &TrainConfig, model: &M) -> Option<Self> {
        let decay = train.ema?;
        let averages = Averages::Each(values(model));
        Some(Self { decay, warmup: train.ema_warmup, averages })
    }

    /// Adds the weights after the `updates`-th optimizer step to the average.
    pub fn update<M: Module>(&mut self, model: &M, updates: u64) {
        // Taken, because a second reference would prevent updates in place.
        let averages = mem::replace(&mut self.averages, Averages::Each(Vec::new())).each();
        let decay = self.decay_at(updates);
        let pairs = averages.into_iter().zip(values(model));
        let averages =
            pairs.map(|(average, value)| average.mul_scalar(decay) + value.mul_scalar(1.0 - decay));
        self.averages = Averages::Each(averages.collect());
    }

    /// [`Self::update`] with packed weights, for devices with
    /// [multi-tensor kernels](vim_kernels::supports_multi_tensor). Changes nothing where
    /// `square_norm`, the squared gradient norm, `[1]`, is not finite.
    pub fn update_packed(
        &mut self,
        (packing, value): (&FlatParams, &Tensor<1>),
        updates: u64,
        square_norm: Tensor<1>,
    ) {
        let average = match &self.averages {
            Averages::Each(averages) => packing.pack(averages.clone()),
            Averages::Packed(packed) => packed.1.clone(),
        };
        let average = moving_average(average, value.clone(), square_norm, self.decay_at(updates));
        self.averages = Averages::Packed(Box::new((packing.clone(), average)));
    }

    fn decay_at(&self, updates: u64) -> f64 {
        let updates = updates as f64;
        if self.warmup { self.decay.min((1.0 + updates) / (10.0 + updates)) } else { self.decay }
    }

    /// `model` with the average in place of its weights, for evaluation.
    pub fn model<M: Module>(&self, model: &M) -> M {
        with_values(model.clone(), self.averages.clone().each()).valid()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use vim_model::Vim;

    use super::*;
    use crate::train::optim::tests::{self as optim_tests, small_on};

    fn small(seed: u64) -> Vim {
        small_on(&Device::flex(), seed)
    }

    fn numbers(model: &Vim) -> Vec<f32> {
        optim_tests::values(model).into_values().flatten().map(|value| value as f32).collect()
    }

    #[test]
    fn it_is_the_weighted_sum_of_all_weights_since_the_start() {
        let models = [small(0), small(1), small(2), small(3)];
        let values = models.each_ref().map(numbers);
        for (warmup, decays) in [(false, [0.9; 3]), (true, [2.0 / 11.0, 3.0 / 12.0, 4.0 / 13.0])] {
            let train =
                TrainConfig { ema: Some(0.9), ema_warmup: warmup, ..TrainConfig::default() };
            let mut ema = Ema::new(&train, &models[0]).unwrap();
            for updates in 1..=3 {
                ema.update(&models[updates], updates as u64);
            }
            let [a, b, c] = decays;
            let weights = [a * b * c, (1.0 - a) * b * c, (1.0 - b) * c, 1.0 - c];
            let got = numbers(&ema.model(&models[3]));
            assert_eq!(got.len(), values[0].len());
            for (i, got) in got.into_iter().enumerate() {
                let want: f64 = (0..4).map(|n| weights[n] * f64::from(values[n][i])).sum();
                // Each of the three updates rounds to f32.
                let allowed = 1e-6 * (1.0 + want.abs());
                assert!((f64::from(got) - want).abs() < allowed, "{got} {want}");
            }
        }
        assert!(Ema::new(&TrainConfig::default(), &models[0]).is_none());
    }

    #[test]
    fn the_warm_up_ends_at_the_decay() {
        let train = TrainConfig { ema: Some(0.5), ema_warmup: true, ..TrainConfig::default() };
        let ema = Ema::new(&train, &small(0)).unwrap();
        assert_eq!([7, 8, 9, 10_000].map(|t| ema.decay_at(t)), [8.0 / 17.0, 0.5, 0.5, 0.5]);
    }

    #[test]
    fn the_average_is_evaluated_and_the_model_trains_on() {
        let (model, other) = (small(0), small(1));
        let train = TrainConfig { ema: Some(0.0), ..TrainConfig::default() };
        let mut ema = Ema::new(&train, &model).unwrap();
        ema.update(&other, 1);
        // A decay of 0 is the last weights.
        assert_eq!(numbers(&ema.model(&model)), numbers(&other));
        let images = Tensor::<4>::ones([1, 3, 8, 8], &Device::flex());
        let logits = |model: &Vim| -> Vec<f32> {
            model.forward(images.clone()).unwrap().into_data().iter().collect()
        };
        assert_eq!(logits(&ema.model(&model)), logits(&other.valid()));
    }
}
