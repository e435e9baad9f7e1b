use std::thread;
use std::time::Duration;

use burn::tensor::{Device, Int, TensorData};
use vim_comm::{Place, Rendezvous};
use vim_model::{Vim, VimConfig};

use super::*;
use crate::config::{Config, LossKind, TrainConfig};
use crate::task::classification::{Classifier, Labelled, Targets};
use crate::train::optim::tests::{self as optim_tests, small_on};

/// With everything that is drawn per image: drop path and dropout.
fn model(device: &Device) -> Vim {
    let config = VimConfig {
        image_size: 8.into(),
        patch_size: 4,
        depth: 3,
        d_model: 16,
        d_state: 2,
        drop_path: 0.4,
        dropout: 0.2,
        num_classes: 5,
        ..VimConfig::default()
    };
    config.init(device, 0).unwrap()
}

#[test]
fn micro_batches_make_the_gradient_of_the_whole_batch() {
    let device = Device::flex().autodiff();
    let model = model(&device);
    let pixels: Vec<f32> = (0..12 * 3 * 64_u16).map(|i| (f32::from(i) * 0.37).sin()).collect();
    let images = Tensor::<4>::from_data(TensorData::new(pixels, [12, 3, 8, 8]), &device);
    let labels = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1], &device);
    let shares =
        Tensor::from_floats([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 0.0, 0.5], &device);
    let targets = Targets::new(labels, Some(shares));
    let whole = |parts| Split { count: 12, shards: 1, parts };
    for kind in [LossKind::CrossEntropy, LossKind::Bce] {
        let train = TrainConfig { loss: kind, ..TrainConfig::default() };
        let config = Config { train, ..Config::default() };
        let classifier = Classifier::new(&config, model.config().clone()).unwrap();
        let run = |parts, seed| -> (f64, Vec<Vec<f32>>) {
            let inputs = Labelled { images: images.clone(), targets: targets.clone() };
            let loss =
                |inputs, range| classifier.loss(&model, inputs, range, Draw { seed, first: 0 });
            let (value, gradients) =
                forward_backward(&model, inputs, whole(parts), loss, &mut |_| Ok(())).unwrap();
            let gradients = flat_gradients(&model, gradients);
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
        // 12 images in 2, 3, 4 and 12 micro-batches of equal sizes, and in 5 of unequal ones.
        for parts in [2, 3, 4, 12, 5] {
            let (value, got) = run(parts, 7);
            assert_eq!(got.len(), wanted.len());
            assert!((value - whole).abs() < 1e-5, "{parts}: {value} {whole}");
            // Sums of f32 in another order.
            let far = distance(&got, &wanted);
            assert!(far < 1e-5, "{kind:?} in {parts} parts: {far:e}");
        }
        // The bound is meaningful: with another seed the gradient is far away.
        assert!(distance(&run(2, 8).1, &wanted) > 1e-2);
    }
}

#[test]
fn metrics_are_the_loss_and_the_root_and_say_what_is_not_finite() {
    let read = |loss: f32, square: f32| {
        let device = Device::flex();
        let number = |number: f32| Tensor::<1>::from_floats([number], &device);
        let tail = Tail { values: number(loss), parts: 0 };
        StepMetrics::read(tail, Some(number(square)), Requests::default())
    };
    let good = read(2.5, 9.0);
    assert_eq!((good.loss, good.grad_norm, good.fault()), (2.5, 3.0, None));
    assert_eq!(read(f32::NAN, f32::NAN).fault().as_deref(), Some("the loss is NaN"));
    let large = read(1.0, f32::INFINITY).fault();
    assert_eq!(large.as_deref(), Some("the gradient norm is inf"));

    // The loss, two parts, requests to stop and to save; then the norm.
    let values = Tensor::from_floats([3.0, 1.0, 2.0, 1.0, 0.0, 2.0], &Device::flex());
    let square = Tensor::from_floats([4.0], &Device::flex());
    let asked = Requests { stop: true, evaluate: false, save: true };
    let read = StepMetrics::read(Tail { values, parts: 2 }, Some(square), Requests::default());
    assert_eq!((read.loss, &read.parts[..], read.grad_norm), (3.0, &[1.0, 2.0][..], 2.0));
    assert_eq!(read.requests, asked);
}

fn small(seed: u64) -> Vim {
    small_on(&Device::flex(), seed)
}

fn numbers(model: &Vim) -> Vec<f32> {
    optim_tests::values(model).into_values().flatten().map(|value| value as f32).collect()
}

