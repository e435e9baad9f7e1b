//! The JSON beside the reference arrays of a model: whose they are, and the settings of a
//! segmentation model.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use vim_dense::SegmenterConfig;
use vim_kernels::Precision;
use vim_model::{ClassToken, LastTap, Rope, Tapped, VimConfig};

use super::{EvalGoldenArgs, bands, detection, judge, segmentation};
use crate::device::SelectedDevice;
use crate::error::Error;
use crate::output::print;

/// Compares every array with that of the model that the file at `path` describes: of a segmenter if
/// its settings name the blocks whose results it takes, else of a detector.
pub(super) fn run(
    args: &EvalGoldenArgs,
    path: &Path,
    chosen: &SelectedDevice,
) -> Result<(), Error> {
    let wrong =
        |error: serde_json::Error| Error::data(format!("variant {}: {error}", path.display()));
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let about: serde_json::Value = serde_json::from_slice(&text).map_err(wrong)?;
    if about.pointer("/variant/out_indices").is_none() {
        if args.dtype == Some(Precision::Tf32) {
            return Err(Error::failed("--dtype: a detector is compared in f32 or bf16"));
        }
        let about = serde_json::from_value(about).map_err(wrong)?;
        let comparisons = detection::compare(args, path, &about, &chosen.device)?;
        let judged = judge(args, &comparisons, &chosen.name);
        let precision = args.dtype.unwrap_or_default();
        if precision != Precision::F32 && args.json {
            eprintln!("note: {}", detection::not_compared(precision));
        } else if precision != Precision::F32 {
            print(&detection::summary(&comparisons, precision))?;
        }
        return judged;
    }
    let about = serde_json::from_value(about).map_err(wrong)?;
    let comparisons = segmentation::compare(args, path, &about, &chosen.device)?;
    let judged = judge(args, &comparisons, &chosen.name);
    if !args.json {
        print(&bands::summary(&comparisons, bands::Kind::of))?;
    }
    judged
}

/// What describes the arrays.
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    pub(super) variant: Variant,
    /// Parameters that the loss does not depend on.
    #[serde(default)]
    pub(super) without_gradient: Vec<String>,
    /// Height and width that the sliding windows' logits are resized to.
    pub(super) slide_original_shape: Option<[usize; 2]>,
}

/// The settings of the original.
#[derive(Debug, Deserialize)]
pub(super) struct Variant {
    pub(super) img: usize,
    patch: usize,
    d_state: usize,
    d_model: usize,
    depth: usize,
    out_indices: Vec<usize>,
    use_residual_as_feature: bool,
    last_layer_process: String,
    rope: bool,
    rope_residual: bool,
    channels: usize,
    aux_channels: usize,
    pub(super) classes: usize,
    pub(super) slide: Option<Slide>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Slide {
    pub(super) stride: usize,
}

impl Variant {
    /// The heads, and the backbone.
    pub(super) fn configs(&self) -> Result<(SegmenterConfig, VimConfig), String> {
        let last = match self.last_layer_process.as_str() {
            // It is for the residual stream.
            _ if !self.use_residual_as_feature => LastTap::None,
            "none" => LastTap::None,
            "add" => LastTap::Add,
            "add & norm" => LastTap::AddNorm,
            other => return Err(format!("last_layer_process is {other:?}")),
        };
        let rope = match (self.rope, self.rope_residual) {
            (false, _) => Rope::None,
            (true, false) => Rope::Hidden,
            (true, true) => Rope::Both,
        };
        let features = if self.use_residual_as_feature { Tapped::Residual } else { Tapped::Hidden };
        let heads = SegmenterConfig {
            out_indices: self.out_indices.clone(),
            features,
            last,
            channels: Some(self.channels),
            aux_channels: self.aux_channels,
            dropout: 0.0,
            ..SegmenterConfig::default()
        };
        let backbone = VimConfig {
            image_size: self.img.into(),
            patch_size: self.patch,
            depth: self.depth,
            d_model: self.d_model,
            d_state: self.d_state,
            // The original drops it.
            class_token: ClassToken::None,
            rope,
            drop_path: 0.0,
            ..VimConfig::default()
        };
        Ok((heads, backbone))
    }
}
