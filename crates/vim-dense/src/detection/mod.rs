//! Detection: Cascade Mask R-CNN.
//!
//! A [`Detector`] is a backbone ([`vim_model::Vim`] without a head), a pyramid that makes maps of
//! five strides of its last feature, a network that proposes boxes, a cascade of three heads that
//! classify and refine them, and a head for their masks. A [`DetectorConfig`] describes it beside
//! the backbone's [`vim_model::VimConfig`].
//!
//! Features of boxes are read on the device. What is matched, drawn and suppressed is chosen on the
//! host, from numbers that are read back: once for the proposals, and once for each stage of the
//! cascade but the last.

pub mod anchors;
pub mod box_head;
pub mod boxes;
pub mod coder;
mod config;
mod cost;
mod detector;
pub mod groups;
mod inference;
mod layers;
pub mod mask_head;
pub mod mask_target;
pub mod matcher;
pub mod nms;
pub mod paste;
pub mod pooler;
mod pyramid;
pub mod rpn;
pub mod sampler;
mod targets;
mod training;
mod truths;
mod weights;

pub use config::DetectorConfig;
pub use detector::Detector;
pub use inference::{Detections, EvaluationPass, Found};
pub use layers::{BiasedConv, ChannelNorm, NormedConv};
pub use pyramid::{HEAD_STRIDES, Level, STRIDES, SimplePyramid};
pub use training::{DetectionLosses, MaskPass, StagePass, TrainingPass};
pub use truths::Truths;
pub use weights::detectron_key;
