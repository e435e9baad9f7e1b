//! AdamW: who decays, who learns how fast, and the state. What it computes is in [`crate::train::multi_tensor`], and where a device takes
//! many tensors at once in [`vim_kernels::FlatParams`].
//!
//! Our own, because a run's numerics and its exact resumption are this program's business: the
//! state is saved by parameter path, and the formula is PyTorch's.

mod packed;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_kernels::FlatParams;
use vim_model::{DecayGroups, Vim, decays, layer_of};

use crate::config::OptimConfig;
use crate::train::flat;
use crate::train::multi_tensor::{Parameter, Rule, Update, adamw, sum_of_squares};
use packed::Packed;

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
#[expect(clippy::large_enum_variant, reason = "one lives at a time, for the length of a call")]
pub enum Clip {
    /// Multiplied by a factor that the host knows.
    By(f64),
    /// Scaled down to a norm of `limit` by the norm whose square, `[1]`, is still on the device. Where that is not finite,
    /// the step changes nothing. Where the device [takes many](vim_kernels::supports_multi_tensor) tensors at once.
    To {
        /// The square of the norm.
        square_norm: Tensor<1>,
        /// The largest norm.
        limit: Option<f64>,
    },
}

/// What a parameter has of its own in a step.
#[derive(Clone, Debug)]
struct Own {
    path: String,
    /// What its learning rate is multiplied by; none is not multiplied.
    lr_scale: Option<f64>,
    weight_decay: f64,
}

impl Own {
    fn rate(&self, lr: f64) -> f64 {
        self.lr_scale.map_or(lr, |scale| lr * scale)
    }
}

/// Where the moments are.
#[derive(Clone, Debug)]
enum Kept {
    /// Of each parameter by its path: as read from a file, and where each takes operations of its own.
    Each(BTreeMap<String, Moments>),
    /// Of all in one.
    Packed(Box<Packed>),
}

/// Smaller learning rates the nearer a layer is to the input.
#[derive(Clone, Copy, Debug)]
struct LayerDecay {
    factor: f64,
    depth: usize,
}

impl LayerDecay {
    /// What the learning rate of the parameter at `path` is multiplied by.
    ///
    /// # Source
    ///
    /// Bao et al. 2021 (BEiT): `factor^(depth + 1 − layer)`.
    fn scale(self, path: &str) -> f64 {
        self.factor.powi((self.depth + 1 - layer_of(path, self.depth)) as i32)
    }
}

/// AdamW with decoupled weight decay on the parameters that [`decays`] names.
///
/// # Source
///
/// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
#[derive(Clone, Debug)]
pub struct AdamW {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    decay_groups: DecayGroups,
    layer_decay: Option<LayerDecay>,
    /// Updates done.
    pub steps: u64,
    kept: Kept,
}

impl AdamW {
    /// An optimizer that has seen no gradient.
    #[must_use]
    pub fn new(config: &OptimConfig) -> Self {
        Self {
            betas: config.betas,
            eps: config.eps,
            weight_decay: config.weight_decay,
            decay_groups: config.decay_groups,
            layer_decay: None,
            steps: 0,
            kept: Kept::Each(BTreeMap::new()),
        }
    }

    /// The same for a model of `depth` blocks, a layer learning at `factor` times the rate of the next.
    #[must_use]
    pub fn with_layer_decay(self, factor: Option<f64>, depth: usize) -> Self {
        Self { layer_decay: factor.map(|factor| LayerDecay { factor, depth }), ..self }
    }

    /// The same after `steps` updates that left these moments, by parameter path.
    #[must_use]
    pub fn resumed(self, steps: u64, moments: BTreeMap<String, Moments>) -> Self {
        Self { steps, kept: Kept::Each(moments), ..self }
    }

    /// The moments by parameter path.
    #[must_use]
    pub fn moments(&self) -> BTreeMap<String, Moments> {
        match &self.kept {
            Kept::Each(moments) => moments.clone(),
            Kept::Packed(packed) => packed.moments(),
        }
    }

    /// The parameters after the last step, in one tensor, if they lie so.
    #[must_use]
    pub fn packed(&self) -> Option<(&FlatParams, &Tensor<1>)> {
        match &self.kept {
            Kept::Each(_) => None,
            Kept::Packed(packed) => packed.value(),
        }
    }

