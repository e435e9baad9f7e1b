//! Tasks without data, for commands that time or count: a given number of classes, random images.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_comm::Comm;
use vim_model::{Cost, ImageSize, ModelError};

use super::Objective;
use super::classification::{Classifier, Labelled, Targets};
use super::segmentation::{Mapped, PixelClassifier};
use crate::config::{Config, TaskKind};
use crate::error::Error;

/// An objective that needs no data to compute a step.
pub trait WithoutData: Objective + Sized {
    /// The objective of `config` for `classes` classes.
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error>;

    /// A batch of `count` random images of the model's size, labelled with every class in turn.
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

/// `[B, 3, H, W]` of normally distributed numbers.
pub fn images(count: usize, size: ImageSize, device: &Device) -> Tensor<4> {
    let shape = [count, 3, size.height, size.width];
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
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
    }
}
