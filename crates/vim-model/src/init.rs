//! Every initial value.
//!
//! | parameter | starts as |
//! |---|---|
//! | `patch_embed.proj.weight` | normal, σ = 1/√(3·P²) / 0.8796, cut at ±2, or at 2σ: `PatchInit` |
//! | `patch_embed.proj.bias`, `head.bias` | 0 |
//! | class tokens, `pos_embed`, `head.weight` | truncated normal, σ = 0.02, cut at ±2 |
//! | `in_proj.weight`, `x_proj.weight` | U(±1/√inputs) |
//! | `conv1d.weight`, `conv1d.bias` | U(±1/√W) |
//! | `dt_proj.weight` | U(±1/√R) |
//! | `dt_proj.bias` | softplus⁻¹(delta), delta log-uniform in 0.001 … 0.1; backward: `DtBInit` |
//! | `a_log` | ln 1, ln 2, … ln N in every channel (S4D-real) |
//! | `a_off`, if there is one | 0: a full A starts as the diagonal one |
//! | `d`, every norm's `weight` | 1 |
//! | every norm's `bias` | 0 |
//! | `out_proj.weight` | U(±1/√D) / √depth |
//! | `gamma`, if there is one | the number in `layer_scale` |
//!
//! Values are drawn on the host from the seed and the parameter's path: neither the device, nor the
//! order of construction, nor another parameter's shape changes a value.
//!
//! # Source
//!
//! The original's initializers in their order of application; each row is the final result.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use rand_chacha::ChaCha8Rng;

use crate::rng::{key_of, keyed, normal, unit};

/// Standard deviation of a standard normal number that is cut at ±2.
pub(crate) const CUT_NORMAL_STD: f64 = 0.879_625_661_034_239_8;
/// The range that delta starts in, and the least that its bias is computed from.
const DELTA: (f64, f64) = (1e-3, 1e-1);
const DELTA_FLOOR: f64 = 1e-4;

/// How a parameter starts.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// The same everywhere.
    Constant(f32),
    /// Uniform in ±`bound`.
    Uniform {
        /// The largest magnitude.
        bound: f64,
    },
    /// Normal around 0, redrawn outside ±`cut`.
    Normal {
        /// The deviation before it is cut.
        std: f64,
        /// The largest magnitude.
        cut: f64,
    },
    /// ln 1, ln 2, … along the last dimension.
    LogStates,
    /// The bias whose softplus is log-uniform in `DELTA`.
    InverseSoftplus,
}

impl Rule {
    /// Of class token, positions and head.
    pub(crate) const SMALL_NORMAL: Self = Self::Normal { std: 0.02, cut: 2.0 };

    /// PyTorch's default for a layer whose outputs see `inputs` numbers each.
    #[must_use]
    pub fn fan_in(inputs: usize) -> Self {
        Self::Uniform { bound: (inputs as f64).sqrt().recip() }
    }

    fn value(self, index: usize, last_dim: usize, rng: &mut ChaCha8Rng) -> f32 {
        match self {
            Self::Constant(value) => value,
            Self::Uniform { bound } => (bound * (2.0 * unit(rng) - 1.0)) as f32,
            Self::Normal { std, cut } => loop {
                let value = std * normal(rng);
                if value.abs() <= cut {
                    break value as f32;
                }
            },
            Self::LogStates => ((index % last_dim + 1) as f64).ln() as f32,
            Self::InverseSoftplus => {
                let (low, high) = (DELTA.0.ln(), DELTA.1.ln());
                let delta = (low + (high - low) * unit(rng)).exp().max(DELTA_FLOOR);
                (delta + (-(-delta).exp_m1()).ln()) as f32
            }
        }
    }
}

/// A module's path: it names the parameters, and their names and the seed determine their values.
#[derive(Debug)]
pub struct Scope<'a> {
    device: &'a Device,
    seed: u64,
    path: String,
}

impl<'a> Scope<'a> {
    /// The scope of a module that is no part of another.
    #[must_use]
    pub fn root(device: &'a Device, seed: u64) -> Self {
        Self { device, seed, path: String::new() }
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    /// The scope of the module's part `name`.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { path: self.join(name), ..*self }
    }

    /// The parameter `name` of the module.
    #[must_use]
    pub fn param<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        rule: Rule,
    ) -> Param<Tensor<D>> {
        let mut rng = keyed(b"vim-model: inits", self.seed, key_of(&self.join(name)));
        let size: usize = shape.iter().product();
        let values: Vec<f32> =
            (0..size).map(|index| rule.value(index, shape[D - 1], &mut rng)).collect();
        Param::<Tensor<D>>::from_data(TensorData::new(values, shape), self.device)
    }

    pub(crate) fn linear(&self, shape: [usize; 2], weight: Rule, bias: Option<Rule>) -> Linear {
        Linear {
            weight: self.param("weight", shape, weight),
            bias: bias.map(|rule| self.param("bias", [shape[1]], rule)),
        }
    }
}