    /// [`Gradients::square_norm`], which an optimizer that knows their sizes takes with fewer transfers.
    #[must_use]
    pub fn square_norm(&self, gradients: &Gradients) -> Option<Tensor<1>> {
        match &self.kept {
            Kept::Packed(packed) if !gradients.is_empty() => Some(packed.square_norm(&gradients.0)),
            Kept::Packed(_) | Kept::Each(_) => gradients.square_norm(),
        }
    }

    /// Updates `model` by its gradients, clipped, at the learning rate `lr`.
    ///
    /// # Panics
    ///
    /// If there is not a gradient for each parameter.
    #[must_use]
    pub fn step(&mut self, model: Vim, gradients: Gradients, clip: Clip, lr: f64) -> Vim {
        let values = flat::values(&model);
        assert_eq!(gradients.len(), values.len(), "a gradient for each parameter");
        self.steps += 1;
        let correction = |beta: f64| 1.0 - beta.powf(self.steps as f64);
        let rule =
            Rule { betas: self.betas, eps: self.eps, corrections: self.betas.map(correction) };
        let values = match clip {
            Clip::By(scale) => self.one_by_one(&model, values, gradients, lr, rule, scale),
            Clip::To { square_norm, limit } => {
                let packed = self.packed_for(&model, &values);
                packed.step(values, gradients.0, lr, rule, square_norm, limit)
            }
        };
        flat::with_values(model, values)
    }

    /// What each parameter of `model` has of its own, in their order.
    fn own(&self, model: &Vim) -> Vec<Own> {
        let own = model.parameters().into_iter().map(|parameter| Own {
            lr_scale: self.layer_decay.map(|decay| decay.scale(&parameter.path)),
            weight_decay: if decays(&parameter.path, parameter.shape.len(), self.decay_groups) {
                self.weight_decay
            } else {
                0.0
            },
            path: parameter.path,
        });
        own.collect()
    }

    /// The state in one, made so if it is not.
    fn packed_for(&mut self, model: &Vim, values: &[Tensor<1>]) -> &mut Packed {
        if let Kept::Each(moments) = &mut self.kept {
            let moments = std::mem::take(moments);
            let packed = Packed::new(self.own(model), values, moments);
            self.kept = Kept::Packed(Box::new(packed));
        }
        match &mut self.kept {
            Kept::Packed(packed) => packed,
            Kept::Each(_) => unreachable!("invariant: made above"),
        }
    }

    /// A step of operations for each parameter.
    fn one_by_one(
        &mut self,
        model: &Vim,
        values: Vec<Tensor<1>>,
        gradients: Gradients,
        lr: f64,
        rule: Rule,
        scale: f64,
    ) -> Vec<Tensor<1>> {
        // Taken, so that no second holder keeps them from being updated in place.
        let mut moments = match std::mem::replace(&mut self.kept, Kept::Each(BTreeMap::new())) {
            Kept::Each(moments) => moments,
            Kept::Packed(packed) => packed.moments(),
        };
        let own = self.own(model);
        let given = own.iter().zip(values.into_iter().zip(gradients.0));
        let updates = given.map(|(own, (value, gradient))| {
            let kept = moments.remove(&own.path);
            let Moments { first, second } = kept.unwrap_or_else(|| Moments::zeros(&value));
            Update {
                before: Parameter { value, first, second },
                gradient,
                lr: own.rate(lr),
                weight_decay: own.weight_decay,
            }
        });
        let updates = updates.collect();
        let (mut values, mut moments) = (Vec::with_capacity(own.len()), BTreeMap::new());
        for (own, after) in own.into_iter().zip(adamw(updates, rule, scale)) {
            let Parameter { value, first, second } = after;
            values.push(value);
            moments.insert(own.path, Moments { first, second });
        }
        self.kept = Kept::Each(moments);
        values
    }
}

/// The gradients of a model's parameters, flat, in their order.
#[derive(Clone, Debug)]
pub struct Gradients(Vec<Tensor<1>>);

impl Gradients {
    /// Those of `model` that there are.
    #[must_use]
    pub fn new(model: &Vim, gradients: GradientsParams) -> Self {
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

    /// The square of the Euclidean norm of all together, `[1]`, not yet read from the device; `None` if there are none.
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
