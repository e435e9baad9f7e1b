//! `[model]` and `[ssm]`: the description of a Vision Mamba, its named sizes, and derived sizes.

mod check;
mod model;
mod values;
mod variant;

pub use check::ModelError;
pub(crate) use check::{MOST_CHANNELS, check_sizes, conflict, range};
pub use model::{MixerConfig, Preset, REGISTERED, Registered, SsmConfig, VimConfig};
pub use values::{DtRank, ImageSize, LayerScale};
pub use variant::{
    Bimamba, ClassToken, DtBInit, GateGradient, NormKind, PatchInit, Pool, Rope, StateMatrix,
};
