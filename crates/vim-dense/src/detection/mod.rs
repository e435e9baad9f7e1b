//! Detection: what Cascade Mask R-CNN is made of.
//!
//! Features of boxes are read on the device. What is matched, drawn and suppressed is chosen on the
//! host.

pub mod anchors;
pub mod boxes;
pub mod coder;
pub mod mask_target;
pub mod matcher;
pub mod nms;
pub mod paste;
pub mod pooler;
pub mod sampler;
