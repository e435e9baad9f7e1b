//! AdamW: parameter groups and moments. The arithmetic is in [`super::multi_tensor`], and where a
//! device updates many tensors at once in [`vim_kernels::FlatParams`].
//!
//! Our own optimizer, because resuming must give the same bytes: moments are saved by parameter
//! path, and the formula is PyTorch's.

mod packed;
mod saved;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_kernels::FlatParams;

use super::flat;
use super::multi_tensor::{Parameter, Rule, Update, adamw, sum_of_squares};
use crate::comm::Comm;
use crate::config::{Config, OptimConfig};
use crate::task::Placement;
use packed::Packed;
pub use saved::{optimizer_arrays, optimizer_from_bytes};

/// The first and second moments of a parameter's gradient, flat.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
}

impl Moments {
    /// Of a parameter that has had no gradient yet.
    fn zeros(value: &Tensor<1>) -> Self {
        Self { first: value.zeros_like(), second: value.zeros_like() }
    }
}

/// How gradients are clipped.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for the length of a call")]
pub enum Clip {
    /// Multiplied by a factor that the host knows.
    By(f64),
    /// Scaled down to a norm of `limit`. The square of the norm, `[1]`, is still on the device;
    /// where it is not finite, the step changes nothing. For devices that
    /// [update many](vim_kernels::supports_multi_tensor) tensors at once.
    To {
        /// The square of the norm.
        square_norm: Tensor<1>,
        /// The largest norm.
        limit: Option<f64>,
    },
}

/// How a parameter is updated.
#[derive(Clone, Debug)]
pub struct ParamGroup {
    path: String,
    /// Factor of its learning rate; `None` where the rate is not scaled.
    lr_scale: Option<f64>,
    weight_decay: f64,
}

impl ParamGroup {
    /// Those of the trainable parameters of `model`, in its order. `placement` gets a parameter's
    /// path and rank.
    ///
    /// # Source
    ///
    /// Layer decay: Bao et al. 2021 (BEiT), `factor^(depth + 1 − layer)`.
    pub fn all<M: Module>(
        model: &M,
        config: &Config,
        placement: impl Fn(&str, usize) -> Placement,
    ) -> Vec<Self> {
        let groups = flat::parameters(model).into_iter().map(|(path, shape)| {
            let Placement { decays, layers_above } = placement(&path, shape.len());
            Self {
                lr_scale: config.train.layer_decay.map(|factor| factor.powi(layers_above as i32)),
                weight_decay: if decays { config.optim.weight_decay } else { 0.0 },
                path,
            }
        });
        groups.collect()
    }

    fn rate(&self, lr: f64) -> f64 {
        self.lr_scale.map_or(lr, |scale| lr * scale)
    }
}

/// Where the moments are.
#[derive(Clone, Debug)]
enum MomentStorage {
    /// A pair of tensors for each parameter, by its path.
    ByPath(BTreeMap<String, Moments>),
    /// One pair for all parameters.
    Packed(Box<Packed>),
}

/// AdamW with decoupled weight decay.
///
/// # Source
///
/// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
#[derive(Clone, Debug)]
pub struct AdamW {
    betas: [f64; 2],
    eps: f64,
    groups: Vec<ParamGroup>,
    /// Updates done.
    pub steps: u64,
    moments: MomentStorage,
}

impl AdamW {
    /// An optimizer that has seen no gradient, of the parameters of `groups`.
    #[must_use]
    pub fn new(config: &OptimConfig, groups: Vec<ParamGroup>) -> Self {
        Self {
            betas: config.betas,
            eps: config.eps,
            groups,
            steps: 0,
            moments: MomentStorage::ByPath(BTreeMap::new()),
        }
    }

    /// The same after `steps` updates that left these moments, by parameter path.
    #[must_use]
    pub fn resumed(self, steps: u64, moments: BTreeMap<String, Moments>) -> Self {
        Self { steps, moments: MomentStorage::ByPath(moments), ..self }
    }

