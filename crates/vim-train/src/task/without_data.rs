//! Tasks without data, for commands that time or count: a given number of classes, random images.

use std::sync::Arc;

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_comm::Comm;
use vim_dense::detection::Truths;
use vim_dense::detection::mask_target::InstanceMask;
use vim_model::{Cost, ImageSize, ModelError};

use super::Objective;
use super::classification::{Classifier, Labelled, Targets};
use super::detection::{ObjectDetector, Scenes};
use super::segmentation::{Mapped, PixelClassifier};
use crate::config::{Config, TaskKind};
use crate::error::Error;

/// An objective that needs no data to compute a step.
pub trait WithoutData: Objective + Sized {
    /// The objective of `config` for `classes` classes.
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error>;

    /// A batch of `count` random images of the model's size, with every class in turn.
    fn random(&self, count: usize, device: &Device) -> Self::Inputs;
}

impl WithoutData for Classifier {
    fn without_data(config: &Config, classes: usize, _comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, config.model.with_classes(classes)?)?)
    }

    fn random(&self, count: usize, device: &Device) -> Labelled {
        let model = self.model();
        let labels = labels(count, model.num_classes, device);
        Labelled {
            images: images(count, model.image_size, device),
            targets: Targets::new(labels, None),
        }
    }
}

impl WithoutData for PixelClassifier {
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, classes, comm)?)
    }

    fn random(&self, count: usize, device: &Device) -> Mapped {
        let size = self.image_size();
        let labels = labels(count * size.height * size.width, self.num_classes(), device);
        let labels = labels.reshape([count, size.height, size.width]);
        Mapped { images: images(count, size, device), labels }
    }
}

/// Objects of a random image along each side, as many in all as an image of COCO has.
const OBJECTS: usize = 3;

impl WithoutData for ObjectDetector {
    fn without_data(config: &Config, classes: usize, _comm: &Comm) -> Result<Self, Error> {
        Ok(Self::new(config, classes)?)
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
    match config.task {
        TaskKind::Classification => config.model.with_classes(classes)?.cost(),
        TaskKind::Segmentation => config.segmenter().cost(&config.model, classes),
        TaskKind::Detection => config.detector().cost(&config.model, classes),
    }
}
