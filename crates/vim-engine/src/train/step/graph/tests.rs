//! On a GPU, in software where wgpu is: what a step makes of other images, draws, rates and weights
//! each time is the same to the bit, launched or replayed.

#![cfg(any(feature = "cuda", feature = "wgpu"))]

use burn::tensor::{Int, TensorData};
use vim_comm::Comm;
use vim_kernels::{in_own_buffer, overwrite};
use vim_model::{Vim, VimConfig};
use vim_run::checkpoint::Weights;

use super::*;
use crate::config::TrainConfig;
use crate::error::code;
use crate::task::classification::{Classifier, Labelled, Targets};
use crate::train::state::TrainState;
use crate::train::step::tests::{floats, model, numbers};
use crate::train::step::{Passes, Requests};

const STEPS: usize = 8;

#[cfg(feature = "wgpu")]
fn gpu() -> Device {
    Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)
}

#[cfg(not(feature = "wgpu"))]
fn gpu() -> Device {
    Device::cuda(0)
}

#[test]
fn a_recording_without_memory_is_no_defect_of_the_recording() {
    // What CubeCL said on an H200 that others had filled.
    let why = "a GPU through CUDA replays no graph: An error happened during execution Caused by: \
               an operation inside the capture window failed or was skipped, so the recording is \
               missing an operation and cannot seal: An IO error happened Caused by: out of \
               device memory allocating 53477376 bytes No backtrace available";
    let error = lost(why);
    assert_eq!(error.exit_code(), code::MEMORY);
    assert!(error.to_string().contains("another 51.0 MiB were asked for"), "{error}");
    let error = lost("a GPU through CUDA replays no graph: stream capture is invalid");
    assert_eq!(error.exit_code(), code::FAILED);
    assert!(error.to_string().ends_with("`--resume auto --set devices.graph=off`"), "{error}");
}

/// What differs from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Varies {
    /// All of the below, and pixels that are not finite in one step.
    All,
    Images,
    Labels,
    Shares,
    /// What drop path and dropout draw.
    Draws,
    /// The weights alone, at one rate.
    Weights,
    Rate,
    /// Of the moving average.
    Decay,
}

/// What came of steps, in bits.
#[derive(PartialEq)]
struct Trained {
    /// Loss and norm of each.
    losses: Vec<[u32; 2]>,
    /// The weights, and their moving average.
    weights: [Vec<f32>; 2],
    replays: u64,
}

/// Steps on `shards` shards of four images, cut into `accumulate` parts.
fn trained(graph: GraphChoice, [shards, accumulate]: [usize; 2], varies: Varies) -> Trained {
    let device = gpu().autodiff();
    let mut config = Config::default();
    let is_all = varies == Varies::All;
    config.train = TrainConfig {
        accumulate,
        clip_grad: Some(0.5),
        ema: Some(0.9),
        ema_warmup: is_all || varies == Varies::Decay,
        label_smoothing: 0.1,
        ..config.train
    };
    config.devices.graph = graph;
    let model = match is_all || varies == Varies::Draws {
        true => model(&device),
        false => undrawn(&device),
    };
    let classifier = Classifier::new(&config, model.config().clone()).unwrap();
    let mut state = TrainState::new(&classifier, &config, model);
    let mut graph = StepGraph::of(&config, &classifier, &device, 1).unwrap();
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let at = |what| if is_all || varies == what { step } else { 0 };
        let is_broken = is_all && step == 5;
        let inputs = (0..shards).map(|shard| {
            let of = at(Varies::Images);
            let numbers = (0..4 * 3 * 64).map(|i| ((i * (of + 2) + shard) as f32).sin());
            let mut pixels: Vec<f32> = numbers.collect();
            if is_broken {
                pixels[7] = f32::INFINITY;
            }
            let images = TensorData::new(pixels, [4, 3, 8, 8]);
            let of = at(Varies::Labels);
            let labels = [0, 1, 2, 3].map(|i| (i * (of + 1) + of / 5 + shard) as i32 % 5);
            let labels = Tensor::<1, Int>::from_ints(labels, &device);
            let of = at(Varies::Shares) as i32;
            let lambdas = [0.25, 0.5, 0.75, 0.9].map(|share: f32| share.powi(of));
            let targets = Targets::new(labels, Some(Tensor::from_floats(lambdas, &device)));
            Labelled { images: Tensor::from_data(images, &device), targets }
        });
        let changes = [Varies::Weights, Varies::Rate, Varies::Decay].contains(&varies);
        let lr = if is_all || changes { 1e-3 * (at(Varies::Rate) + 1) as f64 } else { 0.0 };
        let (inputs, asked) = (inputs.collect(), Requests::default());
        let passes = Passes::Graph(&mut graph);
        let pending = state.step(&classifier, inputs, lr, &Comm::single(), asked, passes);
        let metrics = state.finish(pending.unwrap());
        assert_eq!(metrics.fault().is_some(), is_broken, "step {step}: {metrics:?}");
        if is_broken {
            state.skip();
        }
        losses.push([metrics.loss, metrics.grad_norm].map(|x| (x as f32).to_bits()));
    }
    assert_eq!(
        graph.why_not(),
        (config.devices.graph == GraphChoice::Off).then_some("devices.graph = \"off\"")
    );
    let weights = [Weights::Model, Weights::Ema].map(|kind| numbers(&state.weights(kind)));
    Trained { losses, weights, replays: graph.replays }
}

