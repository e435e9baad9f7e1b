//! Tokens and logits of the named sizes and of awkward ones.

use burn::tensor::{Device, Tensor};
use strum::VariantArray;
use vim_model::{ModelConfig, ModelError, Preset, SsmConfig, VimConfig};

use crate::support::{images, numbers, small};

fn runs(config: &VimConfig, batch: usize) {
    let device = Device::flex();
    let model = config.init(&device, 0).unwrap();
    assert_eq!(model.pos_embed.dims(), [1, config.num_tokens(), config.d_model]);
    let logits = model.forward(Tensor::from_data(images(batch, config.image_size), &device));
    assert_eq!(logits.dims(), [batch, config.num_classes]);
    assert!(numbers(logits).iter().all(|x| x.is_finite()));
}

#[test]
fn every_preset_runs_at_depth_one() {
    for &preset in Preset::VARIANTS {
        let config = VimConfig { depth: 1, ..VimConfig::preset(preset) };
        let (tokens, middle) = match preset {
            Preset::Tiny | Preset::Small | Preset::Base => (197, 98),
            Preset::TinyStride8 => (730, 364),
        };
        assert_eq!((config.num_tokens(), config.class_token_position()), (tokens, middle));
        runs(&config, 1);
    }
}

#[test]
fn awkward_sizes_run() {
    // side, patch, stride, tokens, place of the class token
    for (image_size, patch_size, stride, tokens, middle) in [
        (32, 16, 16, 5, 2),
        (32, 4, 4, 65, 32),
        (32, 16, 8, 10, 4),
        (16, 16, 16, 2, 0),
        (33, 8, 5, 37, 18),
    ] {
        let config = VimConfig { image_size, patch_size, stride, ..small() };
        assert_eq!((config.num_tokens(), config.class_token_position()), (tokens, middle));
        runs(&config, 3);
    }
    runs(&VimConfig { d_conv: 2, d_state: 1, expand: 1, d_model: 17, depth: 1, ..small() }, 2);
}

#[test]
#[should_panic(expected = "image_size")]
fn images_of_another_size_are_refused() {
    let device = Device::flex();
    let _ = small().init(&device, 0).unwrap().forward(Tensor::from_data(images(1, 20), &device));
}

#[test]
fn an_image_does_not_see_its_batch() {
    let device = Device::flex();
    let model = small().init(&device, 0).unwrap();
    let all = Tensor::<4>::from_data(images(3, 16), &device);
    let together = numbers(model.forward(all.clone()).narrow(0, 1, 1));
    let alone = numbers(model.forward(all.narrow(0, 1, 1)));
    assert!(crate::support::error(&together, &alone) < 1e-6);
}

#[test]
fn what_cannot_be_built_is_an_error() {
    let key = |config: VimConfig| match config.init(&Device::flex(), 0) {
        Err(ModelError::Range { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(VimConfig { d_state: 257, ..small() }), "d_state");
    assert_eq!(key(VimConfig { d_conv: 5, ..small() }), "d_conv");
    assert_eq!(key(VimConfig { image_size: 3, ..small() }), "image_size");
    assert_eq!(key(VimConfig { drop_path: f64::NAN, ..small() }), "drop_path");
    assert_eq!(key(VimConfig { num_classes: 0, ..small() }), "num_classes");
    let depthless = ModelConfig { depth: Some(0), ..ModelConfig::default() };
    let error = VimConfig::new(&depthless, SsmConfig::default(), 10).unwrap_err();
    assert_eq!(error.to_string(), "model.depth: 0 is out of range (at least 1)");
}
