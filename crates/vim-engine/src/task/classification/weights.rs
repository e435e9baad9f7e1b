//! Classifiers among weights.

use burn::tensor::Device;
use vim_model::{
    InferError, Inferred, LoadOptions, LoadReport, ModelError, NamedArrays, Names,
    StateDictMismatch, Vim, VimConfig, infer,
};
use vim_onnx::probe;
use vim_torch::StateDict;

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::task::batches::sides;
use crate::weights::heads::{Heads, Original, PATCHES, Probed, in_the_way};
use crate::weights::record::{METADATA_KEY, Recorded};
use crate::weights::source::WeightsSource;

/// The linear layer on a classifier's backbone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearHead;

impl Heads for LinearHead {
    type Model = Vim;

    const WHAT: &'static str = "classifier";
    const CLASSES: &'static [(&'static str, usize)] = &[("head.bias", 0)];
    const TASK: TaskKind = TaskKind::Classification;

    /// Any: of a configuration of another task the backbone alone counts.
    fn of_config(_: &Config) -> Option<Self> {
        Some(Self)
    }

    fn of_record(_: &Recorded) -> Option<Self> {
        Some(Self)
    }

    fn of_shapes(state: &StateDict) -> Result<(Self, Inferred), String> {
        let inferred = infer(state).map_err(|error| {
            let is_hidden = matches!(&error, InferError::Missing(name) if name == PATCHES);
            let why = if is_hidden { in_the_way(state, PATCHES) } else { None };
            why.unwrap_or_else(|| error.to_string())
        })?;
        Ok((Self, inferred))
    }

    fn record(&self, backbone: &VimConfig) -> Recorded {
        Recorded::of(backbone)
    }

    fn build(
        &self,
        backbone: &VimConfig,
        classes: usize,
        device: &Device,
    ) -> Result<Vim, ModelError> {
        backbone.with_classes(classes)?.init(device, 0)
    }

    fn load(
        model: Vim,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Vim, LoadReport), Box<StateDictMismatch>> {
        model.load(state, options)
    }

    fn load_backbone(
        model: Vim,
        state: &StateDict,
        options: LoadOptions,
    ) -> Result<(Vim, LoadReport), Box<StateDictMismatch>> {
        model.load(state, options)
    }

    fn original(model: &Vim, source: &WeightsSource, record: &Recorded) -> Result<Original, Error> {
        let arrays = model.state(Names::Pytorch).map_err(|path| source.no_counterpart(path))?;
        let arrays = arrays.with_metadata(METADATA_KEY, record.to_toml());
        let archive = arrays.to_pytorch().map_err(|error| Error::internal(error.to_string()))?;
        let parameters = arrays.num_elements();
        Ok(Original { arrays, parameters, archive, entry: "model" })
    }

    fn graph(model: &Vim, _: &WeightsSource, options: &vim_onnx::Options) -> Result<Probed, Error> {
        let graph = vim_onnx::classifier(model.config(), &NamedArrays::of(model), options)?;
        let images = probe::images(sides(model.config().image_size), options, &Device::flex());
        Ok((graph, model.forward(images)?.into_data().iter().collect()))
    }
}