#[test]
fn a_loss_that_is_not_finite_at_one_rank_is_skipped_by_all() {
    let folder = tempfile::tempdir().unwrap();
    let rank = |rank: usize| {
        let (place, timeout) = (Place::new(rank, vec![2]).unwrap(), Duration::from_secs(60));
        let folder = folder.path().to_owned();
        let comm = Comm::host(&Rendezvous { folder, place, timeout }).unwrap();
        let device = Device::flex().autodiff();
        let (model, config) = (model(&device), Config::default());
        let classifier = Classifier::new(&config, model.config().clone()).unwrap();
        let mut state = TrainState::new(&classifier, &config, model);
        let mut steps = vec![(None, numbers(state.model()))];
        for is_broken in [false, true, false] {
            let pixel = if is_broken && rank == 1 { f32::INFINITY } else { 0.5 };
            let pixels = TensorData::new(vec![pixel; 2 * 3 * 64], [2, 3, 8, 8]);
            let images = Tensor::<4>::from_data(pixels, &device);
            let labels = Tensor::<1, Int>::from_ints([1, 3], &device);
            let shards = vec![Labelled { images, targets: Targets::new(labels, None) }];
            let requests = Requests::default();
            let pending = state.step(&classifier, shards, 1e-3, &comm, requests, |_| Ok(()));
            let fault = state.finish(pending.unwrap()).fault();
            if fault.is_some() {
                state.skip();
            }
            steps.push((fault, numbers(state.model())));
        }
        (steps, state.counters.step, state.counters.skipped)
    };
    let both = thread::scope(|scope| {
        let other = scope.spawn(|| rank(1));
        [rank(0), other.join().unwrap()]
    });
    assert!(both[0] == both[1], "the ranks have the same weights, and know the same");
    let (steps, step, skipped) = &both[0];
    let faults: Vec<_> = steps.iter().map(|(fault, _)| fault.as_deref()).collect();
    assert_eq!(faults, [None, None, Some("the loss is NaN"), None]);
    let changed: Vec<_> = steps.windows(2).map(|pair| pair[0].1 != pair[1].1).collect();
    assert_eq!((changed, *step, *skipped), (vec![true, false, true], 3, 1));
}

#[test]
fn it_is_the_weighted_sum_of_all_weights_since_the_start() {
    let models = [small(0), small(1), small(2), small(3)];
    let values = models.each_ref().map(numbers);
    for (warmup, decays) in [(false, [0.9; 3]), (true, [2.0 / 11.0, 3.0 / 12.0, 4.0 / 13.0])] {
        let train = TrainConfig { ema: Some(0.9), ema_warmup: warmup, ..TrainConfig::default() };
        let mut ema = Ema::new(&train, &models[0]).unwrap();
        for updates in 1..=3 {
            ema.update(&models[updates], updates as u64);
        }
        let [a, b, c] = decays;
        let weights = [a * b * c, (1.0 - a) * b * c, (1.0 - b) * c, 1.0 - c];
        let got = numbers(&ema.model(&models[3]));
        assert_eq!(got.len(), values[0].len());
        for (i, got) in got.into_iter().enumerate() {
            let want: f64 = (0..4).map(|n| weights[n] * f64::from(values[n][i])).sum();
            // Each of the three updates rounds to f32.
            let allowed = 1e-6 * (1.0 + want.abs());
            assert!((f64::from(got) - want).abs() < allowed, "{got} {want}");
        }
    }
    assert!(Ema::new(&TrainConfig::default(), &models[0]).is_none());
}

#[test]
fn the_warm_up_ends_at_the_decay() {
    let train = TrainConfig { ema: Some(0.5), ema_warmup: true, ..TrainConfig::default() };
    let ema = Ema::new(&train, &small(0)).unwrap();
    assert_eq!([7, 8, 9, 10_000].map(|t| ema.decay_at(t)), [8.0 / 17.0, 0.5, 0.5, 0.5]);
}

#[test]
fn the_average_is_evaluated_and_the_model_trains_on() {
    let (model, other) = (small(0), small(1));
    let train = TrainConfig { ema: Some(0.0), ..TrainConfig::default() };
    let mut ema = Ema::new(&train, &model).unwrap();
    ema.update(&other, 1);
    // A decay of 0 is the last weights.
    assert_eq!(numbers(&ema.model(&model)), numbers(&other));
    let images = Tensor::<4>::ones([1, 3, 8, 8], &Device::flex());
    let logits = |model: &Vim| -> Vec<f32> {
        model.forward(images.clone()).unwrap().into_data().iter().collect()
    };
    assert_eq!(logits(&ema.model(&model)), logits(&other.valid()));
}
