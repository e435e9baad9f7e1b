//! AdamW: parameter groups, moments, and the arithmetic for one tensor. Where a device updates many
//! tensors at once, the arithmetic is in [`vim_kernels::FlatParams`].
//!
//! Our own optimizer, because resuming must give the same bytes: moments are saved by parameter
//! path, and the formula is PyTorch's. It works on a model's trainable parameters as flat tensors
//! without gradients, in the order of its modules. Trainable are float parameters that require a
//! gradient, unlike running statistics.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::mem;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use vim_kernels::{AdamWHyper, FlatParams, ParamStep, supports_multi_tensor};

use crate::config::{Config, OptimConfig};
use crate::task::Placement;

/// The first and second moments of a parameter's gradient, flat.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
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
    /// Numbers in the parameter.
    size: usize,
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
        let groups = flat_parameters(model).into_iter().map(|(path, shape)| {
            let Placement { decays, layers_above } = placement(&path, shape.len());
            Self {
                size: shape.iter().product(),
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

/// The moments of all parameters, in the order of the groups.
#[derive(Clone, Debug)]
enum MomentStorage {
    /// A pair of tensors for each parameter; empty before the first step.
    Each(Vec<Moments>),
    /// One pair for all, on devices that update all tensors of a model in a few launches.
    Packed(Box<Packed>),
}

#[derive(Clone, Debug)]
struct Packed {
    packing: FlatParams,
    /// Of which the model's parameters are views.
    value: Tensor<1>,
    moments: [Tensor<1>; 2],
}

impl MomentStorage {
    /// A pair of tensors for each of `values`, zeros before the first step.
    fn each(self, values: &[Tensor<1>]) -> Vec<Moments> {
        let zeros =
            |value: &Tensor<1>| Moments { first: value.zeros_like(), second: value.zeros_like() };
        match self {
            Self::Each(moments) if moments.is_empty() => values.iter().map(zeros).collect(),
            Self::Each(moments) => moments,
            Self::Packed(packed) => packed.each(),
        }
    }

    /// One pair for all parameters, and `model` with parameters that are views of a buffer of
    /// their own, which steps update.
    fn packed<M: Module>(self, model: M) -> (Box<Packed>, M) {
        if let Self::Packed(packed) = self {
            return (packed, model);
        }
        let values = flat_values(&model);
        let packing = FlatParams::of(&values);
        let pairs = self.each(&values).into_iter();
        let (first, second) = pairs.map(|Moments { first, second }| (first, second)).unzip();
        let moments = [packing.pack(first), packing.pack(second)];
        let value = packing.pack(values);
        let model = with_flat_values(model, packing.parts(&value));
        (Box::new(Packed { packing, value, moments }), model)
    }
}

impl Packed {
    fn each(&self) -> Vec<Moments> {
        let [first, second] = self.moments.each_ref().map(|packed| self.packing.parts(packed));
        let pairs = first.into_iter().zip(second);
        pairs.map(|(first, second)| Moments { first, second }).collect()
    }
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
        let moments = MomentStorage::Each(Vec::new());
        Self { betas: config.betas, eps: config.eps, groups, steps: 0, moments }
    }

    /// The optimizer after `steps` updates with these moments, in the order of
    /// [`Self::parameters`].
    pub fn resumed(self, steps: u64, moments: Vec<Moments>) -> Self {
        Self { steps, moments: MomentStorage::Each(moments), ..self }
    }

    /// Path and size of each parameter.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = (&str, usize)> {
        self.groups.iter().map(|group| (group.path.as_str(), group.size))
    }

    /// The moments by parameter path.
    pub fn moments(&self) -> BTreeMap<&str, Moments> {
        let moments = match &self.moments {
            MomentStorage::Each(moments) => moments.clone(),
            MomentStorage::Packed(packed) => packed.each(),
        };
        self.groups.iter().map(|group| group.path.as_str()).zip(moments).collect()
    }

    /// The parameters, if packed: the next step changes them there.
    pub fn packed(&self) -> Option<(&FlatParams, &Tensor<1>)> {
        match &self.moments {
            MomentStorage::Each(_) => None,
            MomentStorage::Packed(packed) => Some((&packed.packing, &packed.value)),
        }
    }

    /// The sum of squares of all gradients, `[1]`, on the device; `None` without gradients. Takes
    /// fewer transfers once the layout is known.
    pub fn square_norm(&self, gradients: &[Tensor<1>]) -> Option<Tensor<1>> {
        let first = gradients.first()?;
        if let MomentStorage::Packed(packed) = &self.moments {
            return Some(packed.packing.sum_of_squares(gradients));
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
    ///
    /// With [`Clip::To`] in place, from the second step on: what holds parameters of the model, or
    /// [`Self::moments`], sees the update.
    pub fn step<M: Module>(
        &mut self,
        model: M,
        gradients: Vec<Tensor<1>>,
        clip: Clip,
        lr: f64,
    ) -> M {
        assert_eq!(gradients.len(), self.groups.len(), "a gradient for each parameter");
        self.steps += 1;
        // 1 − betaᵗ of the two means at the t-th step.
        let corrections = self.betas.map(|beta| 1.0 - beta.powf(self.steps as f64));
        // Taken, because a second reference would prevent updates in place.
        let moments = mem::replace(&mut self.moments, MomentStorage::Each(Vec::new()));
        match clip {
            Clip::By(scale) => {
                let values = flat_values(&model);
                let moments = moments.each(&values);
                let parameters = values.into_iter().zip(moments).zip(gradients).zip(&self.groups);
                let (values, moments) = parameters
                    .map(|(((value, moments), gradient), group)| {
                        let gradient =
                            if scale == 1.0 { gradient } else { gradient.mul_scalar(scale) };
                        self.adamw(group, value, moments, gradient, lr, corrections)
                    })
                    .unzip();
                self.moments = MomentStorage::Each(moments);
                with_flat_values(model, values)
            }
            Clip::To { square_norm, limit } => {
                let (packed, model) = moments.packed(model);
                let steps = self.groups.iter().map(|group| ParamStep {
                    rate: group.rate(lr) / corrections[0],
                    keep: 1.0 - group.rate(lr) * group.weight_decay,
                });
                let steps: Vec<ParamStep> = steps.collect();
                let root_scale = corrections[1].sqrt().recip();
                let hyper = AdamWHyper { betas: self.betas, eps: self.eps, limit, root_scale };
                let Packed { packing, value, moments: [first, second] } = &*packed;
                packing.adamw([value, first, second], gradients, &steps, square_norm, hyper);
                self.moments = MomentStorage::Packed(packed);
                model
            }
        }
    }

    /// A step of one parameter.
    fn adamw(
        &self,
        group: &ParamGroup,
        value: Tensor<1>,
        Moments { first, second }: Moments,
        gradient: Tensor<1>,
        lr: f64,
        corrections: [f64; 2],
    ) -> (Tensor<1>, Moments) {
        let ([beta1, beta2], lr) = (self.betas, group.rate(lr));
        let first = first.mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
        let second =
            second.mul_scalar(beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
        let denominator =
            second.clone().sqrt().mul_scalar(corrections[1].sqrt().recip()).add_scalar(self.eps);
        let change = (first.clone() / denominator).mul_scalar(lr / corrections[0]);
        let decay = 1.0 - lr * group.weight_decay;
        let value = if decay == 1.0 { value } else { value.mul_scalar(decay) };
        (value - change, Moments { first, second })
    }
}

/// The factor that limits gradients of norm `norm` to `limit`.
///
/// # Source
///
/// `torch.nn.utils.clip_grad_norm_`, with its 1e-6.
pub fn clip_factor(norm: f64, limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0))
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// Paths, such as `layers.0.mixer.forward.a_log`, and shapes of the trainable parameters.
pub fn flat_parameters<M: Module>(model: &M) -> Vec<(String, Vec<usize>)> {
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
pub fn flat_values<M: Module>(model: &M) -> Vec<Tensor<1>> {
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
pub fn flat_gradients<M: Module>(model: &M, gradients: GradientsParams) -> Vec<Tensor<1>> {
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
pub fn with_flat_values<M: Module>(model: M, values: Vec<Tensor<1>>) -> M {
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
