//! Detectors among weights.

use burn::tensor::Device;
use vim_dense::detection::{Detector, DetectorConfig};
use vim_model::{
    Assumption, Inferred, LastTap, LoadOptions, LoadReport, ModelError, Names, Rope,
    StateDictMismatch, VimConfig, infer_backbone,
};
use vim_torch::StateDict;

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::weights::heads::{Heads, Original, Probed};
use crate::weights::record::{METADATA_KEY, Recorded};
use crate::weights::source::WeightsSource;

/// What begins the backbone's names, and what is called so: the weight of what scores the anchors,
/// the bias of the first layer of a stage's features, and that of the last layer of the masks,
/// which not all have; in the original, and here.
const NAMES: [[&str; 4]; 2] = [
    [
        "backbone.net.",
        "proposal_generator.rpn_head.objectness_logits.weight",
        "roi_heads.box_head.0.fc1.bias",
        "roi_heads.mask_head.predictor.bias",
    ],
    ["backbone.", "rpn.objectness.weight", "box_heads.0.fc1.bias", "mask_head.predictor.bias"],
];

impl Heads for DetectorConfig {
    type Model = Detector;

    const WHAT: &'static str = "detector";
    // The bias of a stage's scores, of which one is the background's; here, and in the original.
    const CLASSES: &'static [(&'static str, usize)] =
        &[("box_heads.0.cls_score.bias", 1), ("roi_heads.box_predictor.0.cls_score.bias", 1)];
    const TASK: TaskKind = TaskKind::Detection;

    fn of_config(config: &Config) -> Option<Self> {
        config.heads().1
    }

    fn of_record(recorded: &Recorded) -> Option<Self> {
        recorded.detection.clone()
    }

    /// Anchors, limits and thresholds are the default ones; rotary positions turn both tokens and
    /// stream, as they do in the original's detectors.
    fn of_shapes(state: &StateDict) -> Result<(Self, Inferred), String> {
        let shape = |name: &str| state.array(name).map(|array| &array.shape[..]);
        let found = NAMES.iter().find_map(|[prefix, anchors, features, masks]| {
            match (shape(anchors)?, shape(features)?) {
                (&[_, channels, 1, 1], &[box_features]) => {
                    Some((*prefix, channels, box_features, shape(masks).is_some()))
                }
                _ => None,
            }
        });
        let Some((prefix, channels, box_features, masks)) = found else {
            return Err(
                "is a detector, and its heads have other shapes than a detector's".to_owned()
            );
        };
        let mut backbone = infer_backbone(state, prefix, Rope::Both)
            .map_err(|error| format!("is a detector, and its backbone is none: it {error}"))?;
        // Files under the original's names have the last norm only where something depends on it.
        let is_normed = prefix == NAMES[0][0] && shape(&format!("{prefix}norm_f.weight")).is_some();
        let last = if is_normed { LastTap::AddNorm } else { LastTap::Add };
        let heads = Self { last, masks, channels, box_features, ..Self::default() };
        let anchor_size = Assumption::new("detection.anchor_size", heads.anchor_size);
        backbone.assumed.extend([anchor_size, Assumption::new("detection.last", last)]);
        Ok((heads, backbone))
    }

    fn record(&self, backbone: &VimConfig) -> Recorded {
        Recorded { detection: Some(self.clone()), ..Recorded::of(backbone) }
    }

    fn build(
        &self,
        backbone: &VimConfig,
        classes: usize,
        device: &Device,
    ) -> Result<Detector, ModelError> {
        self.init(backbone, classes, device, 0)
    }

    fn load(
        model: Detector,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Detector, LoadReport), Box<StateDictMismatch>> {
        model.load(state, options)
    }

    fn load_backbone(
        model: Detector,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Detector, LoadReport), Box<StateDictMismatch>> {
        model.load_backbone(state, options)
    }

    /// As detectron2 saves it.
    fn original(
        model: &Detector,
        source: &WeightsSource,
        record: &Recorded,
    ) -> Result<Original, Error> {
        let no_counterpart = |path| source.no_counterpart(path);
        let arrays = model.state(Names::Pytorch).map_err(no_counterpart)?;
        let arrays = arrays.with_metadata(METADATA_KEY, record.to_toml());
        let archive = arrays.to_pytorch().map_err(|error| Error::internal(error.to_string()))?;
        let parameters = model.num_parameters();
        Ok(Original { arrays, parameters, archive, entry: "model" })
    }

    fn graph(_: &Detector, source: &WeightsSource, _: &vim_onnx::Options) -> Result<Probed, Error> {
        Err(source.unrecognised(
            "is a detector, and detection has no graph of ONNX (a cascade of proposals of a varying \
             number): export it as .pth for detectron2"
                .to_owned(),
        ))
    }
}
