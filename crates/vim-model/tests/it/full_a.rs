//! A full A: where it starts, that it trains, and what it refuses.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Gradients, Tensor};
use vim_kernels::{Discretization, KernelChoice};
use vim_model::{DecayGroups, ModelError, SsmConfig, StateMatrix, VimConfig, decays};

use crate::support::{cross_entropy, error, gradients, images, numbers, small, values};

fn config(a: StateMatrix, scan: KernelChoice) -> VimConfig {
    let ssm = SsmConfig { a, scan, ..SsmConfig::default() };
    VimConfig { discretization: Discretization::Bilinear, ssm, ..small() }
}

/// A step of plain gradient descent.
struct Descent {
    grads: Gradients,
    rate: f64,
}

impl ModuleMapper for Descent {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let grad = param.val().grad(&self.grads).unwrap();
        param.map(|value| Tensor::from_inner(value.inner() - grad * self.rate).require_grad())
    }
}

/// Two roundings of the same model, as in `agreement.rs`.
const TOLERANCE: f64 = 2e-5;

#[test]
fn it_starts_as_the_diagonal_model() {
    let device = Device::flex().autodiff();
    let run = |a| {
        let config = config(a, KernelChoice::Kernel);
        let model = config.init(&device, 4).unwrap();
        assert_eq!(model.num_params(), config.num_parameters());
        let logits = model.forward(Tensor::from_data(images(3, 16), &device)).unwrap();
        let grads = cross_entropy(logits.clone(), &[0, 3, 4]).backward();
        (numbers(logits), values(&model), gradients(&model, &grads))
    };
    let (logits, parameters, grads) = run(StateMatrix::Full);
    let (diagonal_logits, diagonal_parameters, diagonal_grads) = run(StateMatrix::Diagonal);
    let worst = error(&logits, &diagonal_logits);
    assert!(worst < TOLERANCE, "logits {worst:.1e}");
    for (path, value) in &diagonal_parameters {
        assert_eq!(&parameters[path], value, "{path} starts elsewhere");
        let worst = error(&grads[path].1, &diagonal_grads[path].1);
        assert!(worst < TOLERANCE, "{path} {worst:.1e}");
    }
    // Two blocks of two directions have one more parameter each, with a gradient from the start.
    let added: Vec<_> =
        parameters.keys().filter(|path| !diagonal_parameters.contains_key(*path)).collect();
    assert_eq!(added.len(), 4);
    for path in added {
        assert!(path.ends_with("ward.a_off") && !decays(path, 3, DecayGroups::default()), "{path}");
        assert!(grads[path].1.iter().any(|&g| g != 0.0), "{path} does not train");
    }
}

#[test]
fn kernel_and_reference_agree_after_training_which_lowers_the_loss() {
    let device = Device::flex().autodiff();
    let labels = [0, 3, 4, 1];
    let x = Tensor::<4>::from_data(images(4, 16), &device);
    let mut model = config(StateMatrix::Full, KernelChoice::Kernel).init(&device, 4).unwrap();
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = cross_entropy(model.forward(x.clone()).unwrap(), &labels);
        losses.push(numbers(loss.clone())[0]);
        model = model.map(&mut Descent { grads: loss.backward(), rate: 0.05 });
    }
    let logits = model.forward(x.clone()).unwrap();
    losses.push(numbers(cross_entropy(logits.clone(), &labels))[0]);
    assert!(losses[20] < 0.8 * losses[0], "{losses:?}");

    // A has left the diagonal, by the skew part alone.
    let a = model.layers[0].mixer.forward.full_a().unwrap();
    let symmetric = (a.clone() + a.clone().swap_dims(1, 2)) * 0.5;
    let a_log = model.layers[0].mixer.forward.a_log.val();
    let decay = numbers(a_log.exp().neg());
    let (a, symmetric) = (numbers(a), numbers(symmetric));
    for (i, (a, symmetric)) in a.iter().zip(&symmetric).enumerate() {
        let (channel, n, m) = (i / 16, i / 4 % 4, i % 4);
        if n == m {
            assert_eq!(*symmetric, decay[channel * 4 + n]);
        } else {
            assert_eq!(*symmetric, 0.0, "[{channel}, {n}, {m}]");
            assert_ne!(*a, 0.0, "[{channel}, {n}, {m}] has not moved");
        }
    }

    let reference = config(StateMatrix::Full, KernelChoice::Reference).init(&device, 4).unwrap();
    let reference = reference.load_record(model.clone().into_record());
    let worst = error(&numbers(logits), &numbers(reference.forward(x).unwrap()));
    assert!(worst < TOLERANCE, "{worst:.1e}");
}

#[test]
fn what_it_cannot_do_is_an_error() {
    let full = config(StateMatrix::Full, KernelChoice::Auto);
    let refused = |config: VimConfig| match config.init(&Device::flex(), 0) {
        Err(error @ ModelError::Range { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let zoh = refused(VimConfig { discretization: Discretization::Zoh, ..full.clone() });
    assert!(zoh.contains("model.discretization: zoh") && zoh.contains("ssm.a = \"full\""), "{zoh}");
    let many = refused(VimConfig { d_state: 33, ..full.clone() });
    assert!(many.contains("model.d_state: 33") && many.contains("1 to 32"), "{many}");
    assert!(VimConfig { d_state: 32, depth: 1, ..full }.init(&Device::flex(), 0).is_ok());
}
