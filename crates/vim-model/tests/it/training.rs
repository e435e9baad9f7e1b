//! What training draws: the class token's place, the order, dropout.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use vim_model::{ClassToken, VimConfig};

use crate::support::{batch, error, images, numbers, small};
use crate::variants::shaken;

/// Logits of one image of four patches: in evaluation, or of a training step.
fn logits(config: VimConfig, seed: Option<u64>) -> Vec<f32> {
    let config = VimConfig { image_size: 8.into(), drop_path: 0.0, ..config };
    let model = shaken(&config, &Device::flex());
    numbers(match seed {
        Some(seed) => model.forward_train(batch(1, 8), seed).unwrap(),
        None => model.forward(batch(1, 8)).unwrap(),
    })
}

fn same(a: &[f32], b: &[f32]) -> bool {
    error(a, b) < 1e-6
}

#[test]
fn a_random_class_token_goes_everywhere_in_training_and_to_the_head_in_evaluation() {
    let at = |class_token| VimConfig { class_token, ..small() };
    let head = logits(at(ClassToken::Head), None);
    assert_eq!(logits(at(ClassToken::Random), None), head);
    let mut places: Vec<(Vec<f32>, usize)> = Vec::new();
    for seed in 0..500 {
        let drawn = logits(at(ClassToken::Random), Some(seed));
        assert_eq!(drawn, logits(at(ClassToken::Random), Some(seed)));
        match places.iter_mut().find(|(place, _)| same(place, &drawn)) {
            Some((_, count)) => *count += 1,
            None => places.push((drawn, 1)),
        }
    }
    // Before, between and after four patches; each in 100 of 500 draws, five deviations being 45.
    assert_eq!(places.len(), 5);
    assert!(places.iter().all(|(_, count)| count.abs_diff(100) < 45), "{places:?}");
    for known in [head, logits(at(ClassToken::Middle), None)] {
        assert!(places.iter().any(|(place, _)| same(place, &known)));
    }
}

#[test]
fn tokens_are_reversed_as_often_as_asked() {
    let flipping = |flip_ratio| VimConfig { flip_ratio, ..small() };
    let (plain, flipped) = (logits(flipping(0.0), None), logits(flipping(1.0), None));
    assert!(!same(&plain, &flipped));
    assert_eq!(logits(flipping(0.3), None), plain, "evaluation draws nothing");
    let mut count = 0_usize;
    for seed in 0..500 {
        let drawn = logits(flipping(0.3), Some(seed));
        assert!(same(&drawn, &plain) || same(&drawn, &flipped), "seed {seed}");
        count += usize::from(same(&drawn, &flipped));
    }
    // Five deviations of 500 draws at 0.3 are 51.
    assert!(count.abs_diff(150) < 51, "{count}");
    assert!(same(&logits(flipping(1.0), Some(3)), &flipped));
}

#[test]
fn dropout_is_of_training_alone_and_has_its_seed() {
    let dropping = |dropout| VimConfig { dropout, ..small() };
    let plain = logits(dropping(0.0), None);
    assert_eq!(logits(dropping(0.4), None), plain);
    assert_eq!(logits(dropping(0.0), Some(1)), plain);
    let first = logits(dropping(0.4), Some(1));
    assert_eq!(first, logits(dropping(0.4), Some(1)));
    assert!(!same(&first, &plain) && !same(&first, &logits(dropping(0.4), Some(2))));
}

/// Layers without gradients of their own pass on the same bits.
#[test]
fn frozen_layers_leave_the_gradients_of_the_rest() {
    let mut devices = vec![Device::flex()];
    devices.extend(cfg!(feature = "wgpu").then(Device::default));
    for device in devices {
        let device = device.autodiff();
        let model = small().init(&device, 3).unwrap();
        let mut without = model.clone();
        without.layers = without.layers.into_iter().map(Module::no_grad).collect();
        let gradients = [model, without].map(|model| {
            let images = Tensor::from_data(images(2, 16), &device);
            let loss = model.forward_train(images, 0).unwrap().powi_scalar(2).sum();
            let grads = loss.backward();
            let patches = model.patch_embed.proj.weight.val().grad(&grads);
            let patches = numbers(patches.expect("they are trained"));
            let of_mixer = model.layers[0].mixer.in_proj.weight.val().grad(&grads);
            (patches, of_mixer.map(numbers))
        });
        let [(all, of_layers), (rest, none)] = gradients;
        assert!(of_layers.is_some() && none.is_none(), "{device:?}");
        assert!(all == rest && all.iter().any(|&g| g != 0.0), "{device:?}");
    }
}
