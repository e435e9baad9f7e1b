//! Detectors among weights: which they are, and what they are of.

use burn::tensor::Device;
use vim_dense::detection::{Detector, DetectorConfig};
use vim_model::{LoadReport, ModelError, VimConfig};

use crate::config::{Config, TaskKind};
use crate::error::Error;
use crate::weights::WeightsError;
use crate::weights::source::{Origin, WeightsSource};

/// The bias of the masks' last layer, a number for each class: here and in the original.
pub(super) const MASK_HEADS: [&str; 2] =
    ["mask_head.predictor.bias", "roi_heads.mask_head.predictor.bias"];

/// What a detector's weights are of.
#[derive(Clone, Debug)]
pub struct DetectorModel {
    /// What is on the backbone.
    pub config: DetectorConfig,
    /// The backbone.
    pub backbone: VimConfig,
    /// Classes, without the background.
    pub classes: usize,
    /// Who says so.
    pub origin: Origin,
}

impl DetectorModel {
    /// A model with the weights of seed 0.
    pub fn init(&self, device: &Device) -> Result<Detector, ModelError> {
        self.config.init(&self.backbone, self.classes, device, 0)
    }
}

impl WeightsSource {
    /// Whether these are a detector's, under this program's names or the original's.
    pub fn is_detector(&self) -> bool {
        MASK_HEADS.iter().any(|head| self.arrays.state.array(head).is_some())
    }

    /// The detector `given`, else the recorded one. Shapes alone do not say what its anchors are.
    pub fn detector(&self, given: Option<&Config>) -> Result<DetectorModel, Error> {
        let unrecognised = |why: &str| {
            let (checkpoint, why) = (self.name.clone(), why.to_owned());
            Error::from(WeightsError::Unrecognised { checkpoint, why })
        };
        let Some(classes) = self.num_classes().filter(|_| self.is_detector()) else {
            return Err(unrecognised("is no detector: it has no `mask_head.predictor`"));
        };
        let recorded = self.recorded.as_ref();
        let (config, backbone, origin) = match (given, recorded) {
            (Some(given), _) if given.task == TaskKind::Detection => {
                (given.detector(), given.model.clone(), Origin::Given)
            }
            (Some(_), _) => {
                return Err(unrecognised(
                    "is a detector, and the configuration is of another task: give one with task = \
                     \"detection\"",
                ));
            }
            (None, Some(recorded)) if recorded.detection.is_some() => {
                let config = recorded.detection.clone().unwrap_or_default();
                (config, recorded.vim(), Origin::Recorded)
            }
            (None, _) => {
                return Err(unrecognised(
                    "is a detector, and its shapes do not say what its anchors are: give --config, \
                     as configs/vim_tiny_coco_100ep.toml",
                ));
            }
        };
        Ok(DetectorModel { config, backbone, classes, origin })
    }

    /// `model` with these weights; [`WeightsError::Mismatch`] lists every difference.
    pub fn load_detector(&self, model: Detector) -> Result<(Detector, LoadReport), Error> {
        model.load(&self.arrays.state).map_err(|mismatch| {
            Error::from(WeightsError::Mismatch { checkpoint: self.name.clone(), mismatch })
        })
    }
}
