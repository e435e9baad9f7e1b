//! AdamW and the norm of the gradient.
//!
//! Our own, because a run's numerics and its exact resumption are this program's business: the
//! state is kept by parameter path, and the formula is PyTorch's to the order of operations.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_model::{Vim, decays};

use crate::config::OptimConfig;

/// The first and second moments of a parameter's gradient, flat.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
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
    /// Updates done.
    pub steps: u64,
    /// By parameter path.
    pub moments: BTreeMap<String, Moments>,
}

impl AdamW {
    /// An optimizer that has seen no gradient.
    #[must_use]
    pub fn new(config: &OptimConfig) -> Self {
        Self {
            betas: config.betas,
            eps: config.eps,
            weight_decay: config.weight_decay,
            steps: 0,
            moments: BTreeMap::new(),
        }
    }

    /// Updates `model` by gradients times `scale` (the clipping factor) at the learning rate `lr`.
    #[must_use]
    pub fn step(&mut self, model: Vim, gradients: GradientsParams, scale: f64, lr: f64) -> Vim {
        self.steps += 1;
        let mut update = Update { path: Vec::new(), optimizer: self, gradients, scale, lr };
        model.map(&mut update)
    }
}

struct Update<'a> {
    path: Vec<String>,
    optimizer: &'a mut AdamW,
    gradients: GradientsParams,
    scale: f64,
    lr: f64,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return param };
        let path = self.path.join(".");
        let AdamW { betas: [beta1, beta2], eps, weight_decay, steps, .. } = *self.optimizer;
        let weight_decay = if decays(&path, D) { weight_decay } else { 0.0 };
        let count = gradient.shape().num_elements();
        let gradient = gradient.reshape([count]);
        let gradient = if self.scale == 1.0 { gradient } else { gradient.mul_scalar(self.scale) };
        let (first, second) = match self.optimizer.moments.remove(&path) {
            Some(Moments { first, second }) => (first.mul_scalar(beta1), second.mul_scalar(beta2)),
            None => (gradient.zeros_like(), gradient.zeros_like()),
        };
        let first = first + gradient.clone().mul_scalar(1.0 - beta1);
        let second = second + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
        let correction = |beta: f64| 1.0 - beta.powf(steps as f64);
        let denominator =
            second.clone().sqrt().mul_scalar(correction(beta2).sqrt().recip()).add_scalar(eps);
        let change = (first.clone() / denominator).mul_scalar(self.lr / correction(beta1));
        self.optimizer.moments.insert(path, Moments { first, second });
        let decay = 1.0 - self.lr * weight_decay;
        param.map(|value| {
            let requires_grad = value.is_require_grad();
            let shape = value.dims();
            let value = value.inner().reshape([count]);
            let value = if decay == 1.0 { value } else { value.mul_scalar(decay) };
            let value = Tensor::from_inner((value - change).reshape(shape));
            if requires_grad { value.require_grad() } else { value }
        })
    }
}

/// The Euclidean norm of all gradients together.
#[must_use]
pub fn global_norm(model: &Vim, gradients: &GradientsParams) -> f64 {
    struct Squares<'a>(&'a GradientsParams, Option<Tensor<1>>);
    impl ModuleVisitor for Squares<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                let square = (gradient.clone() * gradient).sum();
                self.1 = Some(match self.1.take() {
                    Some(sum) => sum + square,
                    None => square,
                });
            }
        }
    }
    let mut squares = Squares(gradients, None);
    model.visit(&mut squares);
    squares.1.map_or(0.0, |sum| f64::from(sum.into_scalar::<f32>()).sqrt())
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
