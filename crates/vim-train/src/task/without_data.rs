//! Tasks without data, for commands that time or count: a given number of classes, random images.

use std::sync::Arc;

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_comm::Comm;
use vim_dense::detection::mask_target::InstanceMask;
use vim_dense::detection::{Detector, Truths};
use vim_dense::{Segmenter, predicted};
use vim_kernels::{Graph, KernelError};
use vim_model::{Cost, ImageSize, ModelError, Vim};

use super::Objective;
use super::classification::{Classifier, Labelled, Targets};
use super::detection::{ObjectDetector, Scenes};
use super::segmentation::{Mapped, PixelClassifier};
use crate::config::Config;
use crate::error::Error;

/// An objective that needs no data to compute a step.
pub trait WithoutData: Objective + Sized {
    /// The objective of `config` for `classes` classes.
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error>;

    /// Parameters and operations of the model of `config`, with its heads.
    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError>;

    /// A batch of `count` random images of the model's size, with every class in turn.
    fn random(&self, count: usize, device: &Device) -> Self::Inputs;

    /// What takes `images` by `pass` to what an evaluation reads; an error if the task has no such
    /// pass.
    fn forward<'a>(
        config: &Config,
        model: &'a Self::Model,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error>;
}

/// A forward pass; the sum of its results needs all of them.
pub type Forward<'a> = Box<dyn Fn() -> Result<Tensor<1>, Error> + 'a>;

/// How images pass through a model in evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// As they are.
    Whole,
    /// Likewise, by launches that were recorded once.
    Recorded,
    /// By windows of the model's size.
    Windows,
}

impl Pass {
    /// The error of a task that has no such pass.
    fn refused(self) -> Error {
        let (flag, task) = match self {
            Self::Whole | Self::Recorded => {
                ("--graph: a forward pass is recorded", "classification")
            }
            Self::Windows => ("--mode slide: windows slide over the pictures", "segmentation"),
        };
        Error::failed(format!("{flag} of task = \"{task}\" alone"))
    }
}

// TASK SEAM
/// `$body` with the objective of the task `$kind` as the type `$objective`.
macro_rules! with_objective {
    ($kind:expr, $objective:ident => $body:expr) => {
        match $kind {
            $crate::config::TaskKind::Classification => {
                type $objective = $crate::task::classification::Classifier;
                $body
            }
            $crate::config::TaskKind::Segmentation => {
                type $objective = $crate::task::segmentation::PixelClassifier;
                $body
            }
            $crate::config::TaskKind::Detection => {
                type $objective = $crate::task::detection::ObjectDetector;
                $body
            }
        }
    };
}
pub(crate) use with_objective;

impl WithoutData for Classifier {
    fn without_data(config: &Config, classes: usize, _comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, config.model.with_classes(classes)?)?)
    }

    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
        config.model.with_classes(classes)?.cost()
    }

    fn random(&self, count: usize, device: &Device) -> Labelled {
        let model = self.model();
        let labels = labels(count, model.num_classes, device);
        Labelled {
            images: images(count, model.image_size, device),
            targets: Targets::new(labels, None),
        }
    }

    /// Images to logits.
    fn forward<'a>(
        _config: &Config,
        model: &'a Vim,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error> {
        let sum = |logits: Tensor<2>| logits.abs().sum();
        match pass {
            Pass::Whole => Ok(Box::new(move || Ok(sum(model.forward(images.clone())?)))),
            Pass::Recorded => {
                let graph = record(model, &images)?;
                Ok(Box::new(move || Ok(sum(graph.replay(images.clone())?))))
            }
            Pass::Windows => Err(pass.refused()),
        }
    }
}

/// Batches of which a graph's logits are compared with those of the launches.
const REPLAYS: u64 = 3;

/// The forward pass of images like `images`, recorded; its logits have the bits of those launched.
fn record<'a>(
    model: &'a Vim,
    images: &Tensor<4>,
) -> Result<Graph<impl Fn(Tensor<4>) -> Result<Tensor<2>, KernelError> + use<'a>, 4, 2>, Error> {
    let graph = Graph::capture(images.clone(), |images| model.forward(images))?;
    for seed in 0..REPLAYS {
        images.device().seed(seed);
        let images = images.random_like(Distribution::Normal(0.0, 1.0));
        let launched = model.forward(images.clone())?;
        check_bits(launched, graph.replay(images)?)?;
    }
    Ok(graph)
}

/// Checks that logits replayed have the bits of those launched.
fn check_bits(launched: Tensor<2>, replayed: Tensor<2>) -> Result<(), Error> {
    let bits = |logits: Tensor<2>| -> Vec<u32> {
        logits.into_data().iter::<f32>().map(f32::to_bits).collect()
    };
    let (launched, replayed) = (bits(launched), bits(replayed));
    let differ = launched.iter().zip(&replayed).filter(|(a, b)| a != b).count();
    if launched.len() == replayed.len() && differ == 0 {
        return Ok(());
    }
    let count = launched.len();
    Err(Error::failed(format!("{differ} of {count} logits of the graph are not those launched")))
}

impl WithoutData for PixelClassifier {
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, classes, comm)?)
    }

    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
        config.segmenter().cost(&config.model, classes)
    }

    fn random(&self, count: usize, device: &Device) -> Mapped {
        let size = self.image_size();
        let labels = labels(count * size.height * size.width, self.num_classes(), device);
        let labels = labels.reshape([count, size.height, size.width]);
        Mapped { images: images(count, size, device), labels }
    }

    /// Images, or pictures by windows, to the class of each of their pixels.
    fn forward<'a>(
        config: &Config,
        model: &'a Segmenter,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error> {
        let ImageSize { height, width } = config.model.image_size;
        let stride = match pass {
            Pass::Whole => None,
            Pass::Windows => Some(config.pairs().stride([height, width])),
            Pass::Recorded => return Err(pass.refused()),
        };
        let [_, _, height, width] = images.dims();
        Ok(Box::new(move || {
            let logits = match stride {
                Some(stride) => model.slide(images.clone(), stride)?,
                None => model.forward(images.clone())?,
            };
            let seen = predicted(logits, [height, width])?;
            Ok(seen.labels.float().sum() + seen.probabilities.sum())
        }))
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
            images: images(count, size, device),
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

/// `[B, 3, H, W]` of normally distributed numbers.
pub fn images(count: usize, size: ImageSize, device: &Device) -> Tensor<4> {
    let shape = [count, 3, size.height, size.width];
    // Made as one row: CubeCL would pad the rows of pixels, which no batch of `train` has.
    let elements: usize = shape.iter().product();
    Tensor::<1>::random([elements], Distribution::Normal(0.0, 1.0), device).reshape(shape)
}

fn labels(count: usize, classes: usize, device: &Device) -> Tensor<1, Int> {
    let labels: Vec<i32> = (0..count).map(|i| (i % classes) as i32).collect();
    Tensor::from_data(TensorData::new(labels, [count]), device)
}

/// Parameters and operations of the model of `config`, with its heads.
///
/// # Errors
///
/// As [`vim_model::VimConfig::cost`].
pub fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError> {
    with_objective!(config.task, O => O::cost(config, classes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_compared_by_their_bits() {
        let row = |numbers: [f32; 2]| Tensor::<2>::from_data([numbers], &Device::flex());
        assert!(check_bits(row([0.0, f32::NAN]), row([0.0, f32::NAN])).is_ok());
        let error = check_bits(row([0.0, 1.0]), row([-0.0, 1.0])).expect_err("another sign");
        assert_eq!(error.to_string(), "1 of 2 logits of the graph are not those launched");
    }
}
