//! Every initial value.
//!
//! | parameter | starts as |
//! |---|---|
//! | `patch_embed.proj.weight` | LeCun normal: truncated at two deviations, variance 1/(3·P²) |
//! | `patch_embed.proj.bias`, `head.bias` | 0 |
//! | `cls_token` (`_head`, `_tail`), `pos_embed`, `head.weight` | truncated normal, σ = 0.02, cut at ±2 |
//! | `in_proj.weight`, `x_proj.weight` | U(±1/√inputs) |
//! | `conv1d.weight`, `conv1d.bias` | U(±1/√W) |
//! | `dt_proj.weight` | U(±1/√R) |
//! | `dt_proj.bias` | softplus⁻¹(delta), delta log-uniform in 0.001 … 0.1; backward: [`DtBInit`] |
//! | `a_log` | ln 1, ln 2, … ln N in every channel (S4D-real) |
//! | `a_off`, if there is one | 0: a full A starts as the diagonal one |
//! | `d`, every norm's `weight` | 1 |
//! | every norm's `bias` | 0 |
//! | `out_proj.weight` | U(±1/√D) / √depth |
//! | `gamma`, if there is one | the number in `layer_scale` |
//!
//! Drawn on the host, from the seed and the parameter's path alone: neither the device, nor the order
//! of construction, nor another parameter's shape changes a value.
//!
//! # Source
//!
//! The original's initializers in their order of application; each row is what is left at the end.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor, TensorData};
use rand_chacha::ChaCha8Rng;
use vim_kernels::{Precision, ScanOptions};

use crate::block::Block;
use crate::config::{
    Bimamba, ClassToken, DtBInit, LayerScale, ModelError, NormKind, StateMatrix, VimConfig,
};
use crate::direction::{CausalConv1d, Direction};
use crate::mixer::Mixer;
use crate::norm::Norm;
use crate::patch_embed::{PatchEmbed, PatchProjection};
use crate::rng::{key_of, keyed, normal, unit};
use crate::vim::Vim;

/// Standard deviation of a standard normal number that is cut at ±2.
const CUT_NORMAL_STD: f64 = 0.879_625_661_034_239_8;
/// The range that delta starts in, and the least that its bias is computed from.
const DELTA: (f64, f64) = (1e-3, 1e-1);
const DELTA_FLOOR: f64 = 1e-4;

impl VimConfig {
    /// Builds the model, every value a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] names a value that cannot be built, [`ModelError::Conflict`] two that do not go
    /// together; [`ModelError::Kernel`] if `ssm.scan` forces a kernel that `device` does not have.
    pub fn init(&self, device: &Device, seed: u64) -> Result<Vim, ModelError> {
        self.check()?;
        self.ssm.scan.resolve(device)?;
        let at = Scope { device, seed, path: String::new() };
        let (d_model, num_classes) = (self.d_model, self.num_classes);
        let layers = at.child("layers");
        let token = |name| at.param(name, [1, 1, d_model], Rule::SMALL_NORMAL);
        let double = self.class_token == ClassToken::Double;
        Ok(Vim {
            patch_embed: self.patch_embed(&at.child("patch_embed.proj")),
            cls_token: (self.num_class_tokens() == 1).then(|| token("cls_token")),
            cls_token_head: double.then(|| token("cls_token_head")),
            cls_token_tail: double.then(|| token("cls_token_tail")),
            pos_embed: self.abs_pos_embed.then(|| {
                at.param("pos_embed", [1, self.num_tokens(), d_model], Rule::SMALL_NORMAL)
            }),
            layers: (0..self.depth).map(|i| self.block(&layers.child(&i.to_string()))).collect(),
            norm_f: self.norm(&at.child("norm_f")),
            head: at.child("head").linear(
                [d_model, num_classes],
                Rule::SMALL_NORMAL,
                Some(Rule::Constant(0.0)),
            ),
            config: self.clone(),
        })
    }

    fn patch_embed(&self, at: &Scope) -> PatchEmbed {
        let (d_model, patch) = (self.d_model, self.patch_size);
        let std = ((3 * patch * patch) as f64).sqrt().recip() / CUT_NORMAL_STD;
        let weight = Rule::Normal { std, cut: 2.0 * std };
        PatchEmbed {
            proj: PatchProjection {
                weight: at.param("weight", [d_model, 3, patch, patch], weight),
                bias: at.param("bias", [d_model], Rule::Constant(0.0)),
            },
            stride: self.stride,
            precision: Precision::default(),
        }
    }

