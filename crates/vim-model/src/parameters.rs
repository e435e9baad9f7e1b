//! The parameters by path, and which of them weight decay acts on.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vim::Vim;
use crate::weights::names::ModulePath;

/// One parameter of a model.
#[derive(Clone, Debug)]
pub struct ParameterInfo {
    /// Its path in the module, as a visitor sees it: `layers.0.mixer.forward.a_log`.
    pub path: String,
    /// The key of its gradient and optimizer state.
    pub id: ParamId,
    /// Its shape, with a [`Linear`](burn::nn::Linear) weight as `[inputs, outputs]`.
    pub shape: Vec<usize>,
}

impl ParameterInfo {
    /// Whether weight decay acts on it under `groups`.
    #[must_use]
    pub fn decays(&self, groups: DecayGroups) -> bool {
        decays(&self.path, self.shape.len(), groups)
    }
}

/// Which parameters weight decay acts on, of those that have more than one dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecayGroups {
    /// As the original's optimizer really does: all but positions and class tokens, so `a_log` too.
    #[default]
    Reference,
    /// As the original's comments intend, and as Mamba itself trains: not on `a_log` either.
    Intended,
}

/// Names that are exempt in any shape.
const EXEMPT: [&str; 6] =
    ["bias", "pos_embed", "cls_token", "cls_token_head", "cls_token_tail", "a_off"];

/// Whether weight decay acts on the parameter at `path`, a tensor with `rank` dimensions.
///
/// Exempt are biases, everything with one dimension (norms, `d`, `gamma`), positions, class tokens,
/// and `a_off`, which is a frequency and no gain; under [`DecayGroups::Intended`] `a_log` as well.
///
/// # Source
///
/// timm 0.4.12's `add_weight_decay` with the original's `no_weight_decay()`. The original also
/// marks `a_log` and `d` as exempt (`_no_weight_decay`), but nothing reads the mark: `d` is exempt
/// by its one dimension, `a_log` has two and decays.
#[must_use]
pub fn decays(path: &str, rank: usize, groups: DecayGroups) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    let marked = match groups {
        DecayGroups::Reference => false,
        DecayGroups::Intended => name == "a_log",
    };
    rank > 1 && !EXEMPT.contains(&name) && !marked
}

/// The layer of the parameter at `path` in a model of `depth` blocks: 0 for the parameters that
/// make the tokens, i + 1 for block i, and `depth + 1` for the last norm and the head.
///
/// # Source
///
/// The numbering of BEiT's layer-wise learning-rate decay (Bao et al. 2021), which the original's
/// detection code uses too.
#[must_use]
pub fn layer_of(path: &str, depth: usize) -> usize {
    let mut parts = path.split('.');
    match (parts.next(), parts.next().and_then(|number| number.parse::<usize>().ok())) {
        (Some("layers"), Some(number)) => (number + 1).min(depth),
        (Some("norm_f" | "head"), _) => depth + 1,
        _ => 0,
    }
}

impl Vim {
    /// Every parameter, in the order of the modules.
    #[must_use]
    pub fn parameters(&self) -> Vec<ParameterInfo> {
        let mut lister = Lister::default();
        self.visit(&mut lister);
        lister.parameters
    }
}

#[derive(Default)]
struct Lister {
    path: ModulePath,
    parameters: Vec<ParameterInfo>,
}

impl ModuleVisitor for Lister {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join();
        let shape = param.lazy_shape().to_vec();
        self.parameters.push(ParameterInfo { path, id: param.id, shape });
    }
}
