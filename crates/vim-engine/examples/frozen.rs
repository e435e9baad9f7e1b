//! Trains everything of a Vim-Ti but its layers, which keep their weights: no gradient of theirs is
//! computed. Several steps on one batch, and their losses:
//!
//! `cargo run --release -p vim-engine --example frozen -- cpu f32 2 3`: the device, the precision,
//! images and steps. With `all` behind them nothing is frozen.

use std::process::ExitCode;

use strum::VariantArray;
use vim_engine::burn::module::Module;
use vim_engine::burn::nn::loss::CrossEntropyLossConfig;
use vim_engine::burn::optim::{AdamWConfig, GradientsParams};
use vim_engine::burn::tensor::{Distribution, Int, Tensor};
use vim_engine::vim_model::{Preset, VimConfig};
use vim_kernels::Precision;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, precision, images, steps, all @ ..] = &arguments[..] else {
        return Err("name a device, a precision, images and steps".into());
    };
    let device = vim_engine::device::choose_named(&device.parse()?)?.device.autodiff();
    device.seed(0);
    let known = Precision::VARIANTS.iter().find(|one| one.to_string() == *precision);
    let precision = *known.ok_or_else(|| format!("{precision} is no precision"))?;
    let mut model = VimConfig::preset(Preset::Tiny).init(&device, 0)?.with_precision(precision)?;
    if all.is_empty() {
        model.layers = model.layers.into_iter().map(Module::no_grad).collect();
    }
    let mut optimizer = AdamWConfig::new().init();
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    let batch = Tensor::random([images.parse()?, 3, 224, 224], Distribution::Default, &device);
    let labels = Tensor::<1, Int>::arange(0..images.parse()?, &device);
    for step in 0..steps.parse()? {
        let logits = model.forward_train(batch.clone(), step)?;
        let loss = cross_entropy.forward(logits, labels.clone());
        println!("step {step}: loss {}", loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-4, model, gradients);
    }
    Ok(())
}
