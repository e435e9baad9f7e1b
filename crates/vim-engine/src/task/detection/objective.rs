//! The detector and its losses.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use serde::Serialize;
use vim_comm::Comm;
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::{DetectionLosses, Detector, DetectorConfig, Truths, groups};
use vim_kernels::Recompute;
use vim_model::{Cost, DecayGroups, ImageSize, ModelError};

use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::task::init::{InitFor, init_weights};
use crate::task::without_data::{self, Forward, Pass, WithoutData};
use crate::task::{Draw, Held, InitWeights, Objective, Placement};

/// A detector and the sum of its losses: nine, or eight of boxes alone.
///
/// The losses of a micro-batch are divided by its own numbers of images, boxes and masks, as
/// detectron2 does it on one GPU; the loop averages micro-batches by their images, and shards.
#[derive(Debug)]
pub struct ObjectDetector {
    config: Config,
    detector: DetectorConfig,
    classes: usize,
}

/// Images on the device, and what is to be found in them on the host.
#[derive(Clone, Debug)]
pub struct Scenes {
    /// `[B, 3, H, W]`, normalized and padded.
    pub images: Tensor<4>,
    /// Height and width of each without what pads it.
    pub sizes: Arc<Vec<[usize; 2]>>,
    /// The objects of each.
    pub truths: Arc<Vec<Truths>>,
}

impl ObjectDetector {
    /// The objective of `config` for `classes` classes.
    pub fn new(config: &Config, classes: usize) -> Result<Self, ConfigError> {
        let detector = config.detector();
        detector.check(&config.model, classes)?;
        Ok(Self { config: config.clone(), detector, classes })
    }

    /// The size of the model's images.
    pub(crate) fn image_size(&self) -> ImageSize {
        self.config.model.image_size
    }

    /// Classes that are told apart.
    pub(crate) fn num_classes(&self) -> usize {
        self.classes
    }
}

/// How the optimizer treats the parameter at `path` of a detector on `depth` blocks.
///
/// # Source
///
/// `reference` decays what the original's `det/` decays, `intended` what its backbone's
/// classification means to.
fn placement(path: &str, rank: usize, depth: usize, groups: DecayGroups) -> Placement {
    let decays = match groups {
        DecayGroups::Reference => groups::decays(path),
        DecayGroups::Intended => vim_model::decays(path, rank, groups),
    };
    Placement { decays, layers_above: groups::layers_above(path, depth) }
}

impl Objective for ObjectDetector {
    type Model = Detector;
    type Inputs = Scenes;

    fn parts(&self) -> &'static [&'static str] {
        DetectionLosses::names(self.detector.masks)
    }

    fn init(&self, device: &Device) -> Result<Detector, Error> {
        let Config { model, run, train, .. } = &self.config;
        let seeded = self.detector.init(model, self.classes, device, run.seed)?;
        Ok(seeded.with_precision(train.precision)?.with_recompute(train.recompute.into()))
    }

    fn with_recompute(model: Detector, recompute: Recompute) -> Detector {
        model.with_recompute(recompute)
    }

    /// From a detector of the same shape, or the backbone alone from a classifier.
    fn load_init(
        &self,
        device: &Device,
        of: &InitFor,
    ) -> Result<Option<InitWeights<Detector>>, Error> {
        init_weights::<DetectorConfig>(self, &self.config, of, device)
    }

    fn placement(&self, path: &str, rank: usize) -> Placement {
        placement(path, rank, self.config.model.depth, self.config.optim.decay_groups)
    }

    fn held(&self) -> Result<Held<Scenes>, String> {
        Err("the host chooses among its proposals".into())
    }

    fn count(inputs: &Scenes) -> usize {
        inputs.sizes.len()
    }

    fn loss(
        &self,
        model: &Detector,
        inputs: Scenes,
        range: Range<usize>,
        draw: Draw,
    ) -> Result<Tensor<1>, Error> {
        let Scenes { images, sizes, truths } = inputs;
        let is_whole = range.len() == sizes.len();
        let images = if is_whole { images } else { images.narrow(0, range.start, range.len()) };
        let draw = vim_model::Draw { seed: draw.seed, first: draw.first + range.start };
        let feature = model.feature(images, Some(draw))?;
        let (sizes, truths) = (&sizes[range.clone()], &truths[range]);
        let losses = model.training_pass(&feature, sizes, truths, Some(draw))?.losses;
        let parts = losses.named().into_iter().map(|(_, part)| part.detach());
        Ok(Tensor::cat([losses.total()].into_iter().chain(parts).collect(), 0))
    }
}

/// Objects of a random image along each side, as many in all as an image of COCO has.
const OBJECTS: usize = 3;

