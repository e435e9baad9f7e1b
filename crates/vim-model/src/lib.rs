//! Vision Mamba as Burn modules.
//!
//! By default the model is the original's `bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2`: patches,
//! a class token in their middle, learned positions, blocks of one bidirectional mixer each, a final
//! norm, and a linear head on the class token. [`ModelConfig`] has the original's other variants. Start
//! reading at [`Vim`].
//!
//! Letters: `B` batch, `L` tokens, `M` `d_model`, `D` `d_inner`, `N` `d_state`, `R` `dt_rank`, `W` taps
//! of the convolution, `P` patch side, `K` classes, `H W` pixels. Everything is channels-last and f32.

mod block;
mod config;
mod cost;
mod direction;
mod drop_path;
mod dropout;
mod features;
mod import;
mod infer;
mod init;
mod misfit;
mod mixer;
mod norm;
mod parameters;
mod patch_embed;
mod pos_embed;
mod rng;
mod rope;
mod state;
mod tokens;
mod vim;

pub use block::Block;
pub use config::{
    Bimamba, ClassToken, DtBInit, DtRank, GateGradient, ImageSize, LayerScale, ModelConfig,
    ModelError, ModelName, NormKind, Pool, Preset, REGISTERED, Registered, Rope, SsmConfig,
    StateMatrix, VimConfig,
};
pub use cost::{ComponentCost, Cost};
pub use direction::{CausalConv1d, Direction};
pub use import::{ImportError, import_pytorch, pytorch_key};
pub use infer::{InferError, Inferred, infer};
pub use misfit::{Misfit, Misshapen};
pub use mixer::Mixer;
pub use norm::Norm;
pub use parameters::{DecayGroups, ParameterInfo, decays, layer_of};
pub use patch_embed::{PatchEmbed, PatchProjection};
pub use pos_embed::Resize;
pub use rope::RopeTable;
pub use state::{LoadReport, Names, Tolerance};
pub use vim::Vim;
