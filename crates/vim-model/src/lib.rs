//! Vision Mamba as Burn modules.
//!
//! By default the model is the original's
//! `bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2`: patches, a class token in their
//! middle, learned positions, blocks of one bidirectional mixer each, a final norm, and a linear
//! head on the class token. [`VimConfig`] has the original's other variants. Start reading at
//! [`Vim`].
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use vim_model::{Preset, VimConfig};
//!
//! let device = Device::flex();
//! let config = VimConfig {
//!     image_size: 32.into(),
//!     patch_size: 8,
//!     depth: 2,
//!     num_classes: 10,
//!     ..VimConfig::preset(Preset::Tiny)
//! };
//! let model = config.init(&device, 0)?;
//! let logits = model.forward(Tensor::zeros([1, 3, 32, 32], &device))?;
//! assert_eq!(logits.dims(), [1, 10]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Letters: `B` batch, `L` tokens, `M` `d_model`, `D` `d_inner`, `N` `d_state`, `R` `dt_rank`, `W`
//! taps of the convolution, `P` patch side, `K` classes, `H W` pixels. Everything is channels-last
//! and f32.

mod block;
mod config;
mod cost;
mod direction;
mod embed;
mod features;
mod init;
mod mixer;
mod parameters;
mod rng;
mod rope;
mod taps;
mod vim;
mod weights;

pub use block::{Block, BlockConfig, Norm, NormConfig};
pub use config::{
    Bimamba, ClassToken, DtBInit, DtRank, GateGradient, ImageSize, LayerScale, MixerConfig,
    ModelError, NormKind, PatchInit, Pool, Preset, REGISTERED, Registered, Rope, SsmConfig,
    StateMatrix, VimConfig,
};
pub use cost::{ComponentCost, Cost};
pub use direction::{CausalConv1d, Direction};
pub use embed::{PatchEmbed, PatchEmbedConfig, PatchProjection};
pub use features::FeatureError;
pub use init::{Rule, Scope};
pub use mixer::Mixer;
pub use parameters::{DecayGroups, ParameterInfo, decays, layer_of};
pub use rng::{Draw, keyed, unit};
pub use rope::RopeTable;
pub use taps::{LastTap, Tapped, Taps};
pub use vim::Vim;
pub use weights::{
    HeadRows, ImportError, InferError, Inferred, LoadOptions, LoadReport, NamedArrays, Names,
    Naming, PendingArrays, Resize, ShapeMismatch, StateDictMismatch, import_pytorch, infer,
    infer_backbone, load_module, load_named, pytorch_key,
};
