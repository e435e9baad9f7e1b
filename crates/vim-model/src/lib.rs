//! Vision Mamba as Burn modules.
//!
//! The model is the original's `bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2`: patches,
//! a class token in their middle, learned positions, blocks of one bidirectional mixer each, a final
//! norm, and a linear head on the class token. Start reading at [`Vim`].
//!
//! Letters: `B` batch, `L` tokens, `M` `d_model`, `D` `d_inner`, `N` `d_state`, `R` `dt_rank`, `W` taps
//! of the convolution, `P` patch side, `K` classes, `H W` pixels. Everything is channels-last and f32.

mod block;
mod config;
mod direction;
mod drop_path;
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
mod state;
mod vim;

pub use block::Block;
pub use config::{DtBInit, ModelConfig, ModelError, Preset, SsmConfig, StateMatrix, VimConfig};
pub use direction::{CausalConv1d, Direction};
pub use import::{ImportError, import_pytorch, pytorch_key};
pub use infer::{InferError, Inferred, infer};
pub use misfit::{Misfit, Misshapen};
pub use mixer::Mixer;
pub use norm::RmsNorm;
pub use parameters::{ParameterInfo, decays, layer_of};
pub use patch_embed::{PatchEmbed, PatchProjection};
pub use pos_embed::Resize;
pub use state::{LoadReport, Names, Tolerance};
pub use vim::Vim;
