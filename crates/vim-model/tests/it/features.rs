//! Features of blocks: which tokens, in which order.

use burn::tensor::Device;
use vim_model::{ClassToken, Pool, VimConfig};

use crate::naive::Naive;
use crate::support::{batch, build, error, numbers, small, values};
use crate::variants::{shaken, variants};

/// Every variant's last two steps against the loops, which compute them from a shorter model.
#[test]
fn features_are_the_blocks_outputs_for_the_patches_in_image_order() {
    for (name, config) in variants() {
        let model = shaken(&config, &Device::flex());
        let parameters = values(&model);
        let images = || batch(1, config.image_size);
        let step = if config.layer_pairs { 2 } else { 1 };
        // Not in order, and one of them twice.
        let blocks = [config.depth - 1, config.depth - 1 - step, config.depth - 1];
        let blocks = if config.depth > step { &blocks[..] } else { &blocks[..1] };
        let features = model.features(images(), blocks).unwrap();
        assert_eq!(features.len(), blocks.len(), "{name}");
        for (&block, feature) in blocks.iter().zip(features) {
            assert_eq!(feature.dims(), [1, config.num_patches(), config.d_model], "{name}");
            let config = VimConfig { depth: block + 1, ..config.clone() };
            let naive = Naive { config: &config, parameters: &parameters };
            let expected = naive.patches_after_blocks(&numbers(images()), config.flip_ratio == 1.0);
            let error = error(&numbers(feature), &expected);
            assert!(error < 2e-5, "{name}, block {block}: {error:.1e}");
        }
    }
}

/// Every variant's blocks against the logits of a model that ends there.
#[test]
fn pooled_features_are_what_the_head_reads() {
    for (name, config) in variants() {
        let model = shaken(&config, &Device::flex());
        let images = || batch(2, config.image_size);
        let step = if config.layer_pairs { 2 } else { 1 };
        let blocks: Vec<usize> = (step - 1..config.depth).step_by(step).rev().collect();
        let pooled = model.pooled_features(images(), &blocks).unwrap();
        assert_eq!(pooled.len(), blocks.len(), "{name}");
        let largest = config.class_token == ClassToken::None && config.pool() == Pool::Max;
        for (block, pooled) in blocks.into_iter().zip(pooled) {
            assert_eq!(pooled.dims(), [2, config.d_model], "{name}");
            let mut short = model.clone();
            short.layers.truncate(block + 1);
            let expected = if largest {
                // The largest logits are of several tokens; their mean is of one.
                short.token_logits(images()).unwrap().mean_dim(1).squeeze_dim(1)
            } else {
                short.forward(images()).unwrap()
            };
            let found = numbers(model.head.as_ref().unwrap().forward(pooled));
            let error = error(&found, &numbers(expected));
            assert!(error < 1e-5, "{name}, block {block}: {error:.1e}");
        }
    }
}

#[test]
fn maps_are_channels_first_and_row_by_row() {
    let config =
        VimConfig { image_size: [8, 12].into(), class_token: ClassToken::Double, ..small() };
    let model = shaken(&config, &Device::flex());
    let x = || batch(2, config.image_size);
    let feature = model.features(x(), &[0]).unwrap().swap_remove(0);
    let map = model.feature_maps(x(), &[0]).unwrap().swap_remove(0);
    assert_eq!(map.dims(), [2, 16, 2, 3]);
    let token = numbers(feature.narrow(0, 1, 1).narrow(1, 4, 1)); // second row, second column
    let pixel = numbers(map.narrow(0, 1, 1).narrow(2, 1, 1).narrow(3, 1, 1));
    assert_eq!(token, pixel);
    assert!(model.features(x(), &[]).unwrap().is_empty());
}

#[test]
fn blocks_without_an_output_of_their_own_are_refused() {
    let pairs = VimConfig { layer_pairs: true, ..small() };
    for (config, block, expected) in [
        (small(), 2, "block 2 has no features: the model has 2, counted from 0"),
        (pairs, 0, "block 0 has no features: it is the first of a pair, ask for 1"),
    ] {
        let model = build(&config, 0);
        let error = model.features(batch(1, 16), &[block]).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(model.pooled_features(batch(1, 16), &[block]).unwrap_err(), error);
    }
}
