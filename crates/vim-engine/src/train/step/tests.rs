use std::ops::Range;
use std::thread;
use std::time::Duration;

use burn::module::Param;
use burn::tensor::{Device, Int, TensorData};
use vim_comm::{Place, Rendezvous};
use vim_model::{Vim, VimConfig};

use super::*;
use crate::config::{Config, LossKind, TrainConfig};
use crate::task::classification::{Classifier, Labelled, Targets};
use crate::task::{InitFor, InitWeights, Placement};
use crate::train::optim::tests as optim_tests;

/// With everything that is drawn per image: drop path and dropout.
pub(super) fn model(device: &Device) -> Vim {
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
            let draws = [Draw { seed, first: 0 }];
            let split = whole(parts);
            let each =
                forward_backward(&classifier, &model, vec![inputs], split, &draws, &mut |_| Ok(()));
            let (value, gradients) = each.unwrap().pop().unwrap();
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

pub(super) fn numbers(model: &Vim) -> Vec<f32> {
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
        let mut graph = StepGraph::of(&config, &classifier, &device, 2).unwrap();
        let mut steps = vec![(None, numbers(state.model()))];
        for is_broken in [false, true, false] {
            let pixel = if is_broken && rank == 1 { f32::INFINITY } else { 0.5 };
            let pixels = TensorData::new(vec![pixel; 2 * 3 * 64], [2, 3, 8, 8]);
            let images = Tensor::<4>::from_data(pixels, &device);
            let labels = Tensor::<1, Int>::from_ints([1, 3], &device);
            let shards = vec![Labelled { images, targets: Targets::new(labels, None) }];
            let requests = Requests::default();
            let passes = Passes::Graph(&mut graph);
            let pending = state.step(&classifier, shards, 1e-3, &comm, requests, passes);
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

/// Numbers whose sum depends on the order.
fn number(shard: usize, place: usize) -> f32 {
    ((shard * 7 + place) as f32 * 0.37).sin() * 10f32.powi(shard as i32 % 5 * 3)
}

#[test]
fn shards_are_added_in_a_tree_whatever_their_packing() {
    let device = Device::flex();
    let lengths = [3, 1, 700];
    for count in [1, 2, 3, 6, 8] {
        let shard = |shard: usize| {
            let tensor = |length: usize| {
                let numbers: Vec<f32> = (0..length).map(|i| number(shard, i)).collect();
                Tensor::<1>::from_floats(&numbers[..], &device)
            };
            Ok(lengths.map(tensor).to_vec())
        };
        let (comm, mut packing) = (Comm::single(), None);
        let own = sum_of_rank((0..count).map(shard), &comm, &mut packing).unwrap();
        let sums = sum_of_ranks(own, &comm, packing.as_ref()).unwrap();
        for (sum, length) in sums.into_iter().zip(lengths) {
            let want: Vec<f32> = (0..length)
                .map(|place| {
                    let mut tree = TreeSum::new();
                    (0..count).for_each(|of| tree.push(number(of, place), |a, b| a + b));
                    tree.finish(|a, b| a + b).unwrap()
                })
                .collect();
            let got: Vec<f32> = sum.into_data().iter().collect();
            let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&want), "{count} shards of {length}");
        }
    }
}

/// One number.
#[derive(Module, Debug)]
struct Factor {
    factor: Param<Tensor<1>>,
}

/// The mean of a shard's numbers times the model's factor, times the mean of all that are seen
/// together. Its parts are the first mean and that mean's square.
struct Product<const JOINT: bool>;

impl<const JOINT: bool> Objective for Product<JOINT> {
    type Model = Factor;
    type Inputs = Tensor<1>;

    const JOINT: bool = JOINT;

    fn parts(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn init(&self, device: &Device) -> Result<Factor, Error> {
        Ok(Factor { factor: Param::from_tensor(Tensor::from_floats([FACTOR as f32], device)) })
    }

    fn load_init(&self, _: &Device, _: &InitFor) -> Result<Option<InitWeights<Factor>>, Error> {
        Ok(None)
    }

    fn placement(&self, _: &str, _: usize) -> Placement {
        Placement { decays: false, layers_above: 0 }
    }

    fn count(numbers: &Tensor<1>) -> usize {
        numbers.dims()[0]
    }

    fn loss(
        &self,
        model: &Factor,
        numbers: Tensor<1>,
        range: Range<usize>,
        draw: Draw,
    ) -> Result<Tensor<1>, Error> {
        let mut losses = self.losses(slice::from_ref(model), vec![numbers], range, &[draw])?;
        Ok(losses.remove(0))
    }

    fn losses(
        &self,
        models: &[Factor],
        shards: Vec<Tensor<1>>,
        range: Range<usize>,
        draws: &[Draw],
    ) -> Result<Vec<Tensor<1>>, Error> {
        assert_eq!((models.len(), draws.len()), (shards.len(), shards.len()));
        // Each shard begins behind the one before.
        let places = draws.iter().map(|draw| draw.first - draws[0].first);
        assert!(places.eq((0..shards.len()).map(|shard| shard * SHARDS[0].len())));
        let part = |numbers: Tensor<1>| numbers.narrow(0, range.start, range.len()).mean();
        let means = models.iter().zip(shards);
        let means: Vec<_> = means.map(|(m, numbers)| m.factor.val() * part(numbers)).collect();
        let all = Tensor::cat(means.clone(), 0).mean();
        let loss = |mean: Tensor<1>| {
            Tensor::cat(vec![mean.clone() * all.clone(), mean.clone(), mean.clone() * mean], 0)
        };
        Ok(means.into_iter().map(loss).collect())
    }
}

const FACTOR: f64 = 1.5;
const SHARDS: [[f64; 5]; 3] =
    [[1.0, 2.0, 3.0, 4.0, -6.0], [2.0, 0.0, -1.0, 3.0, 1.0], [0.5, 1.0, 1.5, -2.0, 4.0]];

/// What each of `shards` adds to the loss and the parts, and to the gradient, in f64.
///
/// With the means `a` of the shards in a micro-batch and the mean `A` of these, a loss is
/// `w² a A`, and the gradient of the sum of all losses by the factor of one shard is `2 w A a`.
fn expected(shards: &[[f64; 5]], micro_batches: &[Range<usize>], all: f64) -> Vec<[f64; 4]> {
    let mut sums = vec![[0.0; 4]; shards.len()];
    for range in micro_batches {
        let mean = |shard: &[f64; 5]| shard[range.clone()].iter().sum::<f64>() / range.len() as f64;
        let means: Vec<f64> = shards.iter().map(mean).collect();
        let total = means.iter().sum::<f64>() / means.len() as f64;
        let (w, share) = (FACTOR, range.len() as f64 / all);
        for (sum, a) in sums.iter_mut().zip(means) {
            let numbers = [w * w * a * total, w * a, w * w * a * a, 2.0 * w * total * a];
            sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += share * number);
        }
    }
    sums
}

/// Cuts of five images in 1, 2, 3 and 5 micro-batches.
fn cuts() -> [(usize, Vec<Range<usize>>); 4] {
    let of = |ends: &[usize]| {
        let firsts = [0].iter().chain(ends);
        firsts.zip(ends).map(|(&first, &end)| first..end).collect::<Vec<_>>()
    };
    [(1, of(&[5])), (2, of(&[3, 5])), (3, of(&[2, 4, 5])), (5, of(&[1, 2, 3, 4, 5]))]
}

fn tensors(shards: &[[f64; 5]], device: &Device) -> Vec<Tensor<1>> {
    shards.iter().map(|shard| Tensor::from_floats(shard.map(|x| x as f32), device)).collect()
}

fn assert_close(got: &[f64], expected: &[f64], what: &str) {
    let is_close = |(got, expected): (&f64, &f64)| (got - expected).abs() < 1e-5;
    let all = got.len() == expected.len() && got.iter().zip(expected).all(is_close);
    assert!(all, "{what}: {got:?} instead of {expected:?}");
}

#[test]
fn no_gradient_is_taken_of_the_parts_of_joint_losses() {
    let device = Device::flex().autodiff();
    let model = Product::<true>.init(&device).unwrap();
    for shards in [&SHARDS[..1], &SHARDS[..2], &SHARDS[..]] {
        for (parts, ranges) in cuts() {
            let (count, own) = (SHARDS[0].len(), shards.len());
            // Of a batch with twice the shards, the others on another rank.
            let split = Split { count, shards: 2 * own, parts };
            let draws: Vec<Draw> =
                (0..own).map(|shard| Draw { seed: 1, first: shard * count }).collect();
            let inputs = tensors(shards, &device);
            let objective = &Product::<true>;
            let each = forward_backward(objective, &model, inputs, split, &draws, &mut |_| Ok(()))
                .unwrap();
            assert_eq!(each.len(), own);
            let expected = expected(shards, &ranges, (2 * own * count) as f64);
            for ((loss, gradients), expected) in each.into_iter().zip(expected) {
                let gradient = flat_gradients(&model, gradients);
                let got = [loss].into_iter().chain(gradient);
                let got: Vec<f64> = got.flat_map(floats).collect();
                assert_close(&got, &expected, &format!("{own} shards in {parts} parts"));
            }
        }
    }
}

pub(super) fn floats(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f32>().map(f64::from).collect()
}

/// The numbers and phases of a step on [`SHARDS`].
fn step_of<const JOINT: bool>(accumulate: usize) -> (StepMetrics, Vec<Phase>) {
    let device = Device::flex().autodiff();
    let (objective, mut phases) = (Product::<JOINT>, Vec::new());
    let train = TrainConfig { accumulate, ..TrainConfig::default() };
    let config = Config { train, ..Config::default() };
    let model = objective.init(&device).unwrap();
    let mut state = TrainState::new(&objective, &config, model);
    let shards = tensors(&SHARDS, &device);
    let asked = Requests::default();
    let mut watch = |phase| {
        phases.push(phase);
        Ok(())
    };
    let watched = Passes::Watched(&mut watch);
    let pending = state.step(&objective, shards, 1e-3, &Comm::single(), asked, watched);
    (state.finish(pending.unwrap()), phases)
}

#[test]
fn joint_shards_are_seen_together_and_others_one_after_the_other() {
    for (accumulate, ranges) in cuts() {
        for is_joint in [true, false] {
            let (metrics, phases) =
                if is_joint { step_of::<true>(accumulate) } else { step_of::<false>(accumulate) };
            let together = if is_joint { SHARDS.len() } else { 1 };
            let all = (SHARDS.len() * SHARDS[0].len()) as f64;
            let each = SHARDS.chunks(together).flat_map(|group| expected(group, &ranges, all));
            let sum = each.fold([0.0; 4], |sum, one| std::array::from_fn(|i| sum[i] + one[i]));
            let got = [&[metrics.loss][..], &metrics.parts, &[metrics.grad_norm]].concat();
            let expected = [sum[0], sum[1], sum[2], sum[3].abs()];
            assert_close(&got, &expected, &format!("{is_joint}, in {accumulate} parts"));
            let passes = ranges.len() * SHARDS.len() / together;
            assert_eq!(phases, [Phase::Forward, Phase::Backward].repeat(passes));
        }
    }
}
