//! A model as a graph of ONNX, with all that is known of it beside the graph.

use vim_data::covered;
pub use vim_onnx::ScanNode;
use vim_onnx::{Options, Pixels, probe, write};

use crate::config::Config;
use crate::error::Error;
use crate::program;
use crate::task::Model;
use crate::task::batches::sides;
use crate::task::classes::class_names;
use crate::task::named::NamedTask;
use crate::weights::heads::{Described, Heads};
use crate::weights::record::{METADATA_KEY, Recorded, RecordedData};
use crate::weights::source::{Origin, WeightsSource};

/// How a graph is to be written.
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions {
    /// What computes the recurrence.
    pub scan: ScanNode,
    /// The version of ONNX's operators; `None`: the least usual one that has the node.
    pub opset: Option<u32>,
    /// Whether weights are stored in f16.
    pub half: bool,
    /// Whether the batch is of any size.
    pub dynamic: bool,
    /// Whether the graph takes bytes and gives probabilities or labels.
    pub pixels: bool,
}

/// How images are shown to the model: means, standard deviations, and the crop of evaluation.
struct View {
    mean: [f64; 3],
    std: [f64; 3],
    crop: Option<f64>,
}

impl View {
    /// As recorded, else as `given`.
    fn of(record: &Recorded, given: Option<&Config>) -> Option<Self> {
        let of_given = || Recorded::of_run(given?, &[], RecordedData::default()).images;
        let images = record.images.or_else(of_given)?;
        Some(Self { mean: images.mean, std: images.std, crop: images.eval_crop_ratio })
    }
}

/// The bytes of a file with `model`, the one of `source` and `described`, as ONNX.
pub(super) fn graph<T: NamedTask>(
    (source, given): (&WeightsSource, Option<&Config>),
    asked: GraphOptions,
    described: &Described<T::Heads>,
    model: &Model<T>,
    record: &Recorded,
) -> Result<Vec<u8>, Error> {
    if described.origin == Origin::Inferred {
        return Err(source.unrecognised(
            "records no model, and its shapes do not tell the method, which a graph has in it: give \
             --config (import --config keeps it)"
                .to_owned(),
        ));
    }
    let view = View::of(record, given);
    let GraphOptions { scan, opset, half, dynamic, pixels } = asked;
    let pixels = match (&view, pixels) {
        (_, false) => None,
        (Some(View { mean, std, .. }), true) => {
            let [mean, std] = [mean, std].map(|of| of.map(|value| value as f32));
            Some(Pixels { mean, std })
        }
        (None, true) => {
            return Err(source.unrecognised(
                "records no normalization, which --pixels puts into the graph: give --config"
                    .to_owned(),
            ));
        }
    };
    let opset = opset.unwrap_or(match scan {
        ScanNode::Loop | ScanNode::Microsoft => vim_onnx::OPSET,
        ScanNode::Attention => vim_onnx::ATTENTION_OPSET,
    });
    let options = Options { scan, opset, half, dynamic, pixels };
    let (graph, logits) = T::Heads::graph(model, source, &options)?;
    let around = given.or(source.run.as_ref());
    let (names, assumed) = class_names::<T>(None, &source.classes, around, described.classes)?;
    if let Some(assumed) = assumed {
        eprintln!("note: assumed: {assumed}");
    }
    let size = sides(described.backbone.image_size);
    let as_json = |value: serde_json::Value| value.to_string();
    let mut texts = vec![
        ("task", T::Heads::TASK.to_string()),
        ("classes", as_json(names.into())),
        ("method", described.backbone.method_label()),
        ("size", as_json(size.to_vec().into())),
    ];
    if let Some(View { mean, std, crop }) = view {
        texts.push(("mean", as_json(mean.to_vec().into())));
        texts.push(("std", as_json(std.to_vec().into())));
        let cover = crop.map(|crop| as_json(covered(size, crop).to_vec().into()));
        texts.extend(cover.map(|cover| ("cover", cover)));
    }
    // Of a file the configuration is made from its record, and has no run's name.
    if let (Some(step), Some(run)) = (source.step, &source.run) {
        texts.extend([("run", run.run_name()?), ("step", step.to_string())]);
    }
    texts.push(("weights_blake3", source.blake3.clone()));
    texts.extend(program::commit().map(|commit| ("commit", commit.to_owned())));
    texts.extend([(METADATA_KEY, record.to_toml()), ("probe", probe::text(&logits))]);
    Ok(write(graph, &options, program::VERSION, &texts)?)
}
