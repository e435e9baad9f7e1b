//! From a batch of bytes to tensors: upload as u8, normalise on the device.

use burn::tensor::{Device, Int, Tensor, TensorData};
use vim_data::{Batch, Split, Statistics, Stored};
use vim_model::{ImageSize, VimConfig};

use crate::config::ConfigError;

/// `[B, 3, H, W]` normalised images and `[B]` labels.
///
/// # Source
///
/// `ToTensor` and `Normalize` of the original's pipeline, in their order: `(x/255 − mean)/std` in f32.
#[must_use]
pub fn to_tensors(batch: &Batch, by: Statistics, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let count = batch.labels.len();
    let pixels = TensorData::new(batch.images.clone(), [count, batch.height, batch.width, 3]);
    let images = Tensor::<4, Int>::from_data(pixels, device).float().permute([0, 3, 1, 2]);
    let channel = |values: [f32; 3]| Tensor::<1>::from_floats(values, device).reshape([1, 3, 1, 1]);
    let images = (images.div_scalar(255.0) - channel(by.mean)) / channel(by.std);
    let labels: Vec<i32> = batch.labels.iter().map(|&label| label as i32).collect();
    (images, Tensor::from_data(TensorData::new(labels, [count]), device))
}

/// The images must be what the model is made for. Those of files are made so.
///
/// # Errors
///
/// If they have one size, and it is not `model.image_size`.
pub fn check_image_size(model: &VimConfig, split: &Split) -> Result<(), ConfigError> {
    let Stored::Pixels { size: [height, width] } = split.stored() else { return Ok(()) };
    let size = ImageSize { height, width };
    if model.image_size == size {
        return Ok(());
    }
    let expected = format!("{size}, the size of the dataset's images");
    Err(ConfigError::range("model.image_size", model.image_size, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_first_and_are_normalised() {
        let batch = Batch {
            images: vec![0, 51, 255, 10, 20, 30],
            labels: vec![7],
            indices: vec![0],
            height: 1,
            width: 2,
        };
        let by = Statistics { mean: [0.5, 0.0, 0.25], std: [0.5, 2.0, 0.25] };
        let (images, labels) = to_tensors(&batch, by, &Device::flex());
        assert_eq!(images.dims(), [1, 3, 1, 2]);
        let got: Vec<f32> = images.into_data().iter().collect();
        let want = [-1.0, 10.0 / 127.5 - 1.0, 0.1, 20.0 / 510.0, 3.0, 30.0 / 63.75 - 1.0];
        for (got, want) in got.into_iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        assert_eq!(labels.into_scalar::<i32>(), 7);
    }
}
