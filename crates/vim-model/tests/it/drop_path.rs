//! Stochastic depth in the whole model.

use burn::module::Param;
use burn::tensor::Tensor;
use vim_model::{Vim, VimConfig};

use crate::support::{batch, build, error, logits, numbers, small};

const RATE: f64 = 0.5;

fn model(depth: usize, drop_path: f64) -> Vim {
    build(&VimConfig { depth, drop_path, ..small() }, 0)
}

/// Logits of a training step on `images`, those of the batch from `first` on.
fn trained(model: &Vim, images: Tensor<4>, seed: u64, first: usize) -> Vec<f32> {
    numbers(model.forward_train_part(images, seed, first).unwrap())
}

/// The same image `count` times.
fn copies(count: usize) -> Tensor<4> {
    batch(1, 16).repeat_dim(0, count)
}

#[test]
fn nothing_is_dropped_in_evaluation_or_at_rate_zero() {
    let images = || batch(4, 16);
    let plain = logits(&model(3, 0.0), images());
    assert_eq!(logits(&model(3, 0.9), images()), plain);
    assert_eq!(numbers(model(3, 0.0).forward_train(images(), 1).unwrap()), plain);
    assert_ne!(numbers(model(3, 0.9).forward_train(images(), 1).unwrap()), plain);
}

#[test]
fn the_seed_decides_what_is_dropped() {
    let model = model(3, RATE);
    let run = |seed| trained(&model, batch(16, 16), seed, 0);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A batch in parts draws what the whole batch draws, of every kind of draw that there is.
#[test]
fn parts_of_a_batch_draw_as_the_whole_does() {
    let config = VimConfig { depth: 3, drop_path: RATE, dropout: 0.2, flip_ratio: 0.5, ..small() };
    let model = build(&config, 0);
    let images = || batch(8, 16);
    for seed in 0..4 {
        let whole = trained(&model, images(), seed, 0);
        let parts = [(0, 3), (3, 5)]
            .map(|(first, len)| trained(&model, images().narrow(0, first, len), seed, first));
        // Products of matrices of other sizes may round otherwise; another draw is off by a part of
        // 1.
        assert!(error(&whole, &parts.concat()) < 1e-5, "seed {seed}");
    }
    let [moved, whole] = [8, 0].map(|first| trained(&model, images(), 0, first));
    assert!(error(&moved, &whole) > 1e-3, "other places");
}

/// With one block there is one place to drop at: an image's output is that of no block at all, or
/// of a block that counts 1/keep.
#[test]
fn an_image_loses_the_block_or_has_it_scaled_up() {
    let model = model(1, RATE);
    let scaled = |factor: f64| {
        let mut scaled = model.clone();
        scaled.layers[0].mixer.out_proj.weight =
            Param::from_tensor(model.layers[0].mixer.out_proj.weight.val() * factor);
        logits(&scaled, batch(1, 16))
    };
    let (dropped, kept) = (scaled(0.0), scaled(1.0 / (1.0 - RATE)));
    assert!(error(&dropped, &kept) > 1e-2, "the block matters");

    let size = 400;
    let drawn = trained(&model, copies(size), 9, 0);
    let mut kept_images = 0_usize;
    for image in drawn.chunks(5) {
        let (to_dropped, to_kept) = (error(image, &dropped), error(image, &kept));
        assert!(to_dropped.min(to_kept) < 1e-5, "neither: {to_dropped:.1e} {to_kept:.1e}");
        kept_images += usize::from(to_kept < to_dropped);
    }
    // Five standard deviations of 400 fair coins are 50.
    assert!(kept_images.abs_diff(200) < 50, "{kept_images} of {size} kept");
}

/// Three blocks at rate r drop in two places, after the second block (r/2) and after the third (r):
/// copies of one image come out in four ways. Two blocks drop in one place, four in three.
#[test]
fn every_place_of_the_schedule_drops() {
    for (depth, ways) in [(2, 2), (3, 4), (4, 8)] {
        let drawn = trained(&model(depth, RATE), copies(400), 3, 0);
        let mut kinds: Vec<&[f32]> = Vec::new();
        for image in drawn.chunks(5) {
            if kinds.iter().all(|kind| error(image, kind) > 1e-4) {
                kinds.push(image);
            }
        }
        assert_eq!(kinds.len(), ways, "depth {depth}");
    }
}
