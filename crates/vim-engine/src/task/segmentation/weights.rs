//! Segmenters among weights.

use burn::tensor::Device;
use vim_dense::{Segmenter, SegmenterConfig};
use vim_model::{
    Inferred, LoadOptions, LoadReport, ModelError, NamedArrays, Names, StateDictMismatch, VimConfig,
};
use vim_onnx::probe;
use vim_torch::StateDict;

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::task::batches::sides;
use crate::weights::heads::{Heads, Original, Probed};
use crate::weights::record::{METADATA_KEY, Recorded};
use crate::weights::source::WeightsSource;

impl Heads for SegmenterConfig {
    type Model = Segmenter;

    const WHAT: &'static str = "segmenter";
    // The bias of its last layer; here and in the original.
    const CLASSES: &'static [(&'static str, usize)] = &[("decode_head.conv_seg.bias", 0)];
    const TASK: TaskKind = TaskKind::Segmentation;

    fn of_config(config: &Config) -> Option<Self> {
        config.heads().0
    }

    fn of_record(recorded: &Recorded) -> Option<Self> {
        recorded.segmentation.clone()
    }

    fn of_shapes(_: &StateDict) -> Result<(Self, Inferred), String> {
        Err("is a segmenter, and its shapes do not say which blocks the heads read: give --config, as \
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
        options: LoadOptions,
    ) -> Result<(Segmenter, LoadReport), Box<StateDictMismatch>> {
        model.load(state, options)
    }

    fn load_backbone(
        model: Segmenter,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Segmenter, LoadReport), Box<StateDictMismatch>> {
        model.load_backbone(state, options)
    }

    /// As mmcv saves it.
    fn original(
        model: &Segmenter,
        source: &WeightsSource,
        record: &Recorded,
    ) -> Result<Original, Error> {
        let no_counterpart = |path| source.no_counterpart(path);
        let record = record.to_toml();
        let arrays = model.state(Names::Pytorch).map_err(no_counterpart)?;
        // Running statistics move with every micro-batch.
        let per_step = source.run.as_ref().map_or(1, |run| run.train.accumulate as u64);
        let batches = source.step.unwrap_or_default() * per_step;
        let version = concat!("vim-train ", env!("CARGO_PKG_VERSION"));
        let (meta, texts) = ([("made_by", version)], [(METADATA_KEY, &*record)]);
        let archive = model.to_mmcv(&meta, &texts, batches).map_err(Error::internal)?;
        let arrays = arrays.with_metadata(METADATA_KEY, record);
        let parameters = model.num_parameters();
        Ok(Original { arrays, parameters, archive, entry: "state_dict" })
    }

    fn graph(
        model: &Segmenter,
        _: &WeightsSource,
        options: &vim_onnx::Options,
    ) -> Result<Probed, Error> {
        let (backbone, classes) = (model.backbone_config(), model.num_classes());
        let arrays = NamedArrays::of(model);
        let graph = vim_onnx::segmenter(model.config(), backbone, classes, &arrays, options)?;
        let images = probe::images(sides(backbone.image_size), options, &Device::flex());
        // Channels first.
        let logits = model.forward(images)?.permute([0, 3, 1, 2]);
        Ok((graph, logits.into_data().iter().collect()))
    }
}
