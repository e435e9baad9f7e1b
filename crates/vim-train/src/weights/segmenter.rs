//! Segmenters among weights.

use burn::tensor::Device;
use vim_dense::{Segmenter, SegmenterConfig};
use vim_model::{
    Inferred, LoadOptions, LoadReport, ModelError, Names, StateDictMismatch, VimConfig,
};
use vim_torch::StateDict;

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::weights::dense::{Described, Heads, Original};
use crate::weights::source::{Recorded, WeightsSource};

/// What a segmenter's weights are of.
pub type SegmenterModel = Described<SegmenterConfig>;

impl Heads for SegmenterConfig {
    type Model = Segmenter;

    const WHAT: &'static str = "segmenter";
    // The bias of its last layer; here and in the original.
    const CLASSES: &'static [&'static str] = &["decode_head.conv_seg.bias"];
    const TASK: &'static str = "segmentation";

    fn of_config(config: &Config) -> Option<Self> {
        (config.task == TaskKind::Segmentation).then(|| config.segmenter())
    }

    fn of_record(recorded: &Recorded) -> Option<Self> {
        recorded.segmentation.clone()
    }

    fn of_shapes(_: &StateDict) -> Result<(Self, Inferred), String> {
        Err("its shapes do not say which blocks the heads read: give --config, as \
             configs/vim_tiny_ade20k_60k.toml"
            .to_owned())
    }

    fn record(&self, backbone: &VimConfig) -> Recorded {
        let segmentation = Some(self.effective(&backbone.effective()));
        Recorded { segmentation, ..Recorded::of(backbone) }
    }

    fn build(
        &self,
        backbone: &VimConfig,
        classes: usize,
        device: &Device,
    ) -> Result<Segmenter, ModelError> {
        self.init(backbone, classes, device, 0)
    }

    fn load(
        model: Segmenter,
        state: &StateDict,
    ) -> Result<(Segmenter, LoadReport), Box<StateDictMismatch>> {
        model.load(state)
    }

    fn load_backbone(
        model: Segmenter,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Segmenter, LoadReport), Box<StateDictMismatch>> {
        model.load_backbone(state, options)
    }

    /// As mmcv saves it.
    fn original(model: &Segmenter, source: &WeightsSource) -> Result<Original, Error> {
        let no_counterpart = |path| source.no_counterpart(path);
        let arrays = model.state(Names::Pytorch).map_err(no_counterpart)?;
        // Running statistics move with every micro-batch.
        let per_step = source.run.as_ref().map_or(1, |run| run.train.accumulate as u64);
        let batches = source.step.unwrap_or_default() * per_step;
        let version = concat!("vim-train ", env!("CARGO_PKG_VERSION"));
        let archive = model.to_mmcv(&[("made_by", version)], batches).map_err(Error::internal)?;
        let parameters = model.num_parameters();
        Ok(Original { arrays, parameters, archive, entry: "state_dict" })
    }
}

impl WeightsSource {
    /// Whether these are a segmenter's, under this program's names or the original's.
    pub fn is_segmenter(&self) -> bool {
        self.has::<SegmenterConfig>()
    }

    /// The segmenter `given`, else the recorded one.
    pub fn segmenter(&self, given: Option<&Config>) -> Result<SegmenterModel, Error> {
        self.described(given)
    }

    /// `model` with these weights; every difference is an error.
    pub fn load_segmenter(&self, model: Segmenter) -> Result<(Segmenter, LoadReport), Error> {
        self.load_all::<SegmenterConfig>(model)
    }
}