/// [`model`], which draws nothing.
fn undrawn(device: &Device) -> Vim {
    let config = VimConfig { drop_path: 0.0, dropout: 0.0, ..model(device).config().clone() };
    config.init(device, 0).unwrap()
}

#[test]
fn a_replayed_step_has_the_bits_of_a_launched_one() {
    for parts in [[1, 1], [1, 2], [2, 1]] {
        let launched = trained(GraphChoice::Off, parts, Varies::All);
        let replayed = trained(GraphChoice::On, parts, Varies::All);
        assert_eq!((launched.replays, replayed.replays), (0, STEPS as u64 - 2), "{parts:?}");
        assert!(launched == Trained { replays: 0, ..replayed }, "{parts:?}");
    }
}

/// Each thing that a step has from elsewhere, by itself: frozen as the recorded step had it, it
/// would give every replay the same numbers, or a run those of another.
#[test]
fn whatever_changes_from_step_to_step_reaches_a_replay() {
    let run = |varies| trained(GraphChoice::On, [1, 1], varies);
    for varies in [Varies::Images, Varies::Labels, Varies::Shares, Varies::Draws, Varies::Weights] {
        let losses = run(varies).losses;
        let replayed = &losses[2..];
        let is_new = |i: usize| !replayed[..i].contains(&replayed[i]);
        assert!((0..replayed.len()).all(is_new), "{varies:?}: {losses:?}");
    }
    let [plain, rate, decay] = [Varies::Weights, Varies::Rate, Varies::Decay].map(run);
    // At rates 1e-3 to 8e-3 in place of 1e-3 the weights move some three times as far, as they turn
    // round sooner; at the recorded step's in all that follow, 3e-3, it would be twice.
    let moved = |run: &Trained| -> f64 {
        let begun = numbers(&undrawn(&gpu().autodiff()));
        let apart = run.weights[0].iter().zip(&begun).map(|(a, b)| f64::from((a - b).abs()));
        apart.sum()
    };
    let further = moved(&rate) / moved(&plain);
    assert!((2.7..6.0).contains(&further), "{further}");
    assert!(plain.weights[0] == decay.weights[0] && plain.weights[1] != decay.weights[1]);
}

#[test]
fn what_is_saved_is_of_its_step_whatever_is_replayed_after_it() {
    let device = gpu().autodiff();
    let mut config = Config::default();
    (config.devices.graph, config.train.ema) = (GraphChoice::On, Some(0.9));
    let model = model(&device);
    let classifier = Classifier::new(&config, model.config().clone()).unwrap();
    let mut state = TrainState::new(&classifier, &config, model);
    let mut graph = StepGraph::of(&config, &classifier, &device, 1).unwrap();
    let bytes = |state: &TrainState<Vim>| -> Vec<Vec<u8>> {
        let files = state.files().into_iter();
        files.map(|(_, arrays)| arrays.to_safetensors().unwrap()).collect()
    };
    let mut saved = Vec::new();
    for step in 0..6 {
        let pixels = (0..4 * 3 * 64).map(|i| ((i * (step + 2)) as f32).sin()).collect();
        let images = Tensor::from_data(TensorData::new(pixels, [4, 3, 8, 8]), &device);
        let targets = Targets::new(Tensor::from_ints([0, 1, 2, 3], &device), None);
        let inputs = vec![Labelled { images, targets }];
        let (asked, passes) = (Requests::default(), Passes::Graph(&mut graph));
        let pending = state.step(&classifier, inputs, 1e-3, &Comm::single(), asked, passes);
        state.finish(pending.unwrap());
        // Read only after the next step.
        saved.push((state.files(), bytes(&state)));
    }
    assert_eq!(graph.replays, 4);
    let mut before = Vec::new();
    for (files, at_once) in saved {
        let files = files.into_iter();
        let later: Vec<_> = files.map(|(_, arrays)| arrays.to_safetensors().unwrap()).collect();
        assert!(later == at_once && at_once.len() == 3);
        let is_new = at_once.iter().zip(&before).all(|(now, before)| now != before);
        assert!(is_new, "each file changes with each step");
        before = at_once;
    }
}

