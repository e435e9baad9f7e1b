//! A batch in one shard and in several, on one rank and on several.

use std::path::Path;
use std::slice::from_ref;
use std::thread;
use std::time::Duration;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use vim_comm::{Comm, Place, Rendezvous};
use vim_dense::{DenseError, Segmenter, Shard, ShardSum, losses, replicas};
use vim_model::VimConfig;

use crate::support::{Named, gradients, images, label_tensor, numbers, shaken, small, values};

const SIDE: usize = 64;

fn model(dropout: f64) -> Segmenter {
    let (heads, backbone) = small();
    let heads = vim_dense::SegmenterConfig { dropout, ..heads };
    let backbone = VimConfig { drop_path: dropout, ..backbone };
    shaken(&heads, &backbone, &Device::flex().autodiff())
}

fn shard(first: usize, count: usize) -> Shard {
    let device = Device::flex().autodiff();
    Shard {
        images: images(first, count, SIDE, &device),
        labels: label_tensor(first, count, SIDE, &device),
        first,
    }
}

/// Of each shard of a rank its loss and gradients, and the model after the pass.
type Step = (Vec<(f32, Named)>, Named);

/// The pass of rank `comm.rank()`, which has `local` shards of `count` images each.
fn step(comm: &Comm, model: &Segmenter, local: usize, count: usize) -> Step {
    let models = if local == 1 { vec![model.clone()] } else { replicas(model, local) };
    let first = comm.rank() * local;
    let shards = (first..first + local).map(|number| shard(number * count, count)).collect();
    let sums = ShardSum::new(comm.clone(), local);
    let found = losses(&models, shards, 7, &sums).unwrap();
    let each: Vec<f32> = found.iter().map(|shard| numbers(shard.loss.clone())[0]).collect();
    let total = found.into_iter().map(|shard| shard.loss).reduce(|a, b| a + b).unwrap();
    let grads = total.backward();
    sums.check().unwrap();
    let gradients = models.iter().map(|model| gradients(model, &grads));
    (each.into_iter().zip(gradients).collect(), values(model))
}

