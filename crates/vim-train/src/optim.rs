//! AdamW and the norm of the gradient.
//!
//! Our own, because a run's numerics and its exact resumption are this program's business: the
//! state is kept by parameter path, and the formula is PyTorch's.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_model::{Vim, decays, layer_of};

use crate::config::OptimConfig;

/// The first and second moments of a parameter's gradient, flat.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
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
    layer_decay: Option<LayerDecay>,
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
            layer_decay: None,
            steps: 0,
            moments: BTreeMap::new(),
        }
    }

    /// The same for a model of `depth` blocks, a layer learning at `factor` times the rate of the next.
    #[must_use]
    pub fn with_layer_decay(self, factor: Option<f64>, depth: usize) -> Self {
        Self { layer_decay: factor.map(|factor| LayerDecay { factor, depth }), ..self }
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
        let lr = match self.optimizer.layer_decay {
            Some(decay) => self.lr * decay.scale(&path),
            None => self.lr,
        };
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
        let change = (first.clone() / denominator).mul_scalar(lr / correction(beta1));
        self.optimizer.moments.insert(path, Moments { first, second });
        let decay = 1.0 - lr * weight_decay;
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

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use vim_model::{ModelConfig, SsmConfig, VimConfig};

    use super::*;

    /// The update of `torch.optim.AdamW`'s documentation, for one number, in f64.
    struct Scalar {
        value: f64,
        first: f64,
        second: f64,
    }

    impl Scalar {
        fn step(&mut self, gradient: f64, step: i32, lr: f64, decay: f64) {
            self.value -= lr * decay * self.value;
            self.first = 0.9 * self.first + 0.1 * gradient;
            self.second = 0.95 * self.second + 0.05 * gradient * gradient;
            let first = self.first / (1.0 - 0.9f64.powi(step));
            let second = self.second / (1.0 - 0.95f64.powi(step));
            self.value -= lr * first / (second.sqrt() + 1e-8);
        }
    }

    fn small() -> Vim {
        let model = ModelConfig {
            image_size: Some(8.into()),
            patch_size: Some(4),
            depth: Some(1),
            d_model: Some(16),
            d_state: Some(2),
            ..ModelConfig::default()
        };
        let config = VimConfig::new(&model, SsmConfig::default(), 3).unwrap();
        config.init(&Device::flex().autodiff(), 0).unwrap()
    }

    /// Every parameter with its path, flat.
    fn values(model: &Vim) -> BTreeMap<String, Vec<f64>> {
        let bytes = crate::weights::model_to_bytes(model).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let floats = |data: &[u8]| -> Vec<f64> {
            let f32s = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            f32s.map(f64::from).collect()
        };
        tensors.iter().map(|(name, t)| (name.to_owned(), floats(t.data()))).collect()
    }

    /// Gradients that are the parameters themselves times `factor`, plus 0.1.
    fn gradients(model: &Vim, factor: f64) -> GradientsParams {
        struct Fill(GradientsParams, f64);
        impl ModuleVisitor for Fill {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.register(param.id, param.val().inner() * self.1 + 0.1);
            }
        }
        let mut fill = Fill(GradientsParams::new(), factor);
        model.visit(&mut fill);
        fill.0
    }

    #[test]
    fn updates_are_those_of_the_formula_and_decay_where_they_should() {
        let config = OptimConfig {
            betas: [0.9, 0.95],
            eps: 1e-8,
            weight_decay: 0.3,
            ..OptimConfig::default()
        };
        let mut model = small();
        let mut optimizer = AdamW::new(&config);
        let mut want: BTreeMap<String, Vec<Scalar>> = values(&model)
            .into_iter()
            .map(|(path, values)| {
                let scalar = |value| Scalar { value, first: 0.0, second: 0.0 };
                (path, values.into_iter().map(scalar).collect())
            })
            .collect();
        for step in 1..=4 {
            let (factor, scale, lr) = (f64::from(step) - 2.5, 0.5, 0.01 * f64::from(step));
            let gradients = gradients(&model, factor);
            model = optimizer.step(model, gradients, scale, lr);
            for (path, scalars) in &mut want {
                // As the original exempts them: one dimension, positions, the class token.
                let name = path.rsplit('.').next().unwrap();
                let exempt = ["bias", "d", "cls_token", "pos_embed"].contains(&name)
                    || path.contains("norm");
                let decay = if exempt { 0.0 } else { 0.3 };
                for scalar in scalars {
                    let gradient = scale * (factor * scalar.value + 0.1);
                    scalar.step(gradient, step, lr, decay);
                }
            }
        }
        for (path, got) in values(&model) {
            for (got, want) in got.iter().zip(&want[&path]) {
                // Four updates of the order of 0.02 in f32.
                assert!((got - want.value).abs() < 2e-5, "{path}: {got} {}", want.value);
            }
        }
        assert_eq!(want.len(), optimizer.moments.len());
    }

    #[test]
    fn layers_near_the_input_learn_more_slowly() {
        // Without weight decay and at the first step, a change is the learning rate times the same number.
        let config = OptimConfig { weight_decay: 0.0, ..OptimConfig::default() };
        let step = |factor| {
            let model = small();
            let gradients = gradients(&model, 1.0);
            let mut optimizer = AdamW::new(&config).with_layer_decay(factor, 1);
            (values(&model), values(&optimizer.step(model, gradients, 1.0, 0.01)))
        };
        let ((before, plain), (_, decayed)) = (step(None), step(Some(0.5)));
        for (path, scale) in [
            ("patch_embed.proj.weight", 0.25),
            ("cls_token", 0.25),
            ("pos_embed", 0.25),
            ("layers.0.mixer.forward.a_log", 0.5),
            ("layers.0.norm.weight", 0.5),
            ("norm_f.weight", 1.0),
            ("head.bias", 1.0),
        ] {
            let changes = |after: &BTreeMap<String, Vec<f64>>| {
                after[path].iter().zip(&before[path]).map(|(a, b)| (a - b).abs()).sum::<f64>()
            };
            let ratio = changes(&decayed) / changes(&plain);
            assert!((ratio - scale).abs() < 1e-3, "{path}: {ratio}");
        }
        let same = step(Some(1.0));
        assert_eq!(same.1, plain);
    }

    #[test]
    fn the_norm_is_over_all_parameters_and_clipping_reaches_its_limit() {
        let model = small();
        let gradients = gradients(&model, 1.0);
        let squares = values(&model).into_values().flatten().map(|v| (v + 0.1) * (v + 0.1));
        let want = squares.sum::<f64>().sqrt();
        let norm = global_norm(&model, &gradients);
        assert!((norm - want).abs() < 1e-5 * want, "{norm} {want}");
        assert_eq!(clip_factor(norm, None), 1.0);
        assert_eq!(clip_factor(norm, Some(2.0 * norm)), 1.0);
        let clipped = norm * clip_factor(norm, Some(norm / 4.0));
        assert!((clipped - norm / 4.0).abs() < 1e-5 * norm);
    }

    #[test]
    fn state_survives_the_bytes_exactly() {
        let (mut model, config) = (small(), OptimConfig::default());
        let mut optimizer = AdamW::new(&config);
        let first = gradients(&model, 1.0);
        model = optimizer.step(model, first, 1.0, 0.01);
        let bytes = crate::weights::optimizer_to_bytes(&optimizer).unwrap();
        let device = Device::flex().autodiff();
        let mut back = crate::weights::optimizer_from_bytes(&config, &bytes, &device, "x").unwrap();
        let weights = crate::weights::model_to_bytes(&model).unwrap();
        let twin = crate::weights::model_from_bytes(small(), &weights, "x").unwrap();
        let (ours, theirs) = (gradients(&model, -1.0), gradients(&twin, -1.0));
        model = optimizer.step(model, ours, 1.0, 0.02);
        let twin = back.step(twin, theirs, 1.0, 0.02);
        assert_eq!(values(&model), values(&twin));
        assert!(crate::weights::optimizer_from_bytes(&config, &bytes[..99], &device, "x").is_err());
    }
}