    fn block(&self, at: &Scope) -> Block {
        let (d_model, d_inner) = (self.d_model, self.d_inner());
        let mixer = at.child("mixer");
        let in_proj = Rule::fan_in(d_model);
        // One residual branch per block, so the stream's variance does not grow with depth.
        let out_proj = Rule::fan_in(d_inner * self.depth);
        let backward_bias = match self.ssm.dt_b_init {
            DtBInit::InverseSoftplus => Rule::InverseSoftplus,
            DtBInit::UpstreamZero => Rule::Constant(0.0),
        };
        let bias = Rule::InverseSoftplus;
        Block {
            norm: self.norm(&at.child("norm")),
            mixer: Mixer {
                in_proj: mixer.child("in_proj").linear([d_model, 2 * d_inner], in_proj, None),
                forward: self.direction(&mixer.child("forward"), bias),
                backward: match self.bimamba {
                    Bimamba::None => None,
                    Bimamba::V1 => Some(self.rate(&mixer.child("backward"))),
                    Bimamba::V2 => Some(self.direction(&mixer.child("backward"), backward_bias)),
                },
                out_proj: mixer.child("out_proj").linear([d_inner, d_model], out_proj, None),
                gamma: match self.layer_scale {
                    LayerScale::None => None,
                    LayerScale::Starts(value) => {
                        Some(mixer.param("gamma", [d_model], Rule::Constant(value as f32)))
                    }
                },
                ways: self.ways(),
                bimamba: self.bimamba,
                gate_gradient: self.ssm.v1_gate_gradient.unwrap_or_default(),
                divide_out: self.divide_out,
                precision: Precision::default(),
                recompute: false,
            },
        }
    }

    /// How the forward and the backward direction scan.
    fn ways(&self) -> [ScanOptions; 2] {
        let [first, last] = self.methods();
        [(first, false), (last, true)].map(|(method, reverse)| ScanOptions {
            method,
            series: self.ssm.series,
            delta_softplus: true,
            reverse,
            choice: self.ssm.scan,
        })
    }

    fn norm(&self, at: &Scope) -> Norm {
        let bias = || at.param("bias", [self.d_model], Rule::Constant(0.0));
        Norm {
            weight: at.param("weight", [self.d_model], Rule::Constant(1.0)),
            bias: (self.norm == NormKind::Layer).then(bias),
            epsilon: self.norm_eps,
        }
    }

    /// A direction of A alone, beside one that has everything.
    fn rate(&self, at: &Scope) -> Direction {
        let (d_inner, d_state) = (self.d_inner(), self.d_state);
        Direction {
            a_log: at.param("a_log", [d_inner, d_state], Rule::LogStates),
            a_off: match self.ssm.a {
                StateMatrix::Diagonal => None,
                StateMatrix::Full => {
                    Some(at.param("a_off", [d_inner, d_state, d_state], Rule::Constant(0.0)))
                }
            },
            d: None,
            conv1d: None,
            x_proj: None,
            dt_proj: None,
        }
    }

    fn direction(&self, at: &Scope, dt_bias: Rule) -> Direction {
        let (d_inner, d_state, dt_rank) = (self.d_inner(), self.d_state, self.dt_rank());
        let (conv1d, taps) = (at.child("conv1d"), Rule::fan_in(self.d_conv));
        let (x_proj, dt_proj) = (Rule::fan_in(d_inner), Rule::fan_in(dt_rank));
        let x_columns = dt_rank + 2 * d_state;
        Direction {
            d: Some(at.param("d", [d_inner], Rule::Constant(1.0))),
            conv1d: Some(CausalConv1d {
                weight: conv1d.param("weight", [d_inner, 1, self.d_conv], taps),
                bias: conv1d.param("bias", [d_inner], taps),
            }),
            x_proj: Some(at.child("x_proj").linear([d_inner, x_columns], x_proj, None)),
            dt_proj: Some(at.child("dt_proj").linear([dt_rank, d_inner], dt_proj, Some(dt_bias))),
            ..self.rate(at)
        }
    }
}

/// How a parameter starts.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The same everywhere.
    Constant(f32),
    /// Uniform in ±`bound`.
    Uniform { bound: f64 },
    /// Normal around 0, redrawn outside ±`cut`.
    Normal { std: f64, cut: f64 },
    /// ln 1, ln 2, … along the last dimension.
    LogStates,
    /// The bias whose softplus is log-uniform in [`DELTA`].
    InverseSoftplus,
}

impl Rule {
    /// Of class token, positions and head.
    const SMALL_NORMAL: Self = Self::Normal { std: 0.02, cut: 2.0 };

    /// PyTorch's default for a layer whose outputs see `inputs` numbers each.
    fn fan_in(inputs: usize) -> Self {
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

/// A place in the model: where parameters get their names, and from them their values.
struct Scope<'a> {
    device: &'a Device,
    seed: u64,
    path: String,
}

impl Scope<'_> {
    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    fn child(&self, name: &str) -> Self {
        Self { device: self.device, seed: self.seed, path: self.join(name) }
    }

    fn param<const D: usize>(&self, name: &str, shape: [usize; D], rule: Rule) -> Param<Tensor<D>> {
        let mut rng = keyed(b"vim-model: inits", self.seed, key_of(&self.join(name)));
        let size: usize = shape.iter().product();
        let values: Vec<f32> =
            (0..size).map(|index| rule.value(index, shape[D - 1], &mut rng)).collect();
        Param::<Tensor<D>>::from_data(TensorData::new(values, shape), self.device)
    }

    fn linear(&self, shape: [usize; 2], weight: Rule, bias: Option<Rule>) -> Linear {
        Linear {
            weight: self.param("weight", shape, weight),
            bias: bias.map(|rule| self.param("bias", [shape[1]], rule)),
        }
    }
}