/// [`step`] on each of `world` ranks, their shards one after the other; every rank has the same
/// statistics.
fn on_ranks(world: usize, local: usize, count: usize, dropout: f64) -> Step {
    let folder = tempfile::tempdir().unwrap();
    let rank = |rank: usize, folder: &Path| {
        let place = Place::new(rank, vec![world]).unwrap();
        let timeout = Duration::from_secs(60);
        let comm = Comm::host(&Rendezvous { folder: folder.to_owned(), place, timeout }).unwrap();
        step(&comm, &model(dropout), local, count)
    };
    let steps: Vec<Step> = thread::scope(|scope| {
        let (rank, folder) = (&rank, folder.path());
        let ranks: Vec<_> = (0..world).map(|i| scope.spawn(move || rank(i, folder))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let after = steps[0].1.clone();
    assert!(steps.iter().all(|(_, other)| *other == after), "statistics differ between ranks");
    (steps.into_iter().flat_map(|(shards, _)| shards).collect(), after)
}

fn one_rank(local: usize, count: usize, dropout: f64) -> Step {
    step(&Comm::single(), &model(dropout), local, count)
}

/// Mean over shards.
fn mean(shards: &[(f32, Named)]) -> (f64, Vec<(String, Vec<f64>)>) {
    let count = shards.len() as f64;
    let loss = shards.iter().map(|(loss, _)| f64::from(*loss)).sum::<f64>() / count;
    let gradient = |(path, (_, first)): (&String, &(Vec<usize>, Vec<f32>))| {
        let sum = |at: usize| shards.iter().map(|(_, all)| f64::from(all[path].1[at])).sum::<f64>();
        (path.clone(), (0..first.len()).map(|at| sum(at) / count).collect())
    };
    (loss, shards[0].1.iter().map(gradient).collect())
}

/// Statistics are those of the whole batch: shards change nothing but the order of sums.
#[test]
fn shards_are_the_whole_batch() {
    for dropout in [0.0, 0.3] {
        let whole = one_rank(1, 12, dropout);
        let (loss, gradients) = mean(&whole.0);
        for (local, count) in [(2, 6), (3, 4), (4, 3)] {
            let cut = one_rank(local, count, dropout);
            let (cut_loss, cut_gradients) = mean(&cut.0);
            assert!((loss / cut_loss - 1.0).abs() < 1e-5, "{local}: {loss} {cut_loss}");
            assert_eq!(gradients.len(), cut_gradients.len());
            for ((path, want), (_, got)) in gradients.iter().zip(&cut_gradients) {
                let largest = want.iter().fold(1e-4_f64, |max, x| max.max(x.abs()));
                let worst =
                    want.iter().zip(got).fold(0.0_f64, |max, (a, b)| max.max((a - b).abs()));
                assert!(
                    worst < 2e-3 * largest,
                    "{local} shards, {path}: {worst:.1e} {largest:.1e}"
                );
            }
            for (path, (_, want)) in whole.1.iter().filter(|(path, _)| path.contains("running_")) {
                let got = &cut.1[path].1;
                let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5 * (1.0 + b.abs());
                assert!(got.iter().zip(want).all(close), "{local} shards, {path}");
            }
        }
    }
}

/// The same shards on one rank and on several: the same bytes of losses, gradients and statistics.
#[test]
fn ranks_change_no_byte() {
    for (shards, worlds) in [(2, &[2][..]), (4, &[2, 4]), (3, &[3])] {
        let alone = one_rank(shards, 2, 0.2);
        for &world in worlds {
            let spread = on_ranks(world, shards / world, 2, 0.2);
            assert_eq!(alone.0.len(), spread.0.len());
            for (number, (one, other)) in alone.0.iter().zip(&spread.0).enumerate() {
                let what = format!("{shards} shards on {world} ranks, shard {number}");
                assert_eq!(one.0.to_bits(), other.0.to_bits(), "{what}");
                for (path, (_, values)) in &one.1 {
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert!(bits(values) == bits(&other.1[path].1), "{what}: {path}");
                }
            }
            assert!(alone.1 == spread.1, "statistics of {shards} shards on {world} ranks");
        }
    }
}

/// A step gives each shard's gradients by the parameters' identities, of all parameters that
/// require one.
#[test]
fn replicas_have_gradients_of_their_own_under_the_same_identities() {
    let model = model(0.0);
    let models = replicas(&model, 2);
    let sums = ShardSum::new(Comm::single(), 2);
    let found = losses(&models, vec![shard(0, 2), shard(2, 2)], 0, &sums).unwrap();
    let total = found.into_iter().map(|shard| shard.loss).reduce(|a, b| a + b).unwrap();
    let mut grads = total.backward();
    let each: Vec<_> =
        models.iter().map(|model| GradientsParams::from_module(&mut grads, model)).collect();
    let id = model.decode_head.conv_seg.bias.id;
    let [one, other] = [&each[0], &each[1]].map(|grads| numbers(grads.get::<1>(id).unwrap()));
    assert_ne!(one, other);
    let frozen = model.backbone.norm_f.weight.id;
    assert!(each.iter().all(|grads| grads.get::<1>(frozen).is_none()));
}

/// One image at stride 32 alone: pooling over the whole map leaves one number per channel.
#[test]
fn one_number_per_channel_is_refused_in_words() {
    let model = model(0.0);
    let alone = losses(from_ref(&model), vec![shard(0, 1)], 0, &ShardSum::single());
    let error = alone.err().unwrap();
    assert!(matches!(error, DenseError::OneValue { .. }), "{error:?}");
    assert!(error.to_string().contains("decode_head.psp_modules"), "{error}");
    // Two shards of one image each are enough.
    let models = replicas(&model, 2);
    let sums = ShardSum::new(Comm::single(), 2);
    assert!(losses(&models, vec![shard(0, 1), shard(1, 1)], 0, &sums).is_ok());
}

#[test]
fn shards_that_do_not_fit_are_refused() {
    let model = model(0.0);
    let two = ShardSum::new(Comm::single(), 2);
    let refused = |models: &[Segmenter], shards: Vec<Shard>, sums: &ShardSum| match losses(
        models, shards, 0, sums,
    ) {
        Err(DenseError::Argument { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let models = [model.clone(), model.clone()];
    assert_eq!(refused(&models[..1], vec![shard(0, 2)], &two), "shards");
    assert_eq!(refused(&models, vec![shard(0, 2), shard(2, 1)], &two), "a shard");
    let labels = label_tensor(0, 1, SIDE, &Device::flex().autodiff());
    let odd = Shard { labels, ..shard(0, 2) };
    assert_eq!(refused(&models[..1], vec![odd], &ShardSum::single()), "labels");
    let small = Tensor::zeros([2, 3, 32, 32], &Device::flex().autodiff());
    let labels = label_tensor(0, 2, 32, &Device::flex().autodiff());
    let shard = Shard { images: small, labels, first: 0 };
    let error = losses(&models[..1], vec![shard], 0, &ShardSum::single()).err().unwrap();
    assert!(matches!(error, DenseError::Feature(_)), "{error:?}");
}