    /// How many parameters are updated.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.groups.len()
    }

    /// The moments by parameter path.
    #[must_use]
    pub fn moments(&self) -> BTreeMap<String, Moments> {
        match &self.moments {
            MomentStorage::ByPath(moments) => moments.clone(),
            MomentStorage::Packed(packed) => packed.moments(&self.groups),
        }
    }

    /// The parameters after the last step, where they are in one tensor.
    #[must_use]
    pub fn packed(&self) -> Option<(&FlatParams, &Tensor<1>)> {
        match &self.moments {
            MomentStorage::ByPath(_) => None,
            MomentStorage::Packed(packed) => packed.value(),
        }
    }

    /// [`Gradients::square_norm`], which takes fewer transfers where the layout is known.
    #[must_use]
    pub fn square_norm(&self, gradients: &Gradients) -> Option<Tensor<1>> {
        match &self.moments {
            MomentStorage::Packed(packed) if !gradients.is_empty() => {
                Some(packed.square_norm(&gradients.0))
            }
            MomentStorage::Packed(_) | MomentStorage::ByPath(_) => gradients.square_norm(),
        }
    }

    /// Updates `model` by its gradients, clipped, at the learning rate `lr`.
    ///
    /// # Panics
    ///
    /// If there is not a gradient for each parameter.
    #[must_use]
    pub fn step<M: Module>(&mut self, model: M, gradients: Gradients, clip: Clip, lr: f64) -> M {
        let values = flat::values(&model);
        assert_eq!(gradients.len(), values.len(), "a gradient for each parameter");
        self.steps += 1;
        let correction = |beta: f64| 1.0 - beta.powf(self.steps as f64);
        let rule =
            Rule { betas: self.betas, eps: self.eps, corrections: self.betas.map(correction) };
        let values = match clip {
            Clip::By(scale) => self.one_by_one(values, gradients, lr, rule, scale),
            Clip::To { square_norm, limit } => {
                self.pack(&values);
                let MomentStorage::Packed(packed) = &mut self.moments else {
                    unreachable!("invariant: packed above")
                };
                let rates = packed::rates(&self.groups, lr, rule);
                packed.step(values, gradients.0, &rates, rule, square_norm, limit)
            }
        };
        flat::with_values(model, values)
    }

    /// Packs the moments into one pair of tensors, if they are not.
    fn pack(&mut self, values: &[Tensor<1>]) {
        if let MomentStorage::ByPath(moments) = &mut self.moments {
            let packed = Packed::new(&self.groups, values, std::mem::take(moments));
            self.moments = MomentStorage::Packed(Box::new(packed));
        }
    }

    /// A step with operations for each parameter.
    fn one_by_one(
        &mut self,
        values: Vec<Tensor<1>>,
        gradients: Gradients,
        lr: f64,
        rule: Rule,
        scale: f64,
    ) -> Vec<Tensor<1>> {
        // Taken, so that no second holder keeps them from being updated in place.
        let empty = MomentStorage::ByPath(BTreeMap::new());
        let mut moments = match std::mem::replace(&mut self.moments, empty) {
            MomentStorage::ByPath(moments) => moments,
            MomentStorage::Packed(packed) => packed.moments(&self.groups),
        };
        let tensors = self.groups.iter().zip(values.into_iter().zip(gradients.0));
        let updates = tensors.map(|(group, (value, gradient))| {
            let known = moments.remove(&group.path);
            let Moments { first, second } = known.unwrap_or_else(|| Moments::zeros(&value));
            Update {
                before: Parameter { value, first, second },
                gradient,
                lr: group.rate(lr),
                weight_decay: group.weight_decay,
            }
        });
        let updates = updates.collect();
        let (mut values, mut moments) = (Vec::new(), BTreeMap::new());
        for (group, after) in self.groups.iter().zip(adamw(updates, rule, scale)) {
            let Parameter { value, first, second } = after;
            values.push(value);
            moments.insert(group.path.clone(), Moments { first, second });
        }
        self.moments = MomentStorage::ByPath(moments);
        values
    }
}

/// The gradients of a model's parameters, flat, in their order.
#[derive(Clone, Debug)]
pub struct Gradients(Vec<Tensor<1>>);

impl Gradients {
    /// Those of `model` that there are.
    #[must_use]
    pub fn new<M: Module>(model: &M, gradients: GradientsParams) -> Self {
        Self(flat::gradients(model, gradients))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Summed over the devices of a run, and the loss with them.
    pub fn summed(mut self, loss: Tensor<1>, comm: &mut dyn Comm) -> (Tensor<1>, Self) {
        self.0.push(loss);
        let mut tensors = comm.sum(self.0);
        let loss = tensors.pop().expect("invariant: as many sums as tensors");
        (loss, Self(tensors))
    }

    /// The square of the Euclidean norm of all together, `[1]`, still on the device; `None` if
    /// there are none.
    #[must_use]
    pub fn square_norm(&self) -> Option<Tensor<1>> {
        sum_of_squares(&self.0)
    }
}

/// What gradients of norm `norm` are multiplied by so that it does not exceed `limit`.
///
/// # Source
///
/// `torch.nn.utils.clip_grad_norm_`, with its 1e-6.
#[must_use]
pub fn clip_factor(norm: f64, limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0))
}
