//! `[model]` and `[ssm]`: what a Vision Mamba is made of, its named sizes, and its derived sizes.

mod check;
mod count;
mod preset;
mod resolve;
mod section;
mod values;
mod variant;

pub use check::ModelError;
pub use preset::{ModelName, Preset, REGISTERED, Registered};
pub use resolve::VimConfig;
pub use section::{DtBInit, GateGradient, ModelConfig, SsmConfig, StateMatrix};
pub use values::{DtRank, ImageSize, LayerScale};
pub use variant::{Bimamba, ClassToken, NormKind, Pool, Rope};
