//! The selective scan alone, under every discretization, with its gradient.

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::{Device, Distribution, Tensor};
use vim_kernels::{Discretization, ScanOptions, VariantArray, selective_scan};

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
    let [batch, len, channels, states] = [2, 64, 16, 8];
    let normal = |shape| Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), &device);
    let u = normal([batch, len, channels]).require_grad();
    let delta = normal([batch, len, channels]);
    // Negative rates: the states decay.
    let a = Tensor::<2>::ones([channels, states], &device).neg();
    let (b, c) = (normal([batch, len, states]), normal([batch, len, states]));
    for &method in Discretization::VARIANTS {
        let options = ScanOptions { method, delta_softplus: true, ..ScanOptions::default() };
        let (u, delta, a) = (u.clone(), delta.clone(), a.clone());
        let (b, c) = (b.clone(), c.clone());
        let y = selective_scan(u.clone(), delta, a, b, c, None, None, None, options)?.y;
        let loss = (y.clone() * y).mean();
        let gradients = loss.backward();
        let du = u.grad(&gradients).ok_or("no gradient of u")?;
        println!(
            "{method:<15} loss {:.4}, mean |dL/du| {:.2e}",
            loss.into_scalar::<f32>(),
            du.abs().mean().into_scalar::<f32>()
        );
    }
    Ok(())
}
