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
//! The crate has whatever its caller needs: [`burn`] itself, whose version is pinned, and of the
//! crates below it the [`Discretization`]s, listed by [`VariantArray`](trait@VariantArray) and read
//! by [`parse`](str::parse), and [`read_checkpoint`]. Weights with all that they were trained with,
//! down to the names of their classes, are `vim_engine::load`'s.
//!
//! ```
//! use vim_model::burn::tensor::Device;
//! use vim_model::{Discretization, Preset, VariantArray, VimConfig};
//!
//! let discretization: Discretization = "bilinear".parse()?;
//! assert_eq!(discretization, Discretization::Bilinear);
//! assert_eq!(Discretization::VARIANTS.len(), 10);
//! let config = VimConfig { discretization, ..VimConfig::preset(Preset::Tiny) };
//! let small = VimConfig { depth: 1, num_classes: 10, ..config };
//! assert_eq!(small.init(&Device::flex(), 0)?.config().discretization, Discretization::Bilinear);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Letters: `B` batch, `L` tokens, `M` `d_model`, `D` `d_inner`, `N` `d_state`, `R` `dt_rank`, `W`
//! taps of the convolution, `P` patch side, `K` classes, `H W` pixels. Everything is channels-last
//! and f32.

mod block;
mod config;
mod cost;
mod embed;
mod features;
mod init;
mod mixer;
mod parameters;
mod record;
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
pub use embed::{PatchEmbed, PatchEmbedConfig, PatchProjection};
pub use features::FeatureError;
pub use init::{Rule, Scope};
pub use mixer::{CausalConv1d, Direction, Mixer};
pub use parameters::{DecayGroups, ParameterInfo, decays, layer_of};
pub use record::{RecordedScan, Recorder, Recording};
pub use rng::{Draw, keyed, unit};
pub use rope::RopeTable;
pub use taps::{LastTap, Tapped, Taps};
pub use vim::Vim;
pub use weights::{
    Assumption, HeadRows, ImportError, InferError, Inferred, LoadOptions, LoadReport, NamedArrays,
    Names, Naming, PendingArrays, Resize, ShapeMismatch, StateDictMismatch, import_pytorch, infer,
    infer_backbone, load_module, load_named, pytorch_key,
};

// Whatever a caller of this crate names, so that it needs no other one.
pub use burn;
pub use strum::VariantArray;
pub use vim_kernels::{
    Discretization, KernelChoice, KernelError, Precision, Series, UnknownMethod,
};
pub use vim_torch::{
    Array, ArrayView, Checkpoint, Element, Format, Item, ReadError, Section, StateDict, WriteError,
    read_checkpoint,
};