/// Steps of which something else follows every second, such as an evaluation: what became of
/// the graph.
fn interrupted(is_asked_for: bool) -> Result<StepGraph<Tensor<1>>, Error> {
    let device = gpu();
    let held = Held { hold: in_own_buffer, overwrite };
    let mut graph = StepGraph::on(&device, held, is_asked_for);
    for step in 0..20 {
        let inputs = vec![Tensor::from_floats([step as f32], &device)];
        let twice = |inputs: Vec<Tensor<1>>| inputs.into_iter().map(|x| x * 2.0).collect();
        let pass = &mut |inputs| Ok(Sums { tensors: twice(inputs), square_norm: None });
        let sums = graph.run(inputs, 0, Vec::new, pass)?;
        assert_eq!(floats(sums.tensors[0].clone()), [2.0 * f64::from(step)]);
        if step % 2 == 1 {
            graph.interrupt();
        }
    }
    Ok(graph)
}

#[test]
fn a_graph_that_is_never_recorded_is_told() {
    let why = "an evaluation or a checkpoint follows every second step or sooner";
    let mut graph = interrupted(false).unwrap();
    assert_eq!((graph.why_not(), graph.replays), (Some(why), 0));
    assert!(graph.take_failure().unwrap().ends_with(why) && graph.take_failure().is_none());
    let refused = interrupted(true).unwrap_err().to_string();
    assert!(refused.starts_with("devices.graph") && refused.ends_with(why), "{refused}");
}

/// A recording that asks for more memory than the steps before it, `first` or last.
fn after_a_failed_recording(first: bool) -> (Vec<f32>, Vec<f32>) {
    let device = gpu().autodiff();
    let mut config = Config::default();
    config.devices.graph = GraphChoice::Auto;
    let model = model(&device);
    let classifier = Classifier::new(&config, model.config().clone()).unwrap();
    let state = TrainState::new(&classifier, &config, model);
    let held = classifier.held().unwrap();
    let mut graph = StepGraph::on(&device, held, false);
    let inputs = || {
        let numbers: Vec<f32> = (0..4 * 3 * 64).map(|i| (i as f32).sin()).collect();
        let images = Tensor::from_data(TensorData::new(numbers, [4, 3, 8, 8]), &device);
        let targets = Targets::new(Tensor::from_ints([0, 1, 2, 3], &device), None);
        vec![Labelled { images, targets }]
    };
    let comm = Comm::single();
    let mut calls = 0;
    let mut results = (0..4).map(|_| {
        let sums = graph.run(inputs(), 3, Vec::new, &mut |shards| {
            calls += 1;
            let large = || {
                let large = Tensor::<1>::zeros([40_000_000], &device) + 1.0;
                assert_eq!(large.dims(), [40_000_000]);
            };
            if calls == 3 && first {
                large();
            }
            let with = (&comm, Requests::default());
            let sums = state.sums(&classifier, shards, 3, with, &mut None, &mut |_| Ok(()));
            if calls == 3 && !first {
                large();
            }
            sums
        });
        sums.unwrap().tensors.into_iter().flat_map(floats).map(|x| x as f32).collect()
    });
    let (launched, again) = (results.next().unwrap(), results.nth(1).unwrap());
    drop(results);
    assert_eq!((graph.replays, graph.why_not()), (0, None), "nothing was recorded, yet");
    (launched, again)
}

#[test]
fn a_recording_that_fails_is_launched_instead() {
    for first in [true, false] {
        let (launched, again) = after_a_failed_recording(first);
        assert!(launched == again, "{first}");
    }
}
