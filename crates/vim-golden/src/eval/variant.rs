//! The JSON beside the reference arrays of a model: whose they are, and what describes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use vim_engine::Error;
use vim_engine::device::SelectedDevice;
use vim_engine::output::print;
use vim_kernels::Precision;

use super::{EvalGoldenArgs, bands, detection, judge, segmentation};

/// Compares every array with that of the model that the file at `path` describes: of a segmenter if
/// its settings name the blocks whose results it takes, else of a detector.
pub(super) fn run(
    args: &EvalGoldenArgs,
    path: &Path,
    chosen: &SelectedDevice,
) -> Result<(), Error> {
    let wrong = |what: String| Error::data(format!("variant {}: {what}", path.display()));
    let text = fs::read(path).map_err(Error::io("read", path))?;
    let about: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let is_segmenter = ["/variant/out_indices", "/variant/segmentation"]
        .into_iter()
        .any(|place| about.pointer(place).is_some());
    let about: Description =
        serde_json::from_value(about).map_err(|error| wrong(error.to_string()))?;
    let precision = args.dtype.unwrap_or_default();
    if is_segmenter {
        let comparisons = segmentation::compare(args, path, &about, &chosen.device)?;
        let judged = judge(args, &comparisons, &chosen.name);
        if !args.json {
            print(&bands::summary(&comparisons, bands::Kind::of))?;
        }
        return judged;
    }
    if precision == Precision::Tf32 {
        return Err(Error::failed("--dtype: a detector is compared in f32 or bf16"));
    }
    let comparisons = detection::compare(args, path, &about, &chosen.device)?;
    let judged = judge(args, &comparisons, &chosen.name);
    if precision != Precision::F32 && args.json {
        eprintln!("note: {}", detection::not_compared(precision));
    } else if precision != Precision::F32 {
        print(&detection::summary(&comparisons, precision))?;
    }
    judged
}

/// What describes the arrays. Beside it there may be what their maker noted.
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    /// The model's settings, and what `Beside` reads.
    pub(super) variant: Map<String, Value>,
    /// Parameters that the loss does not depend on.
    #[serde(default)]
    pub(super) without_gradient: Vec<String>,
    /// Of a segmenter: height and width that the sliding windows' logits are resized to.
    pub(super) slide_original_shape: Option<[usize; 2]>,
    /// Of a detector, each image and each instance its outlines.
    #[serde(default)]
    pub(super) polygons: Vec<Vec<Vec<Vec<f64>>>>,
    /// Of a detector, by name.
    #[serde(default)]
    pub(super) losses: BTreeMap<String, f64>,
    pub(super) loss: Option<f64>,
    /// Of a detector, the sizes that boxes and masks of each image end in.
    #[serde(default)]
    pub(super) r#final: Vec<Size>,
    pub(super) optimizer: Option<Optimizer>,
}

/// What the settings say beside the model's.
#[derive(Debug, Deserialize)]
pub(super) struct Beside {
    #[serde(alias = "num_classes")]
    pub(super) classes: usize,
    /// Of a segmenter.
    pub(super) slide: Option<Slide>,
    /// Of a detector, each image its height and width.
    #[serde(default)]
    pub(super) sizes: Vec<[usize; 2]>,
}

impl Description {
    pub(super) fn beside(&self) -> Result<Beside, String> {
        serde_json::from_value(Value::Object(self.variant.clone()))
            .map_err(|error| error.to_string())
    }
}

/// Windows that slide over an image of `h` by `w` pixels, each of the model's size.
#[derive(Debug, Deserialize)]
pub(super) struct Slide {
    pub(super) stride: usize,
    pub(super) crop: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Size {
    pub(super) height: usize,
    pub(super) width: usize,
}

/// A detector's optimizer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Optimizer {
    pub(super) base_lr: f64,
    pub(super) weight_decay: f64,
    /// Of a layer to the one above it.
    pub(super) lr_decay_rate: f64,
    /// Layers that the decay is told of, which are the model's.
    pub(super) num_layers: Option<usize>,
    /// Of each parameter its learning rate and its weight decay.
    pub(super) parameters: BTreeMap<String, [f64; 2]>,
}
