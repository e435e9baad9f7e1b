//! Forward and backward through a batch, whole or in parts.

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use vim_kernels::KernelError;
use vim_model::Vim;

use crate::train::batches::Targets;
use crate::train::loss::Loss;

/// The loss of a batch, `[1]` and not yet read from the device, and its gradient.
///
/// The batch goes through the model in `parts` parts, one after the other: what stays of a part is its gradient,
/// weighted by the images that it has, so the sum is that of the whole batch but for rounding. What is drawn for an image
/// depends on its place in the batch alone, and images are mixed before they come here.
///
/// # Shapes
///
/// - `images`: `[B, 3, H, W]`
///
/// # Errors
///
/// [`KernelError`] as [`Vim::forward_train`].
pub fn forward_backward(
    model: &Vim,
    images: Tensor<4>,
    targets: &Targets,
    loss: &Loss,
    seed: u64,
    parts: usize,
) -> Result<(Tensor<1>, GradientsParams), KernelError> {
    let [batch, ..] = images.dims();
    let largest = batch.div_ceil(parts);
    let mut sum: Option<Tensor<1>> = None;
    // The last part takes the images with it: a step then needs no room for them beside what it makes of them.
    let mut images = Some(images);
    let mut gradients = GradientsAccumulator::new();
    for first in (0..batch).step_by(largest) {
        let len = largest.min(batch - first);
        let all = if first + len == batch { images.take() } else { images.clone() };
        let all = all.expect("invariant: the last part alone takes them");
        let (images, targets) = if len == batch {
            (all, targets.clone())
        } else {
            (all.narrow(0, first, len), targets.part(first, len))
        };
        let logits = model.forward_train_part(images, seed, first)?;
        let mut part = loss.of(logits, targets);
        if len < batch {
            part = part * (len as f64 / batch as f64);
        }
        let value = part.clone().inner();
        sum = Some(match sum {
            Some(sum) => sum + value,
            None => value,
        });
        gradients.accumulate(model, GradientsParams::from_grads(part.backward(), model));
    }
    Ok((sum.expect("invariant: a batch has images"), gradients.grads()))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, TensorData};
    use vim_model::{ModelConfig, SsmConfig, VimConfig};

    use super::*;
    use crate::config::{LossKind, TrainConfig};
    use crate::train::flat;

    /// With everything on that is drawn for an image: drop path and dropout.
    fn model(device: &Device) -> Vim {
        let model = ModelConfig {
            image_size: Some(8.into()),
            patch_size: Some(4),
            depth: Some(3),
            d_model: Some(16),
            d_state: Some(2),
            drop_path: Some(0.4),
            dropout: Some(0.2),
            ..ModelConfig::default()
        };
        VimConfig::new(&model, SsmConfig::default(), 5).unwrap().init(device, 0).unwrap()
    }

    #[test]
    fn parts_make_the_gradient_of_the_whole_batch() {
        let device = Device::flex().autodiff();
        let model = model(&device);
        let pixels: Vec<f32> = (0..12 * 3 * 64_u16).map(|i| (f32::from(i) * 0.37).sin()).collect();
        let images = Tensor::<4>::from_data(TensorData::new(pixels, [12, 3, 8, 8]), &device);
        let labels = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1], &device);
        let shares = Tensor::from_floats(
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 0.0, 0.5],
            &device,
        );
        let targets = Targets::new(labels, Some(shares));
        for kind in [LossKind::CrossEntropy, LossKind::Bce] {
            let loss = Loss::new(&TrainConfig { loss: kind, ..TrainConfig::default() }, 5).unwrap();
            let run = |parts, seed| -> (f64, Vec<Vec<f32>>) {
                let (value, gradients) =
                    forward_backward(&model, images.clone(), &targets, &loss, seed, parts).unwrap();
                let gradients = flat::gradients(&model, gradients);
                let gradients = gradients.into_iter().map(|g| g.into_data().iter().collect());
                (f64::from(value.into_scalar::<f32>()), gradients.collect())
            };
            let distance = |a: &[Vec<f32>], b: &[Vec<f32>]| -> f64 {
                let square = |x: f64| x * x;
                let all = || a.iter().flatten().zip(b.iter().flatten());
                let far: f64 = all().map(|(a, b)| square(f64::from(a - b))).sum();
                let size: f64 = all().map(|(_, b)| square(f64::from(*b))).sum();
                (far / size).sqrt()
            };
            let (whole, wanted) = run(1, 7);
            // 12 images in 2, 3, 4 and 12 parts of equal sizes, and in 5 that are not.
            for parts in [2, 3, 4, 12, 5] {
                let (value, got) = run(parts, 7);
                assert_eq!(got.len(), wanted.len());
                assert!((value - whole).abs() < 1e-5, "{parts}: {value} {whole}");
                // Sums of f32 in another order.
                let far = distance(&got, &wanted);
                assert!(far < 1e-5, "{kind:?} in {parts} parts: {far:e}");
            }
            // The bound means something: other draws are far away.
            assert!(distance(&run(2, 8).1, &wanted) > 1e-2);
        }
    }
}