impl WithoutData for ObjectDetector {
    fn without_data(config: &Config, classes: usize, _comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, classes)?)
    }

    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
        config.detector().cost(&config.model, classes)
    }

    /// With nine squares of three sizes in each image.
    fn random(&self, count: usize, device: &Device) -> Scenes {
        let size = self.image_size();
        let truths = Truths {
            boxes: squares(size),
            classes: (0..OBJECTS * OBJECTS).map(|at| at % self.num_classes()).collect(),
            masks: squares(size).into_iter().map(outline).collect(),
        };
        Scenes {
            images: without_data::images(count, size, device),
            sizes: Arc::new(vec![[size.height, size.width]; count]),
            truths: Arc::new(vec![truths; count]),
        }
    }

    /// Images to detections with masks, which the host chooses.
    fn forward<'a>(
        _config: &Config,
        model: &'a Detector,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error> {
        if pass != Pass::Whole {
            return Err(pass.refused());
        }
        let [count, _, height, width] = images.dims();
        let sizes = vec![[height, width]; count];
        Ok(Box::new(move || {
            let found = model.detect(images.clone(), &sizes)?;
            let scores: f32 = found.iter().flat_map(|found| &found.scores).sum();
            Ok(Tensor::full([1], scores, &images.device()))
        }))
    }
}

/// A square in the middle of each cell of a grid over the image; a half, a quarter and an eighth of
/// its cell's side in turn.
fn squares(size: ImageSize) -> Vec<[f32; 4]> {
    let cell = [size.width, size.height].map(|side| side as f32 / OBJECTS as f32);
    let square = |at: usize| {
        let half = cell[0].min(cell[1]) / [4.0, 8.0, 16.0][at % 3];
        let (x, y) = ((at % OBJECTS) as f32 + 0.5, (at / OBJECTS) as f32 + 0.5);
        let (x, y) = (x * cell[0], y * cell[1]);
        [x - half, y - half, x + half, y + half]
    };
    (0..OBJECTS * OBJECTS).map(square).collect()
}

/// The mask of all pixels of a box.
fn outline(edges: [f32; 4]) -> InstanceMask {
    let [left, top, right, bottom] = edges.map(f64::from);
    InstanceMask::Polygons(vec![vec![left, top, right, top, right, bottom, left, bottom]])
}

/// Objects of an image, the surest first.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct FoundObjects(Vec<FoundObject>);

/// An object, how sure it is, and where.
#[derive(Clone, Debug, Serialize)]
pub struct FoundObject {
    /// Number of its class.
    pub class: usize,
    /// Name of its class.
    pub name: String,
    /// 0 to 1.
    pub score: f32,
    /// x, y, width and height in pixels.
    pub bbox: [f32; 4],
    /// Pixels that its mask covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area: Option<u64>,
}

impl From<Vec<FoundObject>> for FoundObjects {
    fn from(objects: Vec<FoundObject>) -> Self {
        Self(objects)
    }
}

impl FoundObject {
    /// An object with the edges `corners`.
    pub(crate) fn new(
        class: usize,
        names: &[String],
        score: f32,
        [left, top, right, bottom]: [f32; 4],
        area: Option<u64>,
    ) -> Self {
        let name = names.get(class).cloned().unwrap_or_else(|| format!("class {class}"));
        let bbox = [left, top, right - left, bottom - top];
        Self { class, name, score, bbox, area }
    }
}

impl fmt::Display for FoundObjects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("  nothing");
        }
        for (place, FoundObject { class, name, score, bbox: [x, y, width, height], .. }) in
            self.0.iter().enumerate()
        {
            let newline = if place == 0 { "" } else { "\n" };
            write!(
                formatter,
                "{newline}  {:6.2} %  {name} ({class})  {width:.0}×{height:.0} px at {x:.0}, {y:.0}",
                100.0 * score
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Vim-Ti: 24 blocks.
    #[test]
    fn the_original_decays_norms_and_intends_matrices_alone() {
        use DecayGroups::{Intended, Reference};
        for (path, rank, groups, decays, layers_above) in [
            ("backbone.pos_embed", 3, Reference, false, 25),
            ("backbone.layers.0.mixer.forward.a_log", 2, Reference, true, 24),
            ("backbone.layers.0.mixer.forward.a_log", 2, Intended, false, 24),
            ("backbone.layers.23.norm.weight", 1, Reference, true, 1),
            ("backbone.layers.23.norm.weight", 1, Intended, false, 1),
            ("box_heads.0.fc1.bias", 1, Reference, true, 0),
            ("box_heads.0.fc1.weight", 2, Intended, true, 0),
        ] {
            let expected = Placement { decays, layers_above };
            assert_eq!(placement(path, rank, 24, groups), expected, "{path} {groups:?}");
        }
    }

    #[test]
    fn the_surest_objects_are_shown() {
        let names = ["a".to_owned()];
        let object = |class, score, corners| FoundObject::new(class, &names, score, corners, None);
        let found =
            vec![object(1, 0.75, [1.0, 2.0, 11.0, 22.0]), object(0, 0.5, [0.0, 0.0, 4.0, 4.0])];
        assert_eq!(
            FoundObjects::from(found).to_string(),
            "   75.00 %  class 1 (1)  10×20 px at 1, 2\n   50.00 %  a (0)  4×4 px at 0, 0"
        );
        assert_eq!(FoundObjects::from(Vec::new()).to_string(), "  nothing");
    }
}
