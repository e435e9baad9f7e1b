//! Trains a small Vim in a loop of Burn's own: its AdamW, its cross-entropy, its tensors.
//!
//! The images are noise with one bright half, and the label says which half.

use std::error::Error;
use std::process::ExitCode;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Int, Tensor};
use vim_model::{Preset, VimConfig};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let device = Device::flex().autodiff();
    device.seed(0);
    let config = VimConfig {
        image_size: 16.into(),
        patch_size: 4,
        depth: 2,
        d_model: 32,
        num_classes: 2,
        ..VimConfig::preset(Preset::Tiny)
    };
    let mut model = config.init(&device, 0)?;
    let mut optimizer = AdamWConfig::new().init();
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    for step in 0..60 {
        let (images, labels) = batch(16, &device);
        // The seed determines which block outputs are dropped in this step.
        let logits = model.forward_train(images, step)?;
        let loss = cross_entropy.forward(logits, labels);
        if step % 10 == 0 {
            println!("step {step:>2}: loss {:.3}", loss.clone().into_scalar::<f32>());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model, gradients);
    }

    let (images, labels) = batch(64, &device.clone().inner());
    let predicted = model.valid().forward(images)?.argmax(1).flatten::<1>(0, 1);
    let right = predicted.equal(labels).int().sum().into_scalar::<i32>();
    println!("{right} of 64 right");
    if right < 60 { Err("it has not learned".into()) } else { Ok(()) }
}

/// Images, `[B, 3, 16, 16]`, and their labels: the upper half is bright in class 0, the lower in 1.
fn batch(size: usize, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let labels: Vec<i32> = (0..size as i32).map(|image| image % 2).collect();
    let labels = Tensor::<1, Int>::from_ints(&labels[..], device);
    let noise = Tensor::random([size, 3, 16, 16], Distribution::Normal(0.0, 1.0), device);
    let upper = Tensor::cat(
        vec![Tensor::ones([1, 1, 8, 1], device), Tensor::zeros([1, 1, 8, 1], device)],
        2,
    );
    let sign = (labels.clone().float() * -2.0 + 1.0).reshape([size, 1, 1, 1]);
    (noise + (upper - 0.5) * sign, labels)
}
