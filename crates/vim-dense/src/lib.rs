//! Dense prediction on Vision Mamba: semantic segmentation by UperNet, and [`detection`] by Cascade
//! Mask R-CNN.
//!
//! A [`Segmenter`] is a backbone ([`vim_model::Vim`] without a head), a [`Pyramid`] that makes maps
//! of four strides of its features, a decode head ([`UperHead`]) and an auxiliary one
//! ([`FcnHead`]). A [`SegmenterConfig`] describes it beside the backbone's
//! [`vim_model::VimConfig`].
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use vim_dense::SegmenterConfig;
//! use vim_model::{Preset, VimConfig};
//!
//! let device = Device::flex();
//! let backbone = VimConfig {
//!     image_size: 64.into(),
//!     depth: 4,
//!     d_model: 16,
//!     ..SegmenterConfig::backbone(Preset::Tiny)
//! };
//! let config = SegmenterConfig { out_indices: vec![0, 1, 2, 3], ..SegmenterConfig::default() };
//! let model = config.init(&backbone, 7, &device, 0)?;
//! let logits = model.forward(Tensor::zeros([1, 3, 64, 64], &device))?;
//! assert_eq!(logits.dims(), [1, 16, 16, 7]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Training goes over the shards of a micro-batch in lock-step ([`losses`]): their batch
//! normalizations share statistics, over all ranks too, and nothing else joins them.
//!
//! Letters: `B` batch, `H W` pixels, `h w` pixels of a map, `M` the backbone's `d_model`, `C` the
//! heads' channels, `K` classes. Maps are channels-last and f32.

mod batch_norm;
mod config;
mod conv;
mod cost;
pub mod detection;
mod error;
mod groups;
mod heads;
mod loss;
mod naming;
mod pyramid;
mod resize;
mod segmenter;
mod shards;
mod slide;
mod training;
mod weights;

pub use batch_norm::{BatchNorm, is_running_statistic};
pub use config::SegmenterConfig;
pub use conv::{Classify, Conv, ConvModule, Upsample};
pub use error::DenseError;
pub use groups::{decays, layers_above};
pub use heads::{FcnHead, SCALES, UperHead};
pub use loss::{PixelLoss, pixel_loss};
pub use pyramid::{Again, Pyramid, UpPath};
pub use resize::{pooling_means, resize};
pub use segmenter::{Features, Segmenter};
pub use shards::{ShardSum, replicas};
pub use slide::{Predicted, predicted};
pub use training::{HeadLogits, SegmentationLoss, Shard, losses, training_logits};
pub use weights::mmseg_key;

// The backbone's crate, which has Burn and the discretizations, so that a caller needs no other.
pub use vim_model;
pub use vim_model::burn;
