//! `[model]` and `[ssm]`: the description of a Vision Mamba, its named sizes, and derived sizes.

mod check;
mod count;
mod model;
mod preset;
mod ssm;
mod values;
mod variant;

pub use check::ModelError;
pub use model::VimConfig;
pub use preset::{Preset, REGISTERED, Registered};
pub use ssm::{DtBInit, GateGradient, SsmConfig, StateMatrix};
pub use values::{DtRank, ImageSize, LayerScale};
pub use variant::{Bimamba, ClassToken, NormKind, Pool, Rope};
