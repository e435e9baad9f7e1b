//! Segmenters among weights: which they are, and what they are of.

use burn::tensor::Device;
use vim_dense::{Segmenter, SegmenterConfig};
use vim_model::{LoadReport, ModelError, VimConfig};

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::source::{Origin, WeightsSource};

/// The bias of a segmenter's last layer, a number for each class; here and in the original.
pub(super) const DECODE_HEAD: &str = "decode_head.conv_seg.bias";

/// What a segmenter's weights are of.
#[derive(Clone, Debug)]
pub struct SegmenterModel {
    /// The heads.
    pub heads: SegmenterConfig,
    /// What they are on.
    pub backbone: VimConfig,
    /// Classes of the decode head.
    pub classes: usize,
    /// Who says so.
    pub origin: Origin,
}

impl SegmenterModel {
    /// A model with the weights of seed 0.
    pub fn init(&self, device: &Device) -> Result<Segmenter, ModelError> {
        self.heads.init(&self.backbone, self.classes, device, 0)
    }
}

impl WeightsSource {
    /// Whether these are a segmenter's, under this program's names or the original's.
    pub fn is_segmenter(&self) -> bool {
        self.arrays.state.array(DECODE_HEAD).is_some()
    }

    /// The segmenter `given`, else the recorded one. Shapes alone do not say which blocks the heads
    /// read, nor what of them.
    pub fn segmenter(&self, given: Option<&Config>) -> Result<SegmenterModel, Error> {
        let unrecognised = |why: &str| {
            let (checkpoint, why) = (self.name.clone(), why.to_owned());
            Error::from(WeightsError::Unrecognised { checkpoint, why })
        };
        let Some(classes) = self.num_classes() else {
            return Err(unrecognised("is no segmenter: it has no `decode_head.conv_seg`"));
        };
        let recorded = self.recorded.as_ref();
        let (heads, backbone, origin) = match (given, recorded) {
            (Some(given), _) if given.task == TaskKind::Segmentation => {
                (given.segmenter(), given.model.clone(), Origin::Given)
            }
            (Some(_), _) => {
                return Err(unrecognised(
                    "is a segmenter, and the configuration is of another task: give one with \
                     task = \"segmentation\"",
                ));
            }
            (None, Some(recorded)) if recorded.segmentation.is_some() => {
                let heads = recorded.segmentation.clone().unwrap_or_default();
                (heads, recorded.vim(), Origin::Recorded)
            }
            (None, _) => {
                return Err(unrecognised(
                    "is a segmenter, and its shapes do not say which blocks the heads read: give \
                     --config, as configs/vim_tiny_ade20k_60k.toml",
                ));
            }
        };
        Ok(SegmenterModel { heads, backbone, classes, origin })
    }

    /// `model` with these weights; [`WeightsError::Mismatch`] lists every difference.
    pub fn load_segmenter(&self, model: Segmenter) -> Result<(Segmenter, LoadReport), Error> {
        model.load(&self.arrays.state).map_err(|mismatch| {
            Error::from(WeightsError::Mismatch { checkpoint: self.name.clone(), mismatch })
        })
    }
}
