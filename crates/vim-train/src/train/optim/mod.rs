//! AdamW: parameter groups, moments, and the arithmetic for one tensor. Where a device updates many
//! tensors at once, the arithmetic is in [`vim_kernels::FlatParams`].
//!
//! Our own optimizer, because resuming must give the same bytes: moments are saved by parameter
//! path, and the formula is PyTorch's.

mod packed;
mod saved;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::Tensor;
use vim_kernels::{FlatParams, supports_multi_tensor};

use super::flat;
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
    /// The initial moments.
    fn zeros(value: &Tensor<1>) -> Self {
        Self { first: value.zeros_like(), second: value.zeros_like() }
    }
}

/// How gradients are clipped.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for the length of a call")]
pub enum Clip {
    /// Multiplied by a factor known to the host.
    By(f64),
    /// Scaled down to a norm of `limit`; for devices with [multi-tensor
    /// kernels](vim_kernels::supports_multi_tensor). The squared norm, `[1]`, stays on the device;
    /// if it is not finite, the step changes nothing.
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
    /// Factor of the learning rate; `None` if not scaled.
    lr_scale: Option<f64>,
    weight_decay: f64,
}

impl ParamGroup {
    /// The groups of the trainable parameters of `model`, in module order. `placement` gets a
    /// parameter's path and rank.
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
    /// One pair of tensors per parameter, by path.
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
    /// A new optimizer for the parameters of `groups`.
    pub fn new(config: &OptimConfig, groups: Vec<ParamGroup>) -> Self {
        Self {
            betas: config.betas,
            eps: config.eps,
            groups,
            steps: 0,
            moments: MomentStorage::ByPath(BTreeMap::new()),
        }
    }

    /// The optimizer after `steps` updates with these moments, by parameter path.
    pub fn resumed(self, steps: u64, moments: BTreeMap<String, Moments>) -> Self {
        Self { steps, moments: MomentStorage::ByPath(moments), ..self }
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.groups.len()
    }

    /// The moments by parameter path.
    pub fn moments(&self) -> BTreeMap<String, Moments> {
        match &self.moments {
            MomentStorage::ByPath(moments) => moments.clone(),
            MomentStorage::Packed(packed) => packed.moments(&self.groups),
        }
    }

    /// The parameters after the last step, if packed.
    pub fn packed(&self) -> Option<(&FlatParams, &Tensor<1>)> {
        match &self.moments {
            MomentStorage::ByPath(_) => None,
            MomentStorage::Packed(packed) => packed.value(),
        }
    }

    /// The sum of squares of all gradients, `[1]`, on the device; `None` without gradients. Takes
    /// fewer transfers once the layout is known.
    pub fn square_norm(&self, gradients: &[Tensor<1>]) -> Option<Tensor<1>> {
        let first = gradients.first()?;
        if let MomentStorage::Packed(packed) = &self.moments {
            return Some(packed.square_norm(gradients));
        }
        if supports_multi_tensor(&first.device()) {
            return Some(vim_kernels::sum_of_squares(gradients));
        }
        let squares = gradients.iter().map(|tensor| (tensor.clone() * tensor.clone()).sum());
        squares.reduce(|sum, square| sum + square)
    }

    /// Updates `model` with the clipped gradients at the learning rate `lr`.
    ///
    /// # Panics
    ///
    /// If the number of gradients differs from the number of parameters.
    pub fn step<M: Module>(
        &mut self,
        model: M,
        gradients: Vec<Tensor<1>>,
        clip: Clip,
        lr: f64,
    ) -> M {
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
                packed.step(values, gradients, &rates, rule, square_norm, limit)
            }
        };
        flat::with_values(model, values)
    }

    /// Packs the moments into one pair of tensors, unless packed.
    fn pack(&mut self, values: &[Tensor<1>]) {
        if let MomentStorage::ByPath(moments) = &mut self.moments {
            let packed = Packed::new(&self.groups, values, std::mem::take(moments));
            self.moments = MomentStorage::Packed(Box::new(packed));
        }
    }

    /// A step with separate operations per parameter.
    fn one_by_one(
        &mut self,
        values: Vec<Tensor<1>>,
        gradients: Vec<Tensor<1>>,
        lr: f64,
        rule: Rule,
        scale: f64,
    ) -> Vec<Tensor<1>> {
        // Taken, because a second reference would prevent updates in place.
        let empty = MomentStorage::ByPath(BTreeMap::new());
        let mut moments = match std::mem::replace(&mut self.moments, empty) {
            MomentStorage::ByPath(moments) => moments,
            MomentStorage::Packed(packed) => packed.moments(&self.groups),
        };
        let (mut updated, mut after) = (Vec::with_capacity(values.len()), BTreeMap::new());
        for (group, (value, gradient)) in self.groups.iter().zip(values.into_iter().zip(gradients))
        {
            let known = moments.remove(&group.path);
            let known = known.unwrap_or_else(|| Moments::zeros(&value));
            let (value, known) = adamw(group, value, known, gradient, lr, rule, scale);
            updated.push(value);
            after.insert(group.path.clone(), known);
        }
        self.moments = MomentStorage::ByPath(after);
        updated
    }
}

/// The numbers of a step that all parameters share.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Decay rates of the two means.
    betas: [f64; 2],
    /// Added to the denominator.
    eps: f64,
    /// `1 − betaᵗ` of the two means at the t-th step.
    corrections: [f64; 2],
}

/// A step of one parameter by its gradient times `scale`.
///
/// # Source
///
/// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
fn adamw(
    group: &ParamGroup,
    value: Tensor<1>,
    Moments { first, second }: Moments,
    gradient: Tensor<1>,
    lr: f64,
    rule: Rule,
    scale: f64,
) -> (Tensor<1>, Moments) {
    let Rule { betas: [beta1, beta2], eps, corrections } = rule;
    let lr = group.rate(lr);
    let gradient = if scale == 1.0 { gradient } else { gradient.mul_scalar(scale) };
    let first = first.mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
    let second = second.mul_scalar(beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
    let denominator =
        second.clone().sqrt().mul_scalar(corrections[1].sqrt().recip()).add_scalar(eps);
    let change = (first.clone() / denominator).mul_scalar(lr / corrections[0]);
    let decay = 1.0 - lr * group.weight_decay;
    let value = if decay == 1.0 { value } else { value.mul_scalar(decay) };
    (value - change, Moments { first, second })
}

/// The factor that limits gradients of norm `norm` to `limit`.
///
/// # Source
///
/// `torch.nn.utils.clip_grad_norm_`, with its 1e-6.
pub fn clip_factor(norm: f64, limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0))
}
