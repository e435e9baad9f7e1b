//! The kernels against tensor operations and autodiff, in the whole model, for every method.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_kernels::{Discretization, KernelChoice, Series};
use vim_model::{DtBInit, Rope, SsmConfig, VimConfig};

use crate::support::{Named, cross_entropy, error, gradients, images, numbers, small};

/// Logits, the images' gradient, and every parameter's.
fn run(discretization: Discretization, scan: KernelChoice) -> (Vec<f32>, Vec<f32>, Named) {
    let device = Device::flex().autodiff();
    let ssm = SsmConfig { scan, ..SsmConfig::default() };
    // Seven states are not a multiple of any vector width.
    let config = VimConfig { discretization, ssm, d_state: 7, rope: Rope::Both, ..small() };
    let model = config.init(&device, 4).unwrap();
    let x = Tensor::<4>::from_data(images(3, 16), &device).require_grad();
    let logits = model.forward_train(x.clone(), 8).unwrap();
    let grads = cross_entropy(logits.clone(), &[0, 3, 4]).backward();
    (numbers(logits), numbers(x.grad(&grads).unwrap()), gradients(&model, &grads))
}

/// f32 sums over 17 tokens, 32 channels and 7 states in another order, through two blocks: about a
/// hundred roundings of 6e-8 each.
const TOLERANCE: f64 = 2e-5;

#[test]
fn kernel_and_reference_agree_for_every_method() {
    for &method in Discretization::VARIANTS {
        let (logits, dx, kernel) = run(method, KernelChoice::Kernel);
        let (expected_logits, expected_dx, reference) = run(method, KernelChoice::Reference);
        let mut worst = error(&logits, &expected_logits).max(error(&dx, &expected_dx));
        assert!(worst < TOLERANCE, "{method}: logits and images {worst:.1e}");
        for (path, (_, expected)) in &reference {
            let error = error(&kernel[path].1, expected);
            assert!(error < TOLERANCE, "{method}: {path} {error:.1e}");
            worst = worst.max(error);
        }
        println!("{method}: {worst:.1e}");
    }
}

#[test]
fn every_parameter_is_trained_by_every_method() {
    for &method in Discretization::VARIANTS {
        let (_, dx, parameters) = run(method, KernelChoice::Kernel);
        assert!(dx.iter().all(|x| x.is_finite() && *x != 0.0), "{method}: images");
        for (path, (_, grad)) in &parameters {
            assert!(grad.iter().all(|g| g.is_finite()), "{method}: {path}");
            let zeros = grad.iter().filter(|&&g| g == 0.0).count();
            assert_eq!(zeros, 0, "{method}: {path}: {zeros} of {} are zero", grad.len());
        }
    }
}

#[test]
fn methods_differ() {
    let exact = |&method: &Discretization| at_large_steps(method, Series::Exact);
    let logits: Vec<Vec<f32>> = Discretization::VARIANTS.iter().map(exact).collect();
    for (i, a) in logits.iter().enumerate() {
        for (j, b) in logits.iter().enumerate().skip(i + 1) {
            assert!(error(a, b) > 1e-6, "methods {i} and {j} give the same logits");
        }
    }
}

#[test]
fn the_series_reaches_the_scan() {
    let logits = |series| at_large_steps(Discretization::Foh, series);
    assert!(error(&logits(Series::Taylor), &logits(Series::Exact)) > 1e-2);
}

/// Logits with delta near 0.69 in the reverse branch, where truncations are far off.
fn at_large_steps(discretization: Discretization, series: Series) -> Vec<f32> {
    let ssm = SsmConfig { series, dt_b_init: DtBInit::UpstreamZero, ..SsmConfig::default() };
    let config = VimConfig { discretization, ssm, d_state: 16, ..small() };
    let device = Device::flex();
    let model = config.init(&device, 4).unwrap();
    numbers(model.forward(Tensor::from_data(images(2, 16), &device)).unwrap())
}

/// Images come from a loader without an autodiff graph; evaluation uses the model without one.
#[test]
fn images_may_be_on_a_plain_device() {
    let plain = Device::flex();
    let model = small().init(&plain.clone().autodiff(), 4).unwrap();
    let x = || Tensor::<4>::from_data(images(2, 16), &plain);
    let training = model.forward_train(x(), 1).unwrap();
    assert_eq!(gradients(&model, &cross_entropy(training, &[1, 2]).backward()).len(), 41);
    assert_eq!(numbers(model.valid().forward(x()).unwrap()), numbers(model.forward(x()).unwrap()));
}
